from collections import Counter
from collections.abc import Iterator, Mapping

from allready.judging.live_status import named, same_call_s
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import grouped
from allready.model import (
    PROCESSES,
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Live,
    RemedyStep,
    Severity,
    World,
    clock_time,
    ranges,
)

STAYS_S = 5.0
"""Who joins is through sooner, or waits for others that are not there yet."""


@Rule(
    code="LIV015",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    applies=Applies.LIVE,
    title="A rank joins under another number than it was started with",
    message="{who} {who:calls/call} init_process_group as {claimed}, and {who:was/were} started as {started}; after "
    "{waited} s no rank of the {size} that {who:it waits/they wait} for can still come",
    remedy=(
        RemedyStep(
            explanation="rank and world_size must come from RANK and WORLD_SIZE on all ranks (LOCAL_RANK counts per "
            "node, and only chooses the GPU); leave both out, and torch reads them itself"
        ),
        RemedyStep(
            explanation="see what the script gives",
            each=PROCESSES,
            where="{on}",
            command="py-spy dump --locals --pid {pid}",
        ),
    ),
)
def joins_as_another(live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    With which rank and world size each rank that is about to join calls torch, as its frames show it, against those
    that it was started with.  Only where every rank of the job stands there or is through, and the numbers that were
    given do not make whole groups: 0 to size - 1, each of them equally often.  While some are through, only a world
    size larger than the job's counts: ranks may make smaller groups of all one after the other.
    ## Why it matters
    A rank that takes LOCAL_RANK for its rank on the second node, or a world size of its own, is another rank for torch:
    two have one number, and all wait for one that never comes, for half an hour.
    ## Check by hand
    Print RANK, LOCAL_RANK, WORLD_SIZE and what is given to init_process_group on every rank.
    ## When it is harmless
    Where other processes, which this job did not start, join the group as well.
    """
    living = {r: s for r, s in live.ranks().items() if not s.is_gone}
    joining = {r: s for r, s in living.items() if s.phase == "joining" and not s.groups}
    waited_s = min((same_call_s(live, r) for r in joining), default=0.0)  # torch's own store polls meanwhile
    if len(living) < max(2, live.world_size) or waited_s < STAYS_S:
        return
    if any(r not in joining and not (s.groups or s.num_operations) for r, s in living.items()):
        return  # it has yet to come
    claims = {r: s.joins_as if s.joins_as and r in joining else (r, live.world_size) for r, s in living.items()}
    by_size = grouped((size, rank) for rank, (_, size) in claims.items())
    for size, members in sorted(by_size.items()):
        if _are_whole(Counter(claims[r][0] for r in members), size):
            continue
        if size <= live.world_size and len(joining) < len(living):
            continue  # a world of some ranks, to which one that is still in an earlier group may come
        odd = tuple(r for r in members if claims[r] != (r, live.world_size))
        if odd:
            yield _hit(live, world, claims, odd, waited_s)


def _are_whole(numbers: Mapping[int, int], size: int) -> bool:
    """Whether they make one group or several, as of several jobs of one node each."""
    return len(numbers) == size and max(numbers) == size - 1 and len(set(numbers.values())) == 1


def _hit(live: Live, world: World, claims: Mapping[int, tuple[int, int]], odd: tuple[int, ...], waited_s: float) -> Hit:
    size = claims[odd[0]][1]
    claimed = sorted({claims[r][0] for r in odd})
    return Hit(
        culprits=Culprits(ranks=odd),
        confidence=Confidence.LIKELY,
        values={
            "who": named(live, world, odd),
            "claimed": said("rank {ranks} of {size}", ranks=ranges(claimed), size=size),
            "started": said("rank {ranks} of {size}", ranks=ranges(odd), size=live.world_size),
            "size": size,
            "waited": f"{waited_s:.0f}",
        },
        evidence=tuple(
            stated(
                f"rank {rank}",
                "rank {rank} joins as rank {ranks} of {size}[[ at {site}]], pid {pid}",
                rank=rank,
                ranks=number,
                size=num,
                site=live.ranks()[rank].site or None,
                pid=live.ranks()[rank].pid,
            )
            for rank, (number, num) in sorted(claims.items())[:8]
        ),
        fault_time=clock_time(live.now_s - waited_s),
    )
