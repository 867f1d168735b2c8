"""Numbers of lines in a reading -> those of the user's file, where its records have several lines each."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.reading import OpStream, Reading
from allready.model import Closing, Origin

_NUMBERS = {
    Origin: ("line",),
    OpStream: ("first_line", "last_line"),
    Closing: ("first_progress_line", "progress_line", "restart_line", "last_counts_line", "opening_lines"),
}


def renumber(reading: Reading, line_of: Callable[[int], int], num_lines: int) -> None:
    """Bring every number of a line to the file, which has `num_lines`."""
    for name in Reading.__struct_fields__:
        setattr(reading, name, _moved(getattr(reading, name), line_of))
    reading.source = replace(reading.source, num_lines=num_lines)


def _moved(value: Any, line_of: Callable[[int], int]) -> Any:
    if isinstance(value, Struct):
        return _moved_struct(value, line_of)
    if isinstance(value, list | tuple) and value and not hasattr(value, "_fields"):
        return type(value)(_moved(one, line_of) for one in value)
    if isinstance(value, Mapping) and value:
        return {key: _moved(one, line_of) for key, one in value.items()}
    return value


def _moved_struct(value: Struct, line_of: Callable[[int], int]) -> Struct:
    numbers = _NUMBERS.get(type(value), ())
    changed: dict[str, Any] = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        if name in numbers:
            new = _numbers(old, line_of)
        elif isinstance(old, Struct | list | tuple | Mapping):
            new = _moved(old, line_of)
        else:
            continue
        if new is not old and new != old:
            changed[name] = new
    return replace(value, **changed) if changed else value


def _numbers(old: int | tuple[int, ...] | None, line_of: Callable[[int], int]) -> int | tuple[int, ...] | None:
    if isinstance(old, tuple):
        return tuple(map(line_of, old))
    return None if old is None else line_of(old)
