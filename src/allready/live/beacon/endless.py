"""Whether Python goes round in a loop that never ends: not by how long it has lasted, but by its instructions.

Loops with a way out are left alone, however long they last, but where a condition bars it on nothing but variables
which no instruction of theirs changes: of their function; or of their module, where no other thread of the script's
runs, the loop calls nothing, and no code at hand, which a callback may run, sets them.  So are loops that call anything
but a few functions of Python's own that always return at once, and functions of Python that do nothing but what such a
loop may: what else is called may end the program, raise, or wait for something that comes.
So may an operator of a class, a division, a product of whole numbers that outgrows the memory, a handler of a signal, a
timer or a function that traces; where any of these is at hand, nothing is claimed.
"""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations for 4 ms
import _thread
import builtins
import gc
import operator
import sys
import time
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from dis import Instruction
    from typing import Any

    _Steps = dict[int, tuple[Instruction, int]]
    """By offset, with that of the following one."""

_MAX_CODE_BYTES = 1 << 16
_MAX_DEPTH = 4
"""Of functions that are called in a loop, and call others."""
_OTHER_FLAGS = 0x04 | 0x08 | 0x20 | 0x80 | 0x100 | 0x200
"""Of code with *arguments or **keywords, of generators and coroutines."""
_RETURNS = ("RETURN_VALUE", "RETURN_CONST")
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
_COMPARES: "dict[str, Callable[[Any, Any], object]]" = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
_PLAIN = {int, float, bool, str, type(None)}
_NUMBERS = ({int, bool}, {float})
"""Alone each only makes more of its kind; a whole number may be too large to become a float."""
_SIZED = {list, tuple, dict, set, str, bytes, bytearray, range}
_CHANGES = ("STORE_", "DELETE_", "LOAD_FAST_AND_CLEAR")
_LOADS_OWN = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST",
              "LOAD_FAST_BORROW_LOAD_FAST_BORROW"}  # fmt: skip
"""Of variables that no other code can reach while the function runs."""
_LOADS_SHARED = {"LOAD_GLOBAL", "LOAD_NAME"}
_SETS_SHARED = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR"}
_OWN = "allready"
_WAITS = ("asyncio", "selectors", "threading")
"""Modules of Python's whose functions our threads are inside of."""
_OUTCOMES: "dict[str, Callable[[object], bool]]" = {
    "IF_TRUE": bool, "IF_FALSE": lambda value: not value,
    "IF_NOT_NONE": lambda value: value is not None, "IF_NONE": lambda value: value is None,
}  # fmt: skip
"""When a jump of this kind is made."""
_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)


def is_endless(frame: FrameType) -> bool:
    """Whether, from where the frame stands or one that has called it, no instruction leads out of that one or into code
    that may raise or wait, and no signal will."""
    inside: set[CodeType] = set()
    at: FrameType | None = frame
    while at is not None and len(inside) <= _MAX_DEPTH and len(at.f_code.co_code) <= _MAX_CODE_BYTES:
        loop = _loop(at)
        if getattr(at, "f_trace", None) is not None:
            return False  # what looks at each line may raise, and change variables
        parts = None if loop is None else _parts_of(loop, at, ())
        if parts is not None:
            return inside <= parts.codes and parts.is_plain() and not _may_be_interrupted()
        if not _is_simple(at.f_code):
            return False
        inside.add(at.f_code)
        at = getattr(at, "f_back", None)
    return False


def _loop(place: FrameType) -> "list[Instruction] | None":
    """The instructions to which this one leads, where they lead back to it and nowhere else; None if they do not.

    Without those of conditions that always come out alike.
    """
    steps, caught = _instructions(place.f_code)
    at = max(
        (offset for offset in steps if offset <= place.f_lasti), default=0
    )  # of a call it is in the room behind it
    settled = _settled(steps, at, place)
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
            return None
        known = settled.get(offset)
        ahead += _next(*found) if known is None else [known.leads_to]
    parts = {offset for jump, known in settled.items() for offset in (jump, *known.parts)}
    return [steps[offset][0] for offset in seen - parts] if comes_back else None


