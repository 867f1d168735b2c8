"""One file of a flight recorder: pickle or JSON, any version, whole or cut, one dump or several in a row."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.flight.columns import MAX_GROUPS, Columns, columns_of, number, time_ns
from allready.evidence.flight.given import exchanges_of, given_of
from allready.evidence.flight.groups import MAX_MEMBERSHIPS
from allready.evidence.flight.machine import RefusedError
from allready.evidence.flight.names import BACKENDS_WITH_STATES, is_hooked, rank_in_name
from allready.evidence.flight.unpickle import load
from allready.evidence.reading import FlightDump, FlightShape, Reading
from allready.model import Origin, SourceRecord
from allready.model.events import troubled
from allready.model.fill import phrase_of, said
from allready.model.finding import Phrase
from allready.names import ARGUMENTS, EXCHANGES, GROUP_COUNTS, MEMBERS, TAKEN
from allready.patterns import compiled

MAX_DUMPS = 4_096  # of one file
MAX_JSON_BYTES = 12 << 20
MAX_JSON_CONTAINERS = 1_000_000
MAX_MEMBERS = 1 << 17  # of one group
MAX_TEXT = 200
KIND = "flight recorder"

_DUMP_KEYS = frozenset({"entries", "pg_config", "pg_status", "nccl_comm_state"})
_HEAD_KEYS = tuple(key.encode() for key in (*sorted(_DUMP_KEYS), "collective_seq_id", "profiling_name"))
_RANKS = r"[\[(]?[\d,\s]*[\])]?\Z"
_RANK_KEY = r"(?i)(?:rank[_\- ]?)?(\d{1,7})\Z"
_RANK_BEFORE = r"(?i)\brank[ :=_\-]{0,3}(\d{1,7})\b"
_PICKLE_STARTS = {b"\x80", b"(", b"}", b"]", b"c", b"\x8c", b"X"}
_PADDING = (b"\n", b"\r", b" ", b"\0")


class _Part(Struct, frozen=True, kw_only=True):
    """One dump as loaded, and what is known of it besides."""

    value: Any
    rank: int | None = None
    problem: Phrase | None = None
    is_cut: bool = False


def is_dump(head: bytes) -> bool:
    """Whether a file that begins so is a flight recorder's: a pickle or JSON with the recorder's own keys."""
    if head[:1] == b"\x80" or head[:2] in {b"(d", b"}q", b"}("}:
        return any(key in head for key in _HEAD_KEYS)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n\t ")
    if not text.startswith((b"{", b"[")):
        return False
    return sum(b'"' + key + b'"' in text for key in (*_HEAD_KEYS, b"version", b"comm_lib_version")) >= 2


def read_dump(data: bytes, source: str, *, name_hint: str) -> Reading:
    """Everything in one file of a flight recorder.

    Args:
        data: the file; of more than 16 MiB (pickle) or 12 MiB (JSON) only the beginning is read.
        name_hint: its path, which may tell the rank; believed unless the content says otherwise.
    """
    problems: list[Phrase] = []
    dumps: list[FlightDump] = []
    num_unreadable = 0
    try:
        for number_of_part, part in enumerate(_with_arguments(_parts(data))):
            if number_of_part >= MAX_DUMPS:
                problems.append(said("more than {most} dumps in one file; the rest was not read", most=MAX_DUMPS))
                break
            dump, unreadable = _dump(part, source, name_hint)
            num_unreadable += unreadable
            if dump is None:
                problems.append(part.problem or said("nothing of a flight recorder in it"))
            else:
                dumps.append(dump)
    except RefusedError as refused:
        problems.append(phrase_of(refused))
    if len(dumps) > 1:
        _forget_shared_ranks(dumps, problems)
    problems += [problem for dump in dumps for problem in dump.problems]
    if not dumps and not problems:
        problems.append(said("nothing of a flight recorder in it"))
    times = [t for d in dumps for t in (d.first_ns, d.last_ns) if t]
    record = SourceRecord(
        path=source,
        kind=KIND,
        size_bytes=len(data),
        num_understood=sum(d.num_entries for d in dumps) + sum(1 for d in dumps if not d.num_entries),
        num_unknown=num_unreadable,
        first_time_s=min(times) / 1e9 if times else None,
        last_time_s=max(times) / 1e9 if times else None,
    )
    return Reading(source=troubled(record, *problems), dumps=dumps)


def values_of(data: bytes) -> list[Any]:
    """What a whole file of pickles holds, the beacon's notes beside their dump's entries; nothing of a damaged one.

    Raises:
        RefusedError: one of them asks for anything but data; nothing of it was executed.
    """
    parts = list(islice(_pickled(data), MAX_DUMPS))
    if len(parts) == MAX_DUMPS or any(part.problem is not None or part.is_cut for part in parts):
        return []
    return [part.value for part in _with_arguments(iter(parts))]


def _forget_shared_ranks(dumps: Sequence[FlightDump], problems: list[Phrase]) -> None:
    """Of several dumps in one file, the file's name tells no rank."""
    ranks = [d.rank for d in dumps]
    for dump in dumps:
        if dump.rank is not None and ranks.count(dump.rank) > 1:
            dump.rank = None
    unknown = sum(d.rank is None for d in dumps)
    if unknown:
        problems.append(said("{num} of {all} dumps in this file do not tell their rank", num=unknown, all=len(dumps)))


