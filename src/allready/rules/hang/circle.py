"""HNG004."""

from collections.abc import Iterator

from allready.model import Aftermath, Confidence, Culprits, FaultClass, Hit, Live, Severity, clock_time
from allready.rules._live import waited_s
from allready.rules._ruins import who
from allready.rules._suspects import positions
from allready.rules._waits import Picture
from allready.rules.hang._decide import decide
from allready.rules.hang._when import onset
from allready.rules.registry import Rule

SURE_S = 1.2


@Rule(
    code="HNG004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    since="0.1",
    depth=23,
    title="Ranks wait for each other in a circle of groups",
    message="{who} wait for each other: {chain}",
    remedy="ranks must use their groups in one order: put the calls in the same order on every rank, or finish one "
    "group's operation before the next begins",
)
def circle(after: Aftermath, live: Live | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    The graph of waits over all groups: everyone who is waited for waits in another group itself.
    ## Why it matters
    Two groups used in opposite order on two ranks lock each other for ever, though every single call is right.
    ## Check by hand
    Write down for each rank in which group it waits; follow the arrows.
    ## When it is harmless
    Never.
    """
    decision = decide(after)
    if decision.kind != "cycle" or decision.picture is None:
        return
    stood_s = _stood_s(live, decision.picture, decision.ranks) if live is not None else 0.0
    if live is not None and stood_s < SURE_S:
        return  # words about ranks that move are never of one moment
    names = []
    ranks = decision.ranks
    for rank, following in zip(ranks, (*ranks[1:], ranks[0]), strict=True):
        wait = next(
            (w for w in decision.picture.waits if rank in w.waiting and following in {*w.behind, *w.unseen}), None
        )
        if wait is not None:
            names.append(
                f"{rank} -> {following} ({wait.label or wait.group}: {wait.operation.name} #{wait.operation.seq})"
            )
    yield Hit(
        culprits=Culprits(ranks=tuple(sorted(ranks))),
        values={"who": who(after, ranks), "chain": ", ".join(names)},
        confidence=Confidence.LIKELY if decision.is_final or live is not None else Confidence.POSSIBLE,
        evidence=positions(decision.picture, ranks),
        fault_time=clock_time(onset(after) if live is None else live.now_s - stood_s),
    )


def _stood_s(live: Live, picture: Picture, ranks: tuple[int, ...]) -> float:
    """For how long the last of them to wait has waited."""
    waits = [w for w in picture.waits if set(w.waiting) & set(ranks)]
    return min((waited_s(live, set(w.waiting) & set(ranks), w.group) for w in waits), default=0.0)