def _stays(step: "Instruction") -> bool:
    if step.opname in _CALLS:
        return True  # which calls they are is looked at when all values are
    if step.opname == "BINARY_OP":
        return step.argrepr in _OPERATORS
    return step.opname.startswith((*_MOVES, *_CONSTANTS, *_NAMES, *_COMPUTES))


def _is_jump(step: "Instruction") -> bool:
    import dis

    return step.opcode in dis.hasjrel or step.opcode in dis.hasjabs


def _next(step: "Instruction", after: int) -> "Iterator[int]":
    if _is_jump(step):
        yield int(step.argval)
    if step.opname not in _ALWAYS:
        yield after


def _instructions(code: "CodeType") -> "tuple[_Steps, list[tuple[int, int]]]":
    """By offset, with that of the following one; and from where to where exceptions are caught."""
    import dis

    read = dis.Bytecode(code)
    steps = list(read)
    afters = [step.offset for step in steps[1:]] + [len(code.co_code)]
    caught = [(entry.start, entry.end) for entry in getattr(read, "exception_entries", ())]
    return {step.offset: (step, after) for step, after in zip(steps, afters, strict=True)}, caught


class _Settled:
    """A conditional jump that always leads to the same place; `parts`: the instructions of its condition."""

    def __init__(self, leads_to: int, parts: "list[int]") -> None:
        self.leads_to, self.parts = leads_to, parts


def _settled(steps: "_Steps", at: int, place: FrameType) -> "dict[int, _Settled]":
    """By offset, in the loop around this place."""
    inside = _around(steps, at)
    changed: set[str] = set()
    for step, _ in (steps[offset] for offset in inside):
        if step.opname.startswith(_CHANGES):
            changed |= {*map(str, step.argval if isinstance(step.argval, tuple) else (step.argval,))}
    loads = _LOADS_OWN
    shared = {str(steps[offset][0].argval) for offset in inside if steps[offset][0].opname in _LOADS_SHARED}
    if shared and not any(steps[offset][0].opname in _CALLS for offset in inside) and _is_alone(place):
        loads = _LOADS_OWN | _LOADS_SHARED
        changed |= _set_at_hand(shared, place)
    targets = {int(step.argval) for step, _ in steps.values() if _is_jump(step)}
    order = [step for step, _ in steps.values() if step.opname not in _UNSEEN]
    found = {}
    for number, step in enumerate(order):
        end = next((end for end in _OUTCOMES if step.opname.endswith(end)), None)
        if step.offset not in inside or end is None or "POP_JUMP" not in step.opname:
            continue
        parts = _condition_of(order, number)
        if not parts or any(parts[0].offset < target <= step.offset for target in targets):
            continue  # another way leads into the middle
        value = _outcome(parts, place, changed, loads)
        if value is not _MISSING:
            leads_to = int(step.argval) if _OUTCOMES[end](value) else steps[step.offset][1]
            found[step.offset] = _Settled(leads_to, [part.offset for part in parts])
    return found


def _around(steps: "_Steps", at: int) -> "set[int]":
    """All to which this one leads and that lead back to it, whatever conditions say."""
    before: dict[int, list[int]] = {}
    for offset, (step, after) in steps.items():
        for following in _next(step, after):
            before.setdefault(following, []).append(offset)
    ahead, behind = {at}, {at}
    for found, ways in (
        (ahead, lambda o: _next(*steps[o]) if o in steps else ()),
        (behind, lambda o: before.get(o, ())),
    ):
        left = [at]
        while left:
            new = {*ways(left.pop())} - found
            found |= new
            left += new
    return ahead & behind


def _condition_of(order: "Sequence[Instruction]", jump: int) -> "Sequence[Instruction]":
    """The instructions that make the value on which it depends; none where there are others between."""
    needed, at = 1, jump
    while needed:
        at -= 1
        pushed_popped = _pushed_popped(order[at]) if at >= 0 else None
        if pushed_popped is None or pushed_popped[0] > needed:
            return []
        needed += pushed_popped[1] - pushed_popped[0]
    return order[at:jump]