# -- from bytes to parts


def _parts(data: bytes) -> Iterator[_Part]:
    begin = data[:64].removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n\t ")
    if begin.startswith((b"{", b"[")) or data[:1] not in _PICKLE_STARTS:
        yield from _json_parts(data)
        return
    for part in _pickled(data):
        yield from _unwrapped(part)


def _pickled(data: bytes) -> Iterator[_Part]:
    at = 0
    while at < len(data):
        loaded = load(data, at)
        yield _Part(value=loaded.value, problem=loaded.problem, is_cut=loaded.is_cut)
        at = loaded.end
        while data[at : at + 1] in _PADDING:
            at += 1


def _with_arguments(parts: Iterator[_Part]) -> Iterator[_Part]:
    """A part that holds nothing but the beacon's notes belongs to the dump before it."""
    held: _Part | None = None
    for part in parts:
        value = part.value
        if held is not None and isinstance(value, dict) and value and set(value) <= {ARGUMENTS, MEMBERS, EXCHANGES}:
            if isinstance(held.value, dict):
                held = replace(held, value=held.value | value)
            continue
        if held is not None:
            yield held
        held = part
    if held is not None:
        yield held


def _json_parts(data: bytes) -> Iterator[_Part]:
    is_long = len(data) > MAX_JSON_BYTES
    data = data[:MAX_JSON_BYTES]
    if data.count(b"[") + data.count(b"{") > MAX_JSON_CONTAINERS:
        yield _Part(
            value=None, problem=said("more than {most} lists and objects; not read", most=f"{MAX_JSON_CONTAINERS:,}")
        )
        return
    if not is_long:
        try:
            value = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass  # several in a row, cut, or with something around them
        else:
            yield from _unwrapped(_Part(value=value))
            return
    yield from _json_pieces(data.decode("utf-8", "replace"))


def _json_pieces(text: str) -> Iterator[_Part]:
    """JSON dumps one after the other, whatever stands between them; of the last, what stands before the cut."""
    decoder = json.JSONDecoder()
    at = after = 0
    work = 4 * len(text) + 100_000
    while work > 0:
        at = text.find("{", at)
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            salvaged, end = _salvage_json(text, at, decoder)
            work -= max(getattr(error, "pos", at + 1000) - at, end - at, 100)
            if salvaged is not None:
                yield _Part(
                    value=salvaged,
                    rank=_rank_before(text, after, at),
                    problem=said("the JSON is damaged or ends early near byte {place}", place=f"{end:,}"),
                    is_cut=True,
                )
                after = at = end
            else:
                at += 1
            continue
        if _is_dump_value(value) or not _is_small(value):
            yield from _unwrapped(_Part(value=value, rank=_rank_before(text, after, at)))
        after = at = end


def _is_small(value: Any) -> bool:
    """Something else between dumps: a log record, a header."""
    return not isinstance(value, dict) or not any(_is_dump_value(v) for v in value.values())


def _rank_before(text: str, start: int, end: int) -> int | None:
    found = compiled(_RANK_BEFORE).findall(text[max(start, end - 300) : end])
    return int(found[-1]) if found else None


def _salvage_json(text: str, at: int, decoder: json.JSONDecoder) -> tuple[dict[str, Any] | None, int]:
    """The entries that stand before a cut in the object that begins at `at`, and what else can be read of it."""
    found: dict[str, Any] = {}
    place = at + 1
    while True:
        key = re.compile(r'[\s,]*"(\w{1,40})"\s*:\s*').match(text, place)
        if key is None:
            break
        place = key.end()
        if text[place : place + 1] == "[" and key[1] == "entries":
            found["entries"], place, whole = _salvage_list(text, place + 1, decoder)
            if not whole:
                break
            continue
        try:
            found[key[1]], place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
    return (found if _is_dump_value(found) else None), max(place, at + 1)


