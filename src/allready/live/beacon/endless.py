"""Whether Python goes round in a loop that never ends: not by how long it has lasted, but by its instructions.

Loops with a way out are left alone, however long they last, and so are those that call anything but a few functions of
Python's own that always return at once: what is called may end the program, raise, or wait for something that comes.
So may an operator of a class, a division, a handler of a signal or a timer; where any of these is at hand, nothing is
claimed.
"""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations for 4 ms
import builtins
import sys
import time
from types import FrameType, FunctionType, MethodType, ModuleType

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
_CALLS = {"CALL", "PRECALL", "PUSH_NULL", "LOAD_ATTR", "LOAD_METHOD"}
_UNSEEN = {"PRECALL", "PUSH_NULL", "EXTENDED_ARG", "CACHE", "NOT_TAKEN"}
"""Those that move no value that a program sees."""
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_OPERATORS = {*("+", "-", "*", "&", "|", "^"), *("+=", "-=", "*=", "&=", "|=", "^=")}
"""The rest may raise: division by zero, a shift by less than nothing, a power or an item that there is not."""
_EQUALITY = {"==", "!="}
_PLAIN = {int, float, bool, str, type(None)}
_NUMBERS = ({int, bool}, {float})
"""Alone each only makes more of its kind; a whole number may be too large to become a float."""
_SIZED = {list, tuple, dict, set, str, bytes, bytearray, range}
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
    if step.opname in _CALLS:
        return True  # which calls they are is looked at when all values are
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
    steps = sorted((step for step in loop if step.opname not in _UNSEEN), key=lambda step: step.offset)
    given, computes = set(), False
    in_calls: set[int] = set()
    for number, step in enumerate(steps):
        if step.opname == "CALL":
            parts = steps[max(0, number - 3) : number]
            found = _result_of(parts, step.arg or 0, frame)
            if found is None:
                return False
            kind, num_parts = found
            given.add(kind)
            in_calls |= {part.offset for part in steps[number - num_parts : number + 1]}
    for step in steps:
        if step.offset in in_calls:
            continue
        if step.opname in _CALLS:
            return False
        if step.opname.startswith(_CONSTANTS):
            given.add(type(step.argval))
        elif step.opname.startswith(_NAMES):
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            given |= {type(_value_of(name, step.opname, frame)) for name in names}
        elif step.opname.startswith(_COMPUTES):
            computes = computes or step.argval not in _EQUALITY
    return any(given <= numbers for numbers in _NUMBERS) if computes else given <= _PLAIN


def _result_of(before: "list[Instruction]", num_arguments: int, frame: FrameType) -> tuple[type, int] | None:
    """Of a call that always returns at once, what type it gives, and how many of the instructions before are parts of
    it; None: it may be another one."""
    if num_arguments > 1 or len(before) <= num_arguments:
        return None
    *loads, last = before[: len(before) - num_arguments]
    if last.opname in {"LOAD_ATTR", "LOAD_METHOD"} and loads:
        owner = _loaded(loads[-1], frame)
        called, num_parts = vars(owner).get(last.argval) if type(owner) is ModuleType else None, 2
    else:
        called, num_parts = _loaded(last, frame), 1
    kind = _clock_of(called) if num_arguments == 0 else _of_one(called, type(_loaded(before[-1], frame)))
    return None if kind is None else (kind, num_parts + num_arguments)


def _clock_of(called: object) -> type | None:
    clocks = vars(time)
    if any(called is clocks[name] for name in _CLOCKS):
        return float
    return int if any(called is clocks[f"{name}_ns"] for name in _CLOCKS) else None


def _of_one(called: object, given: type) -> type | None:
    """What a function of one argument of this type gives."""
    if called is len and given in _SIZED:
        return int
    if called is abs and given in {int, bool, float}:
        return float if given is float else int
    return int if called is id or (called is hash and given in _PLAIN) else None


def _loaded(step: "Instruction", frame: FrameType) -> object:
    if step.opname.startswith(_CONSTANTS):
        return step.argval
    is_name = step.opname.startswith("LOAD") and step.opname.startswith(_NAMES) and isinstance(step.argval, str)
    return _value_of(step.argval, step.opname, frame) if is_name else _MISSING


_MISSING = object()


def _value_of(name: str, opname: str, frame: FrameType) -> object:
    """What the name stands for now; `_MISSING` where it stands for nothing."""
    places = [] if opname.endswith("GLOBAL") else [frame.f_locals]
    if opname.endswith("NAME") and type(frame.f_locals) is not dict:
        return _MISSING  # code of the job's that looks names up
    if opname.endswith(("GLOBAL", "NAME")):
        places += [frame.f_globals, vars(builtins)]
    found = (value for place in places if (value := place.get(name, _MISSING)) is not _MISSING)
    return next(found, _MISSING)


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