def _outcome(parts: "Sequence[Instruction]", place: FrameType, changed: "set[str]", loads: "set[str]") -> object:
    """What a condition gives, each time; `_MISSING`: that is not known.  `loads`: of variables that stay."""
    values: list[object] = []
    for step in parts:
        if step.opname.startswith(_CONSTANTS):
            values.append(step.argval)
        elif step.opname in loads:
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            values += [_MISSING if name in changed else _value_of(name, step.opname, place) for name in names]
        elif step.opname == "UNARY_NOT":
            values.append(not values.pop())
        elif step.opname in {"COMPARE_OP", "IS_OP"}:
            right, left = values.pop(), values.pop()
            is_kind = _NUMBERS[0] | _NUMBERS[1] if step.argval not in _EQUALITY and step.opname != "IS_OP" else _PLAIN
            if not {type(left), type(right)} <= is_kind:
                return _MISSING
            is_same = step.opname == "IS_OP"
            values.append((left is right) != bool(step.arg) if is_same else _COMPARES[step.argval](left, right))
        elif step.opname != "TO_BOOL":
            return _MISSING
        if any(type(value) not in _PLAIN for value in values):
            return _MISSING
    return values[0] if len(values) == 1 else _MISSING


class _Parts:
    """What instructions have to do with, and the functions that they call."""

    def __init__(self) -> None:
        self.given: set[type] = set()
        self.computes = False
        self.multiplies = False
        self.gives_none = False
        self.codes: set[CodeType] = set()

    def is_plain(self) -> bool:
        """Whether all values are of Python's own simple types, so that no operator runs code of a class, and no number
        outgrows the memory: a square has twice the digits, a sum or a multiple only some more."""
        if self.multiplies and not self.given <= _NUMBERS[1]:
            return False
        return any(self.given <= numbers for numbers in _NUMBERS) if self.computes else self.given <= _PLAIN

    def add(self, called: "_Parts", *, is_used: bool) -> None:
        """Of a function that these instructions call, and whose result they use."""
        self.given |= called.given | ({type(None)} if called.gives_none and is_used else set())
        self.computes = self.computes or called.computes
        self.multiplies = self.multiplies or called.multiplies
        self.codes |= called.codes


def _parts_of(
    loop: "Iterable[Instruction]", place: "FrameType | _Called", above: "tuple[CodeType, ...]"
) -> _Parts | None:
    """None where one of them calls what may do anything."""
    steps = sorted((step for step in loop if step.opname not in _UNSEEN), key=lambda step: step.offset)
    found = _Parts()
    in_calls: set[int] = set()
    for number, step in enumerate(steps):
        if step.opname != "CALL":
            continue
        is_used = number + 1 == len(steps) or steps[number + 1].opname != "POP_TOP"
        own = _result_of(steps[max(0, number - 3) : number], step.arg or 0, place)
        if own is not None:
            kind, num_parts = own
            found.given |= {kind} if is_used else set()
            in_calls |= {part.offset for part in steps[number - num_parts : number + 1]}
            continue
        at = _callable_at(steps, number)
        called = None if at is None else _inside(_loaded(steps[at], place), step.arg or 0, above)
        if at is None or called is None:
            return None
        found.add(called, is_used=is_used)
        in_calls |= {steps[at].offset, step.offset}
    for number, step in enumerate(steps):
        if step.offset in in_calls:
            continue
        if step.opname in _CALLS:
            return None
        if _gives_none(steps, number):
            found.gives_none = True
        elif step.opname.startswith(_CONSTANTS) or step.opname == "RETURN_CONST":
            found.given.add(type(step.argval))
        elif step.opname.startswith(_NAMES):
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            known = place.parameters if isinstance(place, _Called) and "FAST" in step.opname else ()
            found.given |= {type(_value_of(name, step.opname, place)) for name in names if name not in known}
        elif step.opname.startswith(_COMPUTES):
            found.computes = found.computes or step.argval not in _EQUALITY
            found.multiplies = found.multiplies or (
                step.argrepr in {"*", "*="} and not _has_constant(steps[max(0, number - 2) : number])
            )
    return found