def _salvage_list(text: str, place: int, decoder: json.JSONDecoder) -> tuple[list[Any], int, bool]:
    items: list[Any] = []
    between = re.compile(r"[\s,]*")
    while True:
        found = between.match(text, place)
        place = found.end() if found else place
        if text[place : place + 1] == "]":
            return items, place + 1, True
        try:
            item, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return items, place, False
        items.append(item)


def _is_dump_value(value: Any) -> bool:
    return isinstance(value, dict) and not _DUMP_KEYS.isdisjoint(value)


def _unwrapped(part: _Part) -> Iterator[_Part]:
    """A dump itself, dumps by rank, a list of dumps, or (the oldest) a bare list of entries."""
    value = part.value
    if isinstance(value, dict) and not _is_dump_value(value):
        inner = [(k, v) for k, v in value.items() if _is_dump_value(v)]
        for key, dump in inner:
            rank = compiled(_RANK_KEY).match(key) if isinstance(key, str) else None
            number_of_key = int(rank[1]) if rank else key if isinstance(key, int) else None
            yield _Part(value=dump, rank=number_of_key, problem=part.problem, is_cut=part.is_cut)
        if inner:
            return
    if isinstance(value, list):
        inner_dumps = [v for v in value if _is_dump_value(v)]
        yield from (_Part(value=v, problem=part.problem, is_cut=part.is_cut) for v in inner_dumps)
        if inner_dumps:
            return
        if any(isinstance(v, dict) and "profiling_name" in v for v in value[:100]):
            yield _Part(value={"entries": value}, rank=part.rank, problem=part.problem, is_cut=part.is_cut)
            return
    yield part


# -- from a part to a dump


def _dump(part: _Part, source: str, name_hint: str) -> tuple[FlightDump | None, int]:
    value = part.value
    if not _is_dump_value(value):
        return None, 0
    entries = value.get("entries")
    columns = columns_of(entries if isinstance(entries, list) else [], given_of(value.get(ARGUMENTS)))
    groups = _groups(value.get("pg_config"))
    for name, label in columns.labels.items():
        if name not in groups:
            groups[name] = (_label(label), ())
    _add_members(groups, value.get(MEMBERS))
    form = "{problem}, after {num} entries"
    problems = [said(form, problem=part.problem, num=columns.num_entries)] if part.problem else []
    if columns.num_unreadable and not part.is_cut:
        problems.append(said("{num} entries are none", num=columns.num_unreadable))
    if columns.num_skipped:
        problems.append(said("the oldest {num} entries were not read", num=columns.num_skipped))
    rank, doubt = _rank(part.rank if part.rank is not None else rank_in_name(name_hint), groups, columns)
    problems += [doubt] if doubt else []
    backend = next((b for b in columns.backends if b != "c10d"), "".join(columns.backends[:1]))
    # The recorder can be reset, and counts its records anew then; groups do not.
    is_from_start = columns.first_record == 0 and all(ring.seq[0] <= 1 for ring in columns.rings.values())
    dump = FlightDump(
        origin=Origin(source=source, rank=rank),
        rank=rank,
        version=_text(value.get("version")),
        backend=backend,
        groups=groups,
        status=_status(value.get("pg_status"), groups, columns, first=0 if is_hooked(backend) else 1),
        **{name: getattr(columns, name) for name in Columns.__struct_fields__ if name in FlightDump.__struct_fields__},
        taken_ns=time_ns(value.get(TAKEN)) or None,
        is_whole=is_from_start and not part.is_cut and not columns.num_unreadable,
        is_cut=part.is_cut,
        completes_by_retirement=(
            columns.has_retired and not columns.has_states and backend not in BACKENDS_WITH_STATES
        ),
        exchanges=exchanges_of(value.get(EXCHANGES)),
        problems=tuple(problems),
    )
    return dump, columns.num_unreadable


