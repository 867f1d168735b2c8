from collections.abc import Iterator, Mapping

from msgspec import Struct

from allready.judging.last_calls import P2P, RECEIVES, call_of_stack
from allready.judging.live_status import is_idle, named, same_place_s
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said, stated
from allready.model import (
    CallSite,
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

STAYS_S = 3.0
MAX_SHOWN = 8


class _Half(Struct, frozen=True):
    """What one rank waits in: the call, for whom, and the line of the program."""

    call: str
    peer: int
    site: CallSite | None


@Rule(
    code="LIV018",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.STALL,
    applies=Applies.LIVE,
    explains=("LIV010", "LIV014"),
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
    for 3 s and use no processor wait for each other in a circle, all in the same half.
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
    halves = {r: half for r, half in _halves(run).items() if _stands(live, r)}
    circle = _circle(halves)
    if not circle:
        return
    began_s = live.now_s - min(same_place_s(live, r) for r in circle)
    phrases = tuple(
        said("rank {rank} in {call} with rank {peer}", rank=r, call=halves[r].call, peer=halves[r].peer) for r in circle
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


def _halves(run: RunEvidence) -> dict[int, _Half]:
    found = {}
    for stack in run.stacks:
        main = next((t for t in stack.threads if t.is_main), None)
        if stack.role != "rank" or stack.rank is None or main is None or main.peer is None or main.has_peer_group:
            continue
        call = call_of_stack(stack)
        if call.name in P2P:
            found[stack.rank] = _Half(call.name, main.peer, call.site)
    return found


def _stands(live: Live, rank: int) -> bool:
    status = live.ranks().get(rank)
    return status is not None and not status.is_gone and same_place_s(live, rank) >= STAYS_S and is_idle(live, rank)


def _circle(halves: Mapping[int, _Half]) -> tuple[int, ...]:
    """The ranks of the first circle, in the order in which each waits for the next; empty where there is none, or some
    receive and others send."""
    for first in sorted(halves):
        path = [first]
        while (peer := halves[path[-1]].peer) in halves and peer not in path:
            path.append(peer)
        if peer == first and len(path) > 1 and len({halves[r].call in RECEIVES for r in path}) == 1:
            return tuple(path)
    return ()