def _has_constant(before: "Sequence[Instruction]") -> bool:
    """Whether an operator is plainly given a constant: as its right value, or as its left one where one instruction has
    loaded the right one."""
    if before and _pushed_popped(before[-1]) == (1, 0) and not before[-1].opname.startswith(_CONSTANTS):
        before = before[:-1]
    return bool(before) and before[-1].opname.startswith(_CONSTANTS)


def _gives_none(steps: "Sequence[Instruction]", number: int) -> bool:
    """Whether a function gives nothing here: of this None no operator learns."""
    step = steps[number]
    if step.opname == "LOAD_CONST" and step.argval is None:
        return number + 1 < len(steps) and steps[number + 1].opname == "RETURN_VALUE"
    return step.opname == "RETURN_CONST" and step.argval is None


class _Called:
    """A function that is called, in place of its frame; `parameters`: names whose values come from the caller or from
    the function itself, so that they are of the types of the rest."""

    def __init__(self, function: FunctionType, parameters: "set[str]") -> None:
        self.f_globals = function.__globals__
        self.f_locals: dict[str, object] = {}
        self.parameters = parameters


def _inside(called: object, num_arguments: int, above: "tuple[CodeType, ...]") -> _Parts | None:
    """Of a function of Python that can do nothing but compute; None: another one, or it calls itself."""
    if type(called) is not FunctionType:
        return None
    code, defaults = called.__code__, called.__defaults__ or ()
    least = code.co_argcount - len(defaults)
    is_other = code in above or len(above) >= _MAX_DEPTH or not _is_simple(code)
    if is_other or not least <= num_arguments <= code.co_argcount:
        return None
    steps = [step for step, _ in _instructions(code)[0].values()]
    names = _always_bound(steps) | {*code.co_varnames[: code.co_argcount]}
    found = _parts_of(steps, _Called(called, names), (*above, code))
    if found is not None:
        found.given |= {type(value) for value in defaults}
        found.codes.add(code)
    return found


def _is_simple(code: "CodeType") -> bool:
    """Whether a function with this code takes what is given by place alone, and has no instruction by which an
    exception comes, or anything else than a result."""
    is_other = code.co_flags & _OTHER_FLAGS or code.co_freevars or code.co_cellvars or code.co_kwonlyargcount
    if is_other or len(code.co_code) > _MAX_CODE_BYTES:
        return False
    steps, caught = _instructions(code)
    return not caught and all(_stays(step) or step.opname in _RETURNS for step, _ in steps.values())


def _always_bound(steps: "Iterable[Instruction]") -> "set[str]":
    """Local variables that are given a value before anything can be skipped, and are not used before that."""
    bound: set[str] = set()
    used: set[str] = set()
    for step in sorted(steps, key=lambda step: step.offset):
        if _is_jump(step):
            break
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if step.opname == "STORE_FAST" and step.argval not in used:
            bound.add(step.argval)
        elif "FAST" in step.opname:
            used |= {*map(str, names)}
    return bound


def _callable_at(steps: "Sequence[Instruction]", call: int) -> int | None:
    """Which instruction has loaded what is called; None: there is a choice between it and the call, or an operation
    that is not looked at."""
    needed, at = steps[call].arg or 0, call
    while needed:
        at -= 1
        pushed_popped = _pushed_popped(steps[at]) if at >= 0 else None
        if pushed_popped is None or pushed_popped[0] > needed:
            return None
        needed += pushed_popped[1] - pushed_popped[0]
    return at - 1 if at > 0 else None


def _pushed_popped(step: "Instruction") -> tuple[int, int] | None:
    """Values."""
    if step.opname.startswith(_CONSTANTS) or (step.opname.startswith("LOAD") and step.opname.startswith(_NAMES)):
        return (len(step.argval) if isinstance(step.argval, tuple) and "FAST" in step.opname else 1), 0
    if step.opname in {"BINARY_OP", "COMPARE_OP", "IS_OP"}:
        return 1, 2
    if step.opname.startswith("UNARY") or step.opname == "TO_BOOL":
        return 1, 1
    return (1, 1 + (step.arg or 0)) if step.opname == "CALL" else None