def _text(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


def _label(label: str) -> str:
    return "" if label == "undefined" else label


def _groups(config: Any) -> dict[str, tuple[str, Sequence[int]]]:
    """Name -> description and members, of what has a name or members; Gloo writes one nameless group."""
    found: dict[str, tuple[str, Sequence[int]]] = {}
    known: dict[str, Sequence[int]] = {}
    left = MAX_MEMBERSHIPS
    if not isinstance(config, dict):
        return found
    for key, value in list(config.items())[:MAX_GROUPS]:
        if not isinstance(key, str) or not isinstance(value, dict):
            continue
        ranks = value.get("ranks")
        members = known.get(ranks) if isinstance(ranks, str) else None
        if members is None:
            members = _members(ranks) if left > 0 else ()
            left -= len(members)
            if isinstance(ranks, str):
                known[ranks] = members
        if not key and not members:
            continue
        found[key[:MAX_TEXT]] = (_label(_text(value.get("desc"))), members)
    return found


def _add_members(groups: dict[str, tuple[str, Sequence[int]]], noted: Any) -> None:
    """Those that the beacon knows, of groups whose members the recorder does not write down."""
    left = MAX_MEMBERSHIPS
    for name, ranks in list(noted.items())[:MAX_GROUPS] if isinstance(noted, dict) else ():
        if name not in groups or groups[name][1] or left <= 0:
            continue
        members = _members(ranks)
        left -= len(members)
        groups[name] = (groups[name][0], members)


def _members(ranks: Any) -> Sequence[int]:
    """Global ranks from "[0, 1]" or a list; consecutive ones as a range, which takes no room."""
    if isinstance(ranks, str):
        if len(ranks) > 8 * MAX_MEMBERS or not compiled(_RANKS).match(ranks):
            return ()
        numbers = [int(n) for n in re.findall(r"\d{1,9}", ranks)][:MAX_MEMBERS]
    elif isinstance(ranks, list | tuple):
        numbers = [n for n in ranks[:MAX_MEMBERS] if type(n) is int and 0 <= n < 1 << 30]
    else:
        return ()
    if numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return range(numbers[0], numbers[0] + len(numbers))
    return tuple(numbers)


def _status(
    status: Any, groups: Mapping[str, tuple[str, Sequence[int]]], columns: Columns, *, first: int
) -> dict[str, tuple[int | None, int | None, int | None]]:
    """Group name -> how many operations, which are numbered from `first`, it enqueued, started and completed.

    The recorder numbers groups by creation; entries tell which number is which.
    """
    if not isinstance(status, dict):
        return {}
    recorded: dict[int, tuple[int | None, int | None, int | None]] = {}
    for key, value in list(status.items())[:MAX_GROUPS]:
        group_id = number(key)
        if group_id is None or not isinstance(value, dict):
            continue
        enqueued, started, completed = (number(value.get(k)) for k in GROUP_COUNTS)
        recorded[group_id] = (_reached(enqueued, first), _reached(started, first), _reached(completed, first))
    names = dict(columns.ids)
    names.update({i: n for i, n in _by_order(recorded, groups).items() if i not in names and n not in names.values()})
    return {names[i]: counts for i, counts in recorded.items() if i in names}


def _reached(number: int | None, first: int) -> int | None:
    return number + 1 - first if number is not None and number >= 0 else None


def _by_order(recorded: Mapping[int, object], groups: Mapping[str, tuple[str, Sequence[int]]]) -> dict[int, str]:
    """Names are given in the order of creation too: if every group has a number, the n-th has the n-th."""
    names = [n for n, (_, members) in groups.items() if members]
    if all(n.isascii() and n.isdigit() and len(n) < 10 for n in names) and len(names) == len(recorded):
        return dict(zip(sorted(recorded), sorted(names, key=int), strict=True))
    default = [n for n, (label, _) in groups.items() if label == "default_pg"]
    return {0: default[0]} if len(default) == 1 and 0 in recorded else {}


def _rank(
    named: int | None, groups: Mapping[str, tuple[str, Sequence[int]]], columns: Columns
) -> tuple[int | None, Phrase | None]:
    """The dump's own rank: it is in every group that has a communicator, and it sends as itself.

    Gloo's nameless group tells nothing: it is that of all ranks, or (torch 2.15) has numbers inside of a smaller one.
    """
    possible: set[int] | None = None
    for name, (_, members) in groups.items():
        if name and members:
            possible = set(members) if possible is None else possible & set(members)
    for name, ring in columns.rings.items():
        own = {_own_rank(columns.shapes[code], groups[name][1]) for code in set(ring.shape)} - {None}
        if own:
            found = {r for r in own if r is not None}
            possible = found if possible is None else possible & found
    if possible is not None and len(possible) == 1:
        (proven,) = possible
        if named is not None and named != proven:
            return proven, said("the name says {named}, the content says rank {proven}", named=named, proven=proven)
        return proven, None
    if named is not None and possible is not None and named not in possible:
        form = "the number {named} in the name is no member of the dump's groups, so it is not its rank"
        return None, said(form, named=named)
    return named, None if named is not None else said("neither the name nor the content tells the rank")


def _own_rank(shape: FlightShape, members: Sequence[int]) -> int | None:
    """`send 1->2` was made by the group's rank 1."""
    own = shape.src if shape.name == "send" else shape.dst if shape.name == "recv" else None
    return members[own] if own is not None and own < len(members) else None
