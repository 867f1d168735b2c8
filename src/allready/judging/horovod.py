"""Horovod's last report of tensors for which ranks wait: who has not submitted which, and who did another thing."""

from collections.abc import Mapping

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.majority import is_majority, is_minority
from allready.judging.signature_rules import numbers
from allready.model import Event, Role
from allready.signatures.names import STALLED

_MAX_RANKS = 100_000


class Stall(Struct, frozen=True, kw_only=True):
    """kind: "absent" (`ranks` have not submitted what the others wait for), "apart" (`ranks` submitted `tensor`, and
    not `other`; the others the other way round), "extra" (only `ranks` submitted `tensor`, most did not come).

    `missing`: all who have not submitted one of the tensors.  `stopped`: Horovod ended the job because of it.
    """

    kind: str
    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    tensor: str
    other: str = ""
    num_tensors: int = 1
    stopped: bool = False
    num_reports: int = 1
    events: tuple[Event, ...] = ()


def stall(case: Analysis) -> Stall | None:
    """What the last report says; None where there is none, or where the job went on behind it."""
    run = case.run
    events = [e for e in run.events if e.signature == STALLED and e.role is not Role.HARMLESS]
    if not events:
        return None
    reports = [(e, e.stall) for e in events if e.stall is not None and e.stall.tensors]
    stopped, cut = set[int](), set[int]()
    if reports:
        last, newest = max(reports, key=lambda one: (one[0].origin.source, one[0].origin.line or 0))
        events = [last]
        missing, ready = ({one.tensor: set(one.ranks) for one in table} for table in (newest.missing, newest.ready))
        stopped, cut = set(newest.stopped), set(newest.cut)
    else:
        ready = {}
        missing = {e.values.get("tensor", "?"): set(numbers(e.values["ranks"])) for e in events if "ranks" in e.values}
    size = max(run.expected_ranks, 1 + max((r for s in (*missing.values(), *ready.values()) for r in s), default=-1))
    if size > _MAX_RANKS:
        return None
    everybody = set(range(size))
    missing = missing | {tensor: everybody - ranks for tensor, ranks in ready.items()}
    missing = {tensor: ranks for tensor, ranks in missing.items() if ranks}
    if not missing:
        return None
    absent = {r for ranks in missing.values() for r in ranks}
    num_reports = sum(e.count for e in run.events if e.signature == STALLED and e.values.get("seconds"))

    def made(kind: str, ranks: set[int], tensor: str, other: str = "") -> Stall:
        return Stall(
            kind=kind,
            ranks=tuple(sorted(ranks)),
            missing=tuple(sorted(absent)),
            tensor=tensor,
            other=other,
            num_tensors=len(missing),
            stopped=bool(stopped),
            num_reports=num_reports,
            events=tuple(events),
        )

    apart = _apart(missing, cut)
    if apart is not None:
        tensor, other = apart
        theirs = missing[other] - missing[tensor]  # they submitted `tensor` alone
        ours = missing[tensor] - missing[other]
        few = theirs if len(theirs) <= len(ours) else ours
        mine, yours = (tensor, other) if few is theirs else (other, tensor)
        return made("apart", few if is_minority(len(few), len(ours) + len(theirs)) else set(), mine, yours)
    first = max(missing, key=lambda name: len(missing[name]))
    is_size_known = bool(ready) or len(absent) < run.expected_ranks
    if is_size_known and size > len(absent) and is_majority(len(absent), size):
        return made("extra", everybody - absent, first)
    return made("absent", stopped or absent, first)


def _apart(missing: Mapping[str, set[int]], cut: set[int]) -> tuple[str, str] | None:
    """Two tensors of which ranks have submitted the one and not the other, and others the other way round."""
    for tensor, these in missing.items():
        for other, those in missing.items():
            if those - these - cut and these - those - cut:
                return tensor, other
    return None