def _result_of(
    before: "list[Instruction]", num_arguments: int, frame: "FrameType | _Called"
) -> tuple[type, int] | None:
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
    if type(called) is not BuiltinFunctionType:
        return None  # a clock of the script's own in place of Python's may do anything
    if any(called is clocks[name] for name in _CLOCKS):
        return float
    return int if any(called is clocks[f"{name}_ns"] for name in _CLOCKS) else None


def _of_one(called: object, given: type) -> type | None:
    """What a function of one argument of this type gives."""
    if type(called) is not BuiltinFunctionType:
        return None
    if called is len and given in _SIZED:
        return int
    if called is abs and given in {int, bool, float}:
        return float if given is float else int
    return int if called is id or (called is hash and given in _PLAIN) else None


def _loaded(step: "Instruction", frame: "FrameType | _Called") -> object:
    if step.opname.startswith(_CONSTANTS):
        return step.argval
    is_name = step.opname.startswith("LOAD") and step.opname.startswith(_NAMES) and isinstance(step.argval, str)
    return _value_of(step.argval, step.opname, frame) if is_name else _MISSING


_MISSING = object()


def _value_of(name: str, opname: str, frame: "FrameType | _Called") -> object:
    """What the name stands for now; `_MISSING` where it stands for nothing."""
    places = [] if opname.endswith("GLOBAL") else [frame.f_locals]
    if opname.endswith("NAME") and type(frame.f_locals) is not dict:
        return _MISSING  # code of the job's that looks names up
    if opname.endswith(("GLOBAL", "NAME")):
        places += [frame.f_globals, vars(builtins)]
    found = (value for place in places if (value := place.get(name, _MISSING)) is not _MISSING)
    return next(found, _MISSING)


def _is_alone(place: FrameType) -> bool:
    """Whether no other thread runs code of the script's, or of a library, which might change variables of modules."""
    if type(place.f_globals) is not dict:
        return False
    for ident, innermost in sys._current_frames().items():  # noqa: SLF001 - the documented way
        modules = []
        at: FrameType | None = innermost
        while at is not None and at is not place:
            modules.append(str(at.f_globals.get("__name__")).partition(".")[0])
            at = at.f_back
        if ident != _thread.get_ident() and at is None and not (_OWN in modules and {*modules} <= {_OWN, *_WAITS}):
            return False
    return True


def _set_at_hand(names: "set[str]", place: FrameType) -> "set[str]":
    """Variables that code of the module, or of what has called it, sets or names in a constant.

    It may be of a callback, which runs in a thread that is none of Python's (`Future.then` of torch's) or one of ours,
    or of a finalizer.
    """
    found: set[str] = set()
    for code in _codes_at_hand(place):
        for one in code.co_consts:  # of `setattr`, `globals()[...]`, `update(...)`
            found |= names & {*(one if type(one) is tuple else (one,))}
        if not names.isdisjoint(code.co_names):
            found |= {step.argval for step, _ in _instructions(code)[0].values() if step.opname in _SETS_SHARED} & names
    return found


def _codes_at_hand(place: FrameType) -> "Iterator[CodeType]":
    """Those on the stack, of the module's functions and classes, and of functions that are made in them."""
    left: list[object] = [*place.f_globals.values()]
    at: FrameType | None = place
    while at is not None:
        left.append(at.f_code)
        at = getattr(at, "f_back", None)
    seen: set[int] = set()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if type(one) is CodeType:
            yield one
            left += [const for const in one.co_consts if type(const) is CodeType]
        elif type(one) is FunctionType:
            left += [one.__code__, *(one.__closure__ or ())]
        elif type(one) is CellType:  # of what a decorator has made
            left += [part for part in gc.get_referents(one) if type(part) is FunctionType]
        elif type(one) is staticmethod or type(one) is classmethod or type(one) is MethodType:
            left.append(one.__func__)
        elif type(one) is property:
            left += [one.fget, one.fset]
        elif issubclass(type(one), type):
            parts = type.__getattribute__(one, "__dict__")  # no code of its own class runs
            left += parts.values() if parts.get("__module__") == place.f_globals.get("__name__") else ()


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
