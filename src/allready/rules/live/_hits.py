"""What the rules about running jobs share: hits of one kind of stall, the values of their messages, and evidence."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from allready.judging.analysis import Analysis
from allready.judging.hang import HangBlame, HangKind, blame_hang
from allready.judging.live_status import named, status_of
from allready.judging.places import num_ranks
from allready.judging.stall import StallCause, StallKind
from allready.judging.stated import doing_words, said, stated
from allready.judging.values import shared
from allready.judging.wait_words import call_of, waited_s
from allready.judging.waits import WaitSnapshot, positions
from allready.model import Culprits, Evidence, Hit, Live, Phrase, clock_time, wall_clock

MIN_WAIT_S = 1.2
"""The newest status of a rank is up to a second old; a wait that lasted longer was one when it was taken."""
UNSEEN_S = 2.0
"""A rank is stopped: so long it may take until those that wait for it are seen, after their group was made."""
MAX_EVIDENCE = 14


def stall_hits(case: Analysis, *kinds: StallKind) -> Iterator[Hit]:
    """A hit for ranks that are held up in one of these ways and do not go on by themselves."""
    found = case.of(blame_hang)
    causes = stays_of(found, kinds)
    if causes:
        confidence = min((c.confidence for c in causes), key=lambda c: c.weight)
        yield hit_of(case, found, causes, confidence=confidence, fault_time=clock_time(visible_s(found, causes)))


def stays_of(found: HangBlame, kinds: Sequence[StallKind]) -> tuple[StallCause, ...]:
    """The causes of these kinds that stay, where the wait has lasted long enough to be reported."""
    is_wait = found.kind in {HangKind.LATE, HangKind.JOINING} and found.for_s >= MIN_WAIT_S
    is_frozen = found.kind is HangKind.FROZEN and (bool(found.waiting) or found.for_s >= UNSEEN_S)
    if not (is_wait or is_frozen):
        return ()
    return tuple(c for c in found.causes if c.kind in kinds and c.stays)


def hit_of(case: Analysis, found: HangBlame, causes: Sequence[StallCause], **changes: Any) -> Hit:
    """A hit that accuses the ranks of these causes.

    Args:
        case: of a running job.
        found: what explains the hang.
        causes: why its ranks are late.
        changes: fields of the hit; `values` are added to the usual ones.
    """
    live = case.live
    assert live is not None
    known: dict[str, Any] = {
        "culprits": Culprits(ranks=tuple(sorted(c.rank for c in causes))),
        "evidence": shown(live, found, causes),
        "fault_time": clock_time(found.began_s),
    }
    values = common(case, found, causes) | changes.pop("values", {})
    return Hit(**(known | changes), values=values)


def _place(live: Live, found: HangBlame) -> str | None:
    """Where those who wait stand, where no recorder numbers operations."""
    sites = (status.site for r in found.waiting if (status := status_of(live, r)) is not None)
    return next((site for site in sites if site), None)


def common(case: Analysis, found: HangBlame, causes: Sequence[StallCause]) -> dict[str, object]:
    """Who, since when, where, how many wait and in what; the same names in every message.

    Of several ranks only what is true of all of them: a line or a call that they share, the time from which on all are
    held up.
    """
    live, world = case.live, case.world
    assert live is not None
    began = max((c.began_s for c in causes if c.began_s is not None), default=None) or found.began_s
    return {
        "who": named(live, world, (c.rank for c in causes) if causes else found.ranks),
        "since": wall_clock(began),
        "site": shared(c.site for c in causes) or None,
        "doing": doing_words(shared(c.doing for c in causes) or ""),
        "what": shared(c.what for c in causes) or None,
        "waiting": num_ranks(found.waiting) if found.waiting else None,
        "waited": waited_s(case, found) or None,
        "operation": call_of(case.run, found.wait) if found.wait is not None else _place(live, found),
    }


def key_phrase(live: Live, ranks: Iterable[int]) -> Phrase | None:
    """The key of a store that all of these wait for, and the line that sets it; None where they wait for none."""
    found = shared(None if (status := status_of(live, r)) is None else status.awaits for r in ranks)
    if found is None:
        return None
    key, line = found
    form = "waits for the key {key} of a store, which {line} sets"
    return said(form if line else "waits for the key {key} of a store", key=repr(key), line=line)


def shown(live: Live, found: HangBlame, causes: Sequence[StallCause]) -> tuple[Evidence, ...]:
    """What shows the causes, how far ranks came, and where those who wait stand."""
    evidence = [e for c in causes[:4] for e in c.evidence]
    if found.wait is not None:
        snapshot = WaitSnapshot(source=found.wait.source, waits=(found.wait,))
        evidence += positions(snapshot, tuple(c.rank for c in causes))
    for rank in (*found.waiting[:4], *(() if causes else found.ranks[:4])):
        status = status_of(live, rank)
        if status is not None and status.site:
            evidence.append(
                stated(
                    f"rank {rank}",
                    "rank {rank} waits: {phase} at {site}",
                    rank=rank,
                    phase=status.phase,
                    site=status.site,
                )
            )
    return tuple(evidence)[:MAX_EVIDENCE]


def visible_s(found: HangBlame, causes: Sequence[StallCause]) -> float | None:
    """When the fault could first be seen: the halt, the end, or the last rank that came to wait."""
    sudden = {StallKind.STOPPED, StallKind.TRACED, StallKind.LEFT}
    own = [c.began_s for c in causes if c.began_s is not None and c.kind in sudden]
    if own:
        return max(min(own), found.began_s or 0.0) if causes[0].kind is StallKind.LEFT else min(own)
    return found.began_s
