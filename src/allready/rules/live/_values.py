"""What the rules about running jobs say alike: values of their messages, and evidence."""

from collections.abc import Sequence

from allready.judging.live_stall import Reason
from allready.judging.live_status import named, status_of
from allready.judging.live_waits import Decision
from allready.judging.stall import positions
from allready.judging.waits import WaitSnapshot
from allready.model import Culprits, Evidence, Live, World, wall_clock

MIN_WAIT_S = 1.2
"""Words about a rank are up to a second old; a wait that lasted longer was one when they were said."""


def reasons_of(decision: Decision, kinds: set[str]) -> tuple[Reason, ...]:
    """The reasons of these kinds that stay, where the wait is old enough to be told."""
    if decision.kind not in {"late", "halted", "join"} or (decision.kind != "halted" and decision.for_s < MIN_WAIT_S):
        return ()
    return tuple(r for r in decision.reasons if r.kind in kinds and r.stays)


def operation(decision: Decision) -> str:
    """`all_reduce #12 (default_pg)`."""
    wait = decision.wait
    assert wait is not None
    name = "" if wait.operation.name == "?" else f"{wait.operation.name} "
    return f"{name}#{wait.operation.seq} ({wait.label or wait.group})"


def _place(live: Live, decision: Decision) -> str:
    """Where those who wait stand, where no recorder numbers operations."""
    sites = (status.site for r in decision.waiting if (status := status_of(live, r)) is not None)
    return next((site for site in sites if site), "?")


def common(live: Live, world: World, decision: Decision, reasons: Sequence[Reason]) -> dict[str, object]:
    """Who, since when, where, who waits and in what; the same names in every message."""
    first = reasons[0] if reasons else None
    status = status_of(live, first.rank) if first is not None else None
    began = (first.began_s if first is not None else None) or decision.began_s
    return {
        "who": named(live, world, (r.rank for r in reasons) if reasons else decision.ranks),
        "on": node_label(live, world, first.rank) if first is not None else "?",
        "pid": (status.pid if status is not None else None) or "?",
        "since": wall_clock(began),
        "site": (first.site if first is not None else "") or "?",
        "doing": (first.doing if first is not None else "") or "?",
        "what": (first.what if first is not None else "") or "?",
        "waiting": named(live, world, decision.waiting) if decision.waiting else "-",
        "operation": operation(decision) if decision.wait is not None else _place(live, decision),
        "waits_since": wall_clock(decision.began_s),
    }


def node_label(live: Live, world: World, rank: int) -> str:
    """The node of a rank, `2 (gpu02)`; `?` where it is not known."""
    node = live.node_of_rank().get(rank)
    return "?" if node is None else world.label(node)


def fill(values: dict[str, object], *names: str) -> dict[str, object]:
    """Only those that a rule's texts use, and where its remedy is done."""
    return {name: values[name] for name in ("on", "pid", *names)}


def culprits(reasons: Sequence[Reason]) -> Culprits:
    """The ranks of these reasons."""
    return Culprits(ranks=tuple(sorted(r.rank for r in reasons)))


def told(live: Live, decision: Decision, reasons: Sequence[Reason]) -> tuple[Evidence, ...]:
    """What shows the reasons, how far ranks came, and where those who wait stand."""
    found = [e for r in reasons[:4] for e in r.evidence]
    if decision.wait is not None:
        picture = WaitSnapshot(source=decision.wait.source, waits=(decision.wait,))
        found += positions(picture, tuple(r.rank for r in reasons))
    for rank in decision.waiting[:4]:
        status = status_of(live, rank)
        if status is not None and status.site:
            found.append(Evidence(source=f"rank {rank}", text=f"rank {rank} waits: {status.phase} at {status.site}"))
    return tuple(found)[:14]


def visible_s(decision: Decision, reasons: Sequence[Reason]) -> float | None:
    """When the fault could first be seen: the halt, the end, or the last rank that came to wait."""
    own = [r.began_s for r in reasons if r.began_s is not None and r.kind in {"stopped", "traced", "left"}]
    if own:
        return max(min(own), decision.began_s or 0.0) if reasons[0].kind == "left" else min(own)
    return decision.began_s
