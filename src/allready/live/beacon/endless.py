"""Whether Python goes round in a loop that never ends: not by how long it has lasted, but by its instructions.

Loops with a way out are left alone, however long they last, and so are those that call anything: what is called may
end the program, raise, or wait for something that comes.  So may an operator of a class, a division, a handler of a
signal or a timer; where any of these is at hand, nothing is claimed.
"""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations for 4 ms
import sys
from types import FrameType, FunctionType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from dis import Instruction
    from types import CodeType

_MAX_CODE_BYTES = 1 << 16
_ALWAYS = {"JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_NO_INTERRUPT", "JUMP_BACKWARD_NO_INTERRUPT"}
_MOVES = ("NOP", "RESUME", "CACHE", "EXTENDED_ARG", "NOT_TAKEN", "POP_TOP", "COPY", "SWAP", "JUMP", "POP_JUMP", "IS_OP",
          "TO_BOOL", "UNARY_NOT")  # fmt: skip
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT")
_NAMES = tuple(f"{what}_{where}" for what in ("LOAD", "STORE") for where in ("FAST", "GLOBAL", "NAME", "DEREF"))
_COMPUTES = ("BINARY_OP", "UNARY_NEGATIVE", "COMPARE_OP")
"""Beginnings of the names of instructions, by none of which an exception comes where all values are plain."""
_OPERATORS = {*("+", "-", "*", "&", "|", "^"), *("+=", "-=", "*=", "&=", "|=", "^=")}
"""The rest may raise: division by zero, a shift by less than nothing, a power or an item that there is not."""
_EQUALITY = {"==", "!="}
_PLAIN = {int, float, bool, str, type(None)}
_NUMBERS = ({int, bool}, {float})
"""Alone each only makes more of its kind; a whole number may be too large to become a float."""
_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)


def is_endless(frame: FrameType) -> bool:
    """Whether, from where the frame stands, no instruction leads out of it or into another one, and no signal will."""
    code = frame.f_code
    if len(code.co_code) > _MAX_CODE_BYTES:
        return False
    loop = _loop(code, frame.f_lasti)
    return bool(loop) and _is_plain(loop, frame) and not _may_be_interrupted()


def _loop(code: "CodeType", at: int) -> "list[Instruction]":
    """The instructions to which this one leads, where they lead back to it and nowhere else; none if they do not."""
    steps, caught = _instructions(code)
    seen: set[int] = set()
    ahead = [at]
    comes_back = False
    while ahead:
        offset = ahead.pop()
        if offset in seen:
            comes_back = comes_back or offset == at
            continue
        seen.add(offset)
        found = steps.get(offset)
        # What something around it catches may come.
        if found is None or not _stays(found[0]) or any(start <= offset < end for start, end in caught):
            return []
        ahead += _next(*found)
    return [steps[offset][0] for offset in seen] if comes_back else []


def _stays(step: "Instruction") -> bool:
    if step.opname == "BINARY_OP":
        return step.argrepr in _OPERATORS
    return step.opname.startswith((*_MOVES, *_CONSTANTS, *_NAMES, *_COMPUTES))


def _next(step: "Instruction", after: int) -> "Iterator[int]":
    import dis

    if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
        yield int(step.argval)
    if step.opname not in _ALWAYS:
        yield after


def _instructions(code: "CodeType") -> "tuple[dict[int, tuple[Instruction, int]], list[tuple[int, int]]]":
    """By offset, with that of the following one; and from where to where exceptions are caught."""
    import dis

    read = dis.Bytecode(code)
    steps = list(read)
    afters = [step.offset for step in steps[1:]] + [len(code.co_code)]
    caught = [(entry.start, entry.end) for entry in getattr(read, "exception_entries", ())]
    return {step.offset: (step, after) for step, after in zip(steps, afters, strict=True)}, caught


def _is_plain(loop: "Iterable[Instruction]", frame: FrameType) -> bool:
    """Whether all values of the loop are of Python's own simple types, so that no operator runs code of a class."""
    given, computes = set(), False
    for step in loop:
        if step.opname.startswith(_CONSTANTS):
            given.add(type(step.argval))
        elif step.opname.startswith(_NAMES):
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            given |= {_type_of(name, step.opname, frame) for name in names}
        elif step.opname.startswith(_COMPUTES):
            computes = computes or step.argval not in _EQUALITY
    return any(given <= numbers for numbers in _NUMBERS) if computes else given <= _PLAIN


def _type_of(name: str, opname: str, frame: FrameType) -> type:
    """Of what the name stands for now; `object` where it stands for nothing."""
    places = [] if opname.endswith("GLOBAL") else [frame.f_locals]
    if opname.endswith("NAME") and type(frame.f_locals) is not dict:
        return object  # code of the job's that looks names up
    if opname.endswith(("GLOBAL", "NAME")):
        places.append(frame.f_globals)
    missing = object()
    found = (value for place in places if (value := place.get(name, missing)) is not missing)
    return type(next(found, missing))


def _may_be_interrupted() -> bool:
    """Whether the process has set itself a time, or handles a signal that it or another process may send it."""
    if any(_signal.getitimer(timer)[0] > 0 for timer in _TIMERS):
        return True
    handlers = (_signal.getsignal(number) for number in _signal.valid_signals())
    if any(callable(h) and h is not _signal.default_int_handler and not _is_own(h) for h in handlers):
        return True
    # A timer's thread may interrupt the main one, or make it raise.
    threading = sys.modules.get("threading")
    active = getattr(threading, "_active", {})
    return threading is not None and any(issubclass(type(t), threading.Timer) for t in list(active.values()))


def _is_own(handler: object) -> bool:
    """Whether it is the runtime library's, which only notes the signal."""
    called = handler.__func__ if type(handler) is MethodType else handler
    return type(called) is FunctionType and str(called.__module__).startswith("allready.")
