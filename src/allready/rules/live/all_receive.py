from collections.abc import Iterator

from allready.judging.exchanges import circle_in, halves_of
from allready.judging.live_status import is_idle, named, same_place_s
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.signs import Sign
from allready.judging.stated import said, stated
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Live,
    RemedyStep,
    RunEvidence,
    Severity,
    World,
    clock_time,
    wall_clock,
)
from allready.model.live import newest_epoch

STAYS_S = 2.0
MAX_SHOWN = 8


@Rule(
    code="LIV018",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.STALL,
    applies=Applies.LIVE,
    explains=("LIV014",),
    unless=(Sign.STRAY,),
    title="Ranks wait to receive from each other, and none of them sends",
    message="{who} have waited for each other since {since}: {halves}; all are in the same half, so that none makes "
    "the other one",
    remedy=RemedyStep(
        explanation="let one rank of each pair begin with the other half (send first on even ranks, recv first on odd "
        "ones), or give both halves to batch_isend_irecv"
    ),
)
def all_receive(live: Live, run: RunEvidence, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    For which rank each main thread in `recv` or `send` waits, as torch's frames show it; whether ranks that stand there
    for 2 s and use no processor wait for each other in a circle, all in the same half.
    ## Why it matters
    Each waits for bytes that the next one sends only after it has received its own; no recorder of Gloo shows sends and
    receives, and the timeout comes after half an hour.
    ## Check by hand
    `py-spy dump --locals --pid PID` of these ranks: `src` and `dst` of the calls.
    ## When it is harmless
    When another thread of one of these ranks will make the other half.
    """
    if newest_epoch(live.statuses) > 1:
        return  # the runtime library formed the group again: torch numbers the peers anew
    halves = {r: half for r, half in halves_of(run).items() if _stands(live, r)}
    circle = circle_in(halves)
    if not circle:
        return
    began_s = live.now_s - min(same_place_s(live, r) for r in circle)
    phrases = tuple(
        said(
            "rank {rank} in {call} with rank {peer}[[ at {site}]]",
            rank=r,
            call=halves[r].call,
            peer=halves[r].peer,
            site=halves[r].site,
        )
        for r in circle
    )
    yield Hit(
        culprits=Culprits(),
        confidence=Confidence.LIKELY,
        values={"who": named(live, world, circle), "since": wall_clock(began_s), "halves": phrases[:MAX_SHOWN]},
        evidence=tuple(
            stated(
                f"rank {rank}",
                "rank {rank} waits for rank {peer} in {call}[[ at {site}]]",
                rank=rank,
                peer=halves[rank].peer,
                call=halves[rank].call,
                site=halves[rank].site,
            )
            for rank in circle[:MAX_SHOWN]
        ),
        fault_time=clock_time(began_s),
    )


def _stands(live: Live, rank: int) -> bool:
    status = live.ranks().get(rank)
    return status is not None and not status.is_gone and same_place_s(live, rank) >= STAYS_S and is_idle(live, rank)
