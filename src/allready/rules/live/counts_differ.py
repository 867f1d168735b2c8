from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from allready.judging.live_status import named
from allready.judging.majority import majority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import grouped
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    GroupMark,
    Hit,
    Live,
    RankStatus,
    RemedyStep,
    Severity,
    World,
    ranges,
)

MAX_GROUPS = 4
MAX_SHOWN = 8


@Rule(
    code="LIV016",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.LIVE,
    title="All ranks ended with exit code 0, after different numbers of collectives",
    message="[[{odd} made {own} collectives in group {group}, {rest} {usual}|ranks made different numbers of "
    "collectives in group {group}: {counts}|ranks made different numbers of collectives]]; all ranks ended with exit "
    "code 0, so that a call was left out, or made once too often, and no rank reported it",
    remedy=(
        RemedyStep(
            explanation="look for an exception that is caught around a step (except: pass, continue) and for a call "
            "under a condition. From the first call that is missing on, collectives combined values of different "
            "steps: do not trust this run's weights and metrics before they were compared between the ranks"
        ),
        RemedyStep(explanation="TORCH_DISTRIBUTED_DEBUG=DETAIL makes torch compare every call"),
    ),
)
def counts_differ(live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    How many collectives each rank had recorded in each of its groups when its process ended (torch's flight recorder),
    once all ranks of the job have ended with exit code 0.  Sends and receives do not count.  Only groups of which the
    members are known and every one tells; the fewer are named, and none of two that differ.
    ## Why it matters
    Collectives match by their position.  Where a rank leaves one out and catches the error of the end, the job looks
    healthy, and from that call on its ranks combined values of different steps.
    ## Check by hand
    Count the iterations of all ranks; compare a checksum of the weights between the ranks.
    ## When it is harmless
    When the call that only some made was their last one, and none of them waited for it.
    """
    ranks = live.ranks()
    if len(ranks) < max(2, live.world_size) or not all(map(_ended_well, ranks.values())):
        return
    if any(status.epoch for status in ranks.values()):
        return  # the runtime library formed the group again: the numbers began anew at different calls
    for count in _unequal(ranks)[:MAX_GROUPS]:
        yield _hit(live, world, count)


def _ended_well(status: RankStatus) -> bool:
    return status.is_gone and status.exit_code == 0 and not status.signal


class _Count(Struct, frozen=True):
    """Of one group: rank -> collectives."""

    title: str
    made: Mapping[int, int]


def _unequal(ranks: Mapping[int, RankStatus]) -> Sequence[_Count]:
    marks: dict[tuple[str, tuple[int, ...]], dict[int, GroupMark]] = {}
    for rank, status in ranks.items():
        for mark in status.made:
            marks.setdefault((mark.group, tuple(sorted(mark.members))), {})[rank] = mark
    found = []
    for (name, members), of in sorted(marks.items()):
        if members and set(of) == set(members) and len({mark.enqueued for mark in of.values()}) > 1:
            label = next((mark.label for mark in of.values() if mark.label), "")
            found.append(_Count(f"{name} ({label})" if label else name, {r: of[r].enqueued for r in members}))
    return found


def _hit(live: Live, world: World, count: _Count) -> Hit:
    most = majority(count.made)
    odd = most.odd if most is not None else ()
    holders = sorted(grouped((num, rank) for rank, num in count.made.items()).items())
    return Hit(
        culprits=Culprits(ranks=odd),
        confidence=Confidence.LIKELY,
        values={
            "group": count.title,
            "odd": named(live, world, odd) if odd else None,
            "own": ranges({count.made[r] for r in odd}) if odd else None,
            "rest": named(live, world, most.members) if most is not None else None,
            "usual": most.value if most is not None else None,
            "counts": tuple(said("{who} {num}", who=named(live, world, r), num=n) for n, r in holders[:MAX_SHOWN]),
        },
        evidence=tuple(
            stated(
                "flight recorder",
                "group {group}: {num} collectives by {who}",
                group=count.title,
                num=num,
                who=named(live, world, members),
            )
            for num, members in holders[:MAX_SHOWN]
        ),
    )
