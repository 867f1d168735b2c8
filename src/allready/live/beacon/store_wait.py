"""What a call into C waits for by its source: a key of a store, or an operation's handle (`work.wait()`).

torch's store reports no key, and Gloo's recorder no send or receive.

Nothing is called and nothing of the program is run: the call's arguments are constants, or variables of the frame.
"""

import sys
from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator
    from types import FrameType

WAITS = {"get", "wait", "multi_get", "queue_pop"}
SETS = ("set", "add", "append", "compare_set", "multi_set", "queue_push")
MAX_KEY = 120
_MAX_LINES = 20_000
_OF_A_FUNCTION = 0x01
"""Of code whose variables are no dictionary (CO_OPTIMIZED)."""
_OWN_REFERENCES = 3
"""To a dictionary that only its frame and who asks have: the frame, a variable, an argument."""


def awaited_key(frame: "FrameType | None") -> "tuple[str, str] | None":
    """The key that the call in which this frame stands waits for, and the line that sets it (`train.py:12`; "" where
    none of the frame's file does); None where the call is no wait for a key of a store."""
    call = _call_at(frame)
    if call is None or frame is None or call.func.attr not in WAITS or not _is_store(call.func.value, frame):  # type: ignore[attr-defined]
        return None
    key = ", ".join(_keys(call, frame))[:MAX_KEY]
    return (key, _set_at(key, frame.f_code.co_filename, frame)) if key else None


def waits_on_work(frame: "FrameType | None") -> bool:
    """Whether the call in which this frame stands waits for a handle of torch's: then other ranks have to come."""
    import ast

    call = _call_at(frame)
    if call is None or frame is None or call.func.attr != "wait":  # type: ignore[attr-defined]
        return False
    owner = call.func.value  # type: ignore[attr-defined]
    if isinstance(owner, ast.Call):
        return ast.unparse(owner.func).rpartition(".")[2] in {"isend", "irecv"}
    return _is_of_torch("Work", _value(owner, frame))


def _call_at(frame: "FrameType | None") -> "ast.Call | None":
    """The call of a method in which the frame stands."""
    if frame is None:
        return None
    import linecache

    code = frame.f_code
    place = list(code.co_positions())[frame.f_lasti // 2]
    first, last, begin, end = place
    if first is None or last is None or begin is None or end is None or last - first > 20:
        return None
    lines = [line.encode() for line in linecache.getlines(code.co_filename, frame.f_globals)[first - 1 : last]]
    if len(lines) != last - first + 1:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return _call(b"".join(lines).decode("utf-8", "replace"))


def _call(text: str) -> "ast.Call | None":
    import ast

    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node if is_method else None  # type: ignore[return-value]


def _is_store(node: "ast.expr", frame: "FrameType") -> bool:
    import ast

    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2] == "_get_default_store"
    return _is_of_torch("Store", _value(node, frame))


def _is_of_torch(name: str, value: object) -> bool:
    return any(kind.__name__ == name and kind.__module__.startswith("torch.") for kind in type(value).__mro__)


def _value(node: "ast.expr", frame: "FrameType") -> object:
    """What a constant, a variable, an attribute in an object's own dictionary or an item of a list holds; None for all
    else."""
    import ast

    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _variable(node.id, frame)
    if isinstance(node, ast.Attribute):
        return _attribute(node.attr, _value(node.value, frame))
    if isinstance(node, ast.Subscript):
        owner, at = _value(node.value, frame), _index(node.slice)
        try:  # another thread may take items out meanwhile
            return owner[at] if type(owner) in {list, tuple} and at is not None else None  # type: ignore[index]
        except IndexError:
            return None
    return None


def _variable(name: str, frame: "FrameType") -> object:
    """What a variable of the frame holds.

    Before 3.13 the frame keeps the dictionary that is made of its variables, and all that is in it, until it ends: the
    tensors that it had in that moment.
    """
    known, is_function = frame.f_locals, bool(frame.f_code.co_flags & _OF_A_FUNCTION)
    if not is_function and type(known) is not dict:
        return None  # code of the job's that looks names up
    found: object = known[name] if name in known else dict.get(frame.f_globals, name)
    if (
        sys.version_info < (3, 13)
        and is_function
        and frame.f_trace is None
        and sys.getrefcount(known) == _OWN_REFERENCES
    ):
        known.clear()
    return found


def _attribute(name: str, owner: object) -> object:
    """What an object's own dictionary holds, where it is one of Python's and no code of the job gives it."""
    of_class = (vars(kind)["__dict__"] for kind in type(owner).__mro__ if "__dict__" in vars(kind))
    if type(next(of_class, None)) not in {GetSetDescriptorType, MemberDescriptorType}:
        return None
    found = object.__getattribute__(owner, "__dict__")
    if issubclass(type(found), dict):
        return dict.get(found, name)
    return found.get(name) if type(found) is MappingProxyType else None


def _index(node: "ast.expr") -> int | None:
    import ast

    try:
        found = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return found if type(found) is int else None


def _keys(call: "ast.Call", frame: "FrameType") -> "Iterator[str]":
    import ast

    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg in {"key", "keys"})]
    for node in given:
        for part in node.elts if isinstance(node, ast.List | ast.Tuple) else [node]:
            text = _text(part, frame)
            if text:
                yield text


def _text(node: "ast.expr", frame: "FrameType") -> str:
    import ast

    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
        found = [_value(part, frame) for part in parts]
        return "".join(map(str, found)) if all(type(value) in {str, int} for value in found) else ""
    value = _value(node, frame)
    if type(value) in {list, tuple}:
        return ", ".join(v for v in value[:8] if type(v) is str)  # type: ignore[index]
    return value if type(value) is str else ""


def _set_at(key: str, file: str, frame: "FrameType") -> str:
    """The first line of the frame's file in which the key is given to a call that sets one."""
    import linecache

    lines = linecache.getlines(file, frame.f_globals)[:_MAX_LINES]
    for number, line in enumerate(lines, 1):
        if any(f".{name}(" in line and (f'"{key}"' in line or f"'{key}'" in line) for name in SETS):
            return f"{file.rpartition('/')[2]}:{number}"
    return ""
