"""What no recorder writes and allready's beacon adds to a dump: roots, splits of an all_to_all, members of groups, and
sends and receives."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from allready.evidence.flight.names import is_hooked
from allready.evidence.reading import Exchange, Exchanges
from allready.model import CallSite

MAX_ROWS = 100_000
MAX_TEXT = 300
MAX_SPLITS = 2_000_000  # numbers in all splits of one dump
BIG = 1 << 53

Splits = tuple[tuple[int, ...], tuple[int, ...]]  # elements for each member of the group, elements from each member


class Given(Struct, frozen=True):
    """What one call was given.  `root`: a global rank."""

    operation: str
    root: int | None = None
    splits: Splits | None = None


def given_of(rows: Any) -> dict[tuple[str, int], Given]:
    """The beacon's rows by group and number (see `number_of`): (group, number, operation, root, to each, from each).

    What is no such row is passed over; of two for one operation the last counts.
    """
    found: dict[tuple[str, int], Given] = {}
    left = MAX_SPLITS
    for row in rows[-MAX_ROWS:] if isinstance(rows, list) else ():
        if not isinstance(row, list | tuple) or len(row) != 6:
            continue
        group, seq, operation, root, ins, outs = row
        if type(group) is not str or type(seq) is not int or type(operation) is not str:
            continue
        splits = (_counts(ins), _counts(outs))
        left -= len(splits[0]) + len(splits[1])
        found[group, seq] = Given(
            operation=operation,
            root=root if type(root) is int and 0 <= root < 1 << 30 else None,
            splits=splits if left >= 0 and splits[0] and len(splits[0]) == len(splits[1]) else None,
        )
    return found


def exchanges_of(noted: Any) -> Exchanges:
    """The beacon's rows of sends and receives: `calls` (group, whether it sends, the other rank, tag, elements, when,
    number of its place), `places`, `made` (group, whether it sends, the other rank, number of calls) and `partial`.

    What is no such row is passed over.
    """
    if not isinstance(noted, dict):
        return Exchanges()
    places = [_place(value) for value in _rows(noted.get("places"))]
    calls = []
    for row in _rows(noted.get("calls")):
        if not _is_row(row, 7) or not all(type(n) is int and abs(n) < 1 << 63 for n in row[3:]):
            continue
        place = places[row[6]] if 0 <= row[6] < len(places) else ()
        calls.append(Exchange(row[0][:MAX_TEXT], row[1], row[2], row[3], row[4], row[5], place))
    made = {
        (row[0][:MAX_TEXT], row[1], row[2]): row[3]
        for row in _rows(noted.get("made"))
        if _is_row(row, 4) and type(row[3]) is int and 0 < row[3] < BIG
    }
    return Exchanges(tuple(calls), made, bool(noted.get("partial")))


def _rows(value: Any) -> list[Any]:
    return value[-MAX_ROWS:] if isinstance(value, list) else []


def _is_row(row: Any, length: int) -> bool:
    return (
        isinstance(row, list | tuple)
        and len(row) == length
        and type(row[0]) is str
        and type(row[1]) is bool
        and type(row[2]) is int
        and -1 <= row[2] < 1 << 30
    )


def _place(value: Any) -> tuple[CallSite, ...]:
    rows = [row for row in _rows(value)[:8] if isinstance(row, list | tuple) and len(row) == 3]
    return tuple(
        CallSite(file=file[:MAX_TEXT], line=line, function=function[:MAX_TEXT])
        for file, line, function in rows
        if type(file) is str and type(line) is int and abs(line) < BIG and type(function) is str
    )


def given_to(entry: Mapping[str, Any], operation: str, given: Mapping[tuple[str, int], Given]) -> Given | None:
    """What is known of an entry's call; nothing where the beacon saw another operation under its number."""
    group = entry.get("process_group")
    if not isinstance(group, list | tuple) or not group:
        return None
    name, seq = group[0], number_of(entry.get("profiling_name"), entry.get("collective_seq_id"), entry.get("op_id"))
    found = given.get((name, seq)) if type(name) is str and type(seq) is int else None
    return found if found is not None and found.operation == operation else None


def number_of(profiling_name: Any, seq: Any, op_id: Any) -> Any:
    """Of an entry's numbers the one that the beacon knew: a hook that writes the recorder counts by itself, and only
    its count of all operations is reported to others."""
    is_by_hook = type(profiling_name) is str and is_hooked(profiling_name.partition(":")[0])
    return op_id if is_by_hook else seq


def _counts(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(n) is int and 0 <= n < BIG for n in value):
        return ()
    return tuple(value)
