"""The payload of a cell, made from what the beacon knows.  Without `json`, which would cost every script 6 ms."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from allready.live.beacon.group import GroupCounters

try:
    from _json import encode_basestring_ascii
except ImportError:  # an interpreter without the accelerator

    def encode_basestring_ascii(text: str, /) -> str:
        """A JSON string."""
        return '"' + "".join(c if 31 < ord(c) < 127 and c not in '"\\' else _escaped(c) for c in text) + '"'


quoted = encode_basestring_ascii
MAX_TEXT = 300
MAX_PROBLEMS = 4
_MAX_MEMBERS_TEXT = 1000
"""Ranks without any order; the ring has them, and others' cells may."""


def _escaped(char: str) -> str:
    code = ord(char)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def encode(
    *,
    at_s: float,
    phase: str,
    site: str,
    site_since_s: float,
    visit_since_s: float,
    stack_id: int,
    framework: str,
    ring_s: float | None,
    problems: "Sequence[str]",
    groups: "Sequence[GroupCounters]",
    most_bytes: int,
    formed: "tuple[int, tuple[int, ...]]" = (0, ()),
    handling: str = "",
    raised: "tuple[str, float] | None" = None,
    joins_as: "tuple[int, int] | None" = None,
    waits_otherwise: bool = False,
    joins_at: "tuple[str, int, bool] | None" = None,
    awaits: "tuple[str, str] | None" = None,
    made: "Sequence[GroupCounters]" = (),
) -> bytes:
    """The JSON.  Of too many groups those that wait, then the busiest are kept; how many were left out is added.

    `formed`: see `names.FORMED`; `handling`: see `handlers.handled`; `raised`: the exception that ended the script, and
    when; `joins_as`, `joins_at`: see `joining`; `awaits`: see `store_wait`; `waits_otherwise`: in a call that waits for
    something else than other ranks; `made`: the collectives of each group, once the process ends, of so many groups as
    an eighth of the cell has room for.
    """
    problem_list = ",".join(quoted(_cut(p)) for p in problems[:MAX_PROBLEMS])
    ring = "null" if ring_s is None else f"{ring_s:.3f}"
    if sum(map(len, problems)) + len(site) > most_bytes // 16:  # a character may take six bytes
        site = _cut(site, most_bytes // 40)
        problem_list = ",".join(quoted(_cut(p, most_bytes // 80)) for p in problems[:MAX_PROBLEMS])
    head = (
        f'{{"at_s":{at_s:.3f},"phase":{quoted(phase)},"site":{quoted(_cut(site))},"site_since_s":{site_since_s:.3f},'
        f"{_formed(*formed)}{_handling(handling)}{_raised(raised)}{_joins(joins_as)}{_at(joins_at)}{_awaited(awaits)}{_otherwise(waits_otherwise)}"
        f'{_made(made, most_bytes // 8)}"visit_since_s":{visit_since_s:.3f},"stack_id":{stack_id},'
        f'"framework":{quoted(framework)},"ring_s":{ring},'
        f'"problems":[{problem_list}],"groups":{{'
    )
    room = most_bytes - len(head) - len('},"left_out":1000000}')
    parts: list[str] = []
    chosen: Sequence[GroupCounters] = groups
    if len(groups) * 60 > room:
        chosen = sorted(groups, key=lambda g: (g.pending_s is None, -g.enqueued))
    left_out = 0
    for group in chosen:
        part = _group(group)
        if len(part) + 1 > room:
            left_out += 1
            continue
        room -= len(part) + 1
        parts.append(part)
    return f'{head}{",".join(parts)}}},"left_out":{left_out}}}'.encode("ascii")


def _formed(epoch: int, members: "tuple[int, ...]") -> str:
    if not epoch:
        return ""
    text = compressed(members)
    return f'"epoch":{epoch},"world":"{text if len(text) <= _MAX_MEMBERS_TEXT else ""}",'


def _handling(signal: str) -> str:
    return f'"handling":{quoted(signal)},' if signal else ""


def _raised(raised: "tuple[str, float] | None") -> str:
    return "" if raised is None else f'"raised":[{quoted(_cut(raised[0], 100))},{raised[1]:.3f}],'


def _otherwise(is_so: bool) -> str:
    return '"waits_otherwise":true,' if is_so else ""


def _joins(joins_as: "tuple[int, int] | None") -> str:
    return "" if joins_as is None else f'"joins_as":[{joins_as[0]},{joins_as[1]}],'


def _at(joins_at: "tuple[str, int, bool] | None") -> str:
    if joins_at is None:
        return ""
    host, port, is_given = joins_at
    return f'"joins_at":[{quoted(_cut(host, 100))},{port},{"true" if is_given else "false"}],'


def _awaited(awaits: "tuple[str, str] | None") -> str:
    return "" if awaits is None else f'"awaits":[{quoted(_cut(awaits[0], 120))},{quoted(_cut(awaits[1], 80))}],'


def _made(groups: "Sequence[GroupCounters]", room: int) -> str:
    parts: list[str] = []
    for group in groups:
        part = _group(group)
        room -= len(part) + 1
        if room < 0:
            break
        parts.append(part)
    return f'"made":{{{",".join(parts)}}},' if parts else ""


def _group(group: "GroupCounters") -> str:
    parts = [f'{quoted(_cut(group.name))}:{{"e":{group.enqueued}']
    if group.label:
        parts.append(f'"d":{quoted(_cut(group.label, 80))}')
    if group.members and len(group.members) <= _MAX_MEMBERS_TEXT:
        parts.append(f'"m":"{group.members}"')
    if group.started is not None:
        parts.append(f'"s":{group.started}')
    if group.completed is not None:
        parts.append(f'"c":{group.completed}')
    if group.moved_s is not None:
        parts.append(f'"t":{group.moved_s:.3f}')
    if group.pending_s is not None:
        parts.append(f'"p":{group.pending_s:.3f}')
    return ",".join(parts) + "}"


def _cut(text: str, most: int = MAX_TEXT) -> str:
    """Bounded; of a path the end matters more than the beginning."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")  # names of files may hold lone surrogates
    return text if len(text) <= most else "..." + text[-most:]


def compressed(ranks: "Sequence[int]") -> str:
    """Ranks in the order given as `0-3,8-24:8`, see `state.expand`."""
    parts: list[str] = []
    at = 0
    while at < len(ranks):
        step = ranks[at + 1] - ranks[at] if at + 1 < len(ranks) else 0
        end = at
        if step > 0:
            while end + 1 < len(ranks) and ranks[end + 1] - ranks[end] == step:
                end += 1
        if end - at < 2:
            parts.append(str(ranks[at]))
            at += 1
            continue
        parts.append(f"{ranks[at]}-{ranks[end]}" + (f":{step}" if step > 1 else ""))
        at = end + 1
    return ",".join(parts)
