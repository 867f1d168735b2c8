"""What an agent reads out of a cell: the payload as typed values, however it was damaged."""

import functools

import msgspec
from msgspec import Struct

from allready.model.live import WORLD, GroupMark, ScriptException
from allready.model.process import ENDING_SIGNALS

PHASES = (
    "starting", "importing", "joining", "compiling", "loading", "computing", "communicating", "through",
    "evaluating", "saving", "ending", "unknown",
)  # fmt: skip
MAX_MEMBERS = 1 << 17
"""Of all groups of one cell together."""
_MAX_TEXT = 400
_MAX_COUNT = 1 << 60


class CellState(Struct, frozen=True, kw_only=True):
    """What one rank reports.

    `phase`, `site`, `site_since_s`, `visit_since_s` (wall clock), `framework`, `epoch`, `handling`, `raised`,
    `joins_as`, `joins_at`, `awaits`, `waits_otherwise`: as in `RankStatus`.
    `stack_id`: equal as long as the main thread stands at the same instruction with the same callers; equal on ranks
    that stand at the same place of the same program.  `groups`: `waiting_s` is filled in.  `made`: as in `RankStatus`.
    `num_left_out`: groups for which the cell had no room.  `ring_s`: wall clock of the ring's last writing.  `is_whole`
    False: no payload could be read yet, only the heartbeat is known.
    """

    pid: int
    heartbeat_age_s: float
    is_whole: bool = False
    phase: str = "unknown"
    site: str = ""
    site_since_s: float | None = None
    visit_since_s: float | None = None
    stack_id: int | None = None
    framework: str = ""
    epoch: int = 0
    handling: str = ""
    raised: ScriptException | None = None
    joins_as: tuple[int, int] | None = None
    joins_at: tuple[str, int, bool] | None = None
    awaits: tuple[str, str] | None = None
    waits_otherwise: bool = False
    groups: tuple[GroupMark, ...] = ()
    made: tuple[GroupMark, ...] = ()
    num_left_out: int = 0
    ring_s: float | None = None
    written_s: float | None = None  # wall clock of the payload
    problems: tuple[str, ...] = ()


class _Group(msgspec.Struct):
    d: str = ""
    m: str = ""
    e: int = 0
    s: int | None = None
    c: int | None = None
    t: float | None = None
    p: float | None = None


class _Payload(msgspec.Struct):
    phase: str = "unknown"
    site: str = ""
    site_since_s: float | None = None
    visit_since_s: float | None = None
    stack_id: int | None = None
    framework: str = ""
    epoch: int = 0
    handling: str = ""
    raised: ScriptException | None = None
    joins_as: tuple[int, int] | None = None
    joins_at: tuple[str, int, bool] | None = None
    awaits: tuple[str, str] | None = None
    waits_otherwise: bool = False
    world: str = ""
    groups: dict[str, _Group] = {}
    made: dict[str, _Group] = {}
    left_out: int = 0
    ring_s: float | None = None
    at_s: float | None = None
    problems: list[str] = []


_DECODER = msgspec.json.Decoder(_Payload)


def decode(payload: bytes, *, pid: int, heartbeat_age_s: float) -> CellState:
    """The cell's payload with what stands beside it.  Damaged or empty: `is_whole` is False."""
    bare = CellState(pid=pid, heartbeat_age_s=heartbeat_age_s)
    if not payload:
        return bare
    try:
        decoded = _DECODER.decode(payload)
        groups, made = _marks(decoded, decoded.groups), _marks(decoded, decoded.made)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError):
        return bare
    return CellState(
        pid=pid,
        heartbeat_age_s=heartbeat_age_s,
        is_whole=True,
        phase=decoded.phase if decoded.phase in PHASES else "unknown",
        site=decoded.site[:_MAX_TEXT],
        site_since_s=decoded.site_since_s,
        visit_since_s=decoded.visit_since_s,
        stack_id=decoded.stack_id,
        framework=decoded.framework if decoded.framework in {"torch", "jax"} else "",
        raised=decoded.raised and ScriptException(decoded.raised.error[:_MAX_TEXT], decoded.raised.at_s),
        handling=decoded.handling if decoded.handling in ENDING_SIGNALS else "",
        joins_as=decoded.joins_as if all(0 <= n < _MAX_COUNT for n in decoded.joins_as or ()) else None,
        joins_at=decoded.joins_at if decoded.joins_at is not None and 0 < decoded.joins_at[1] < 1 << 16 else None,
        awaits=decoded.awaits,
        waits_otherwise=decoded.waits_otherwise,
        epoch=decoded.epoch if 0 <= decoded.epoch < _MAX_COUNT else 0,
        groups=groups,
        made=made,
        num_left_out=max(0, decoded.left_out),
        ring_s=decoded.ring_s,
        written_s=decoded.at_s,
        problems=tuple(p[:_MAX_TEXT] for p in decoded.problems[:16]),
    )


def _marks(decoded: _Payload, groups: dict[str, _Group]) -> tuple[GroupMark, ...]:
    left = MAX_MEMBERS
    marks = []
    world = expand(decoded.world)
    for name, group in groups.items():
        if not 0 <= group.e < _MAX_COUNT:
            continue
        members = _as_at_the_start(expand(group.m), group.d, world) if decoded.epoch else expand(group.m)
        left -= len(members)
        is_pending = group.p is not None and decoded.at_s is not None
        marks.append(
            GroupMark(
                group=name[:_MAX_TEXT],
                label=group.d[:_MAX_TEXT],
                members=members if left >= 0 else (),
                enqueued=group.e,
                started=group.s,
                completed=group.c,
                waiting_s=max(0.0, (decoded.at_s or 0.0) - (group.p or 0.0)) if is_pending else None,
                moved_s=group.t,
            )
        )
    return tuple(marks)


def _as_at_the_start(members: tuple[int, ...], label: str, world: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks' numbers at the start of the job: torch numbers the ranks of a group that was formed again anew, or, of
    one that was formed in place, names those of the group before it."""
    if label == WORLD:
        return world
    return tuple(world[m] for m in members) if all(m < len(world) for m in members) else ()


@functools.lru_cache(maxsize=512)
def expand(text: str) -> tuple[int, ...]:
    """Ranks from `0-3,8-24:8,30` (a range with a step), in that order; empty where it is no such list."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        numbers = [first, last if dash else first, step or "1"]
        if not all(n.isascii() and n.isdigit() and len(n) < 8 for n in numbers):
            return ()
        begin, end, by = (int(n) for n in numbers)
        if by < 1 or end < begin or len(found) + (end - begin) // by >= MAX_MEMBERS:
            return ()
        found += range(begin, end + 1, by)
    return tuple(found)
