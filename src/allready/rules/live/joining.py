import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping

from allready.judging.live_status import named, same_call_s
from allready.judging.majority import is_tie, majority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said, stated
from allready.judging.values import grouped, listed, shared
from allready.model import (
    PROCESSES,
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Live,
    RankStatus,
    RemedyStep,
    Severity,
    World,
    clock_time,
    ranges,
)
from allready.model.addresses import endpoint

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
    living, joining = _joining(live)
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
            yield _hit_of_number(live, world, claims, odd, waited_s)


def _joining(live: Live) -> tuple[dict[int, RankStatus], dict[int, RankStatus]]:
    """The ranks that live, and those of them that are about to join and have no group yet."""
    living = {r: s for r, s in live.ranks().items() if not s.is_gone}
    return living, {r: s for r, s in living.items() if s.phase == "joining" and not s.groups}


def _are_whole(numbers: Mapping[int, int], size: int) -> bool:
    """Whether they make one group or several, as of several jobs of one node each."""
    return len(numbers) == size and max(numbers) == size - 1 and len(set(numbers.values())) == 1


def _hit_of_number(
    live: Live, world: World, claims: Mapping[int, tuple[int, int]], odd: tuple[int, ...], waited_s: float
) -> Hit:
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


MAX_SHOWN = 8
Endpoint = tuple[str, int]


@Rule(
    code="LIV017",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    applies=Applies.LIVE,
    title="A rank looks for the store at another address or port than the others",
    message="[[{odd} {odd:looks/look} for the store at {own}, {rest} at {usual}: {variable}, or init_method, differs|"
    "ranks look for the store at different places: {places}|ranks look for the store at different places]]; after "
    "{waited} s no rank has joined",
    remedy=(
        RemedyStep(
            explanation="give all ranks the same MASTER_ADDR and MASTER_PORT, or the same init_method: look for "
            "what sets them on [[{odd}|each rank]] (a job script, an .env file, a line of the program before "
            "init_process_group)"
        ),
        RemedyStep(
            explanation="see what the process was started with",
            each=PROCESSES,
            where="{on}",
            command=r"tr '\0' '\n' < /proc/{pid}/environ | grep MASTER_",
        ),
    ),
)
def joins_elsewhere(live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    At which host and port each rank that connects to the store of the job looks for it, as torch's frames show it.
    Only where every rank of the job stands there.  Another port is another store.  Another address may be
    another name of the same machine: it counts as likely where it is a number and none of those that the machine of
    rank 0 has.  The fewer are named, and on a tie those that look where their launcher did not send them.
    ## Why it matters
    Each side waits for the other until the timeout, and torch then reports only that ranks did not come.
    ## Check by hand
    Print MASTER_ADDR and MASTER_PORT on every rank before init_process_group.
    ## When it is harmless
    Never, once no rank makes progress.
    """
    living, joining = _joining(live)
    at = {r: s.joins_at[:2] for r, s in joining.items() if s.joins_at is not None}
    waited_s = min((same_call_s(live, r) for r in at), default=0.0)  # torch's own store polls meanwhile
    if len(living) < max(2, live.world_size) or waited_s < STAYS_S or len(set(at.values())) < 2:
        return
    if len(joining) < len(living):
        return  # it has yet to come, also one that is still in an earlier group: ranks may have worlds of their own
    yield _hit_of_store(live, world, at, waited_s)


def _hit_of_store(live: Live, world: World, at: Mapping[int, Endpoint], waited_s: float) -> Hit:
    most = majority(at)
    odd, usual = (most.odd, most.value) if most is not None else _not_as_given(live, at)
    own = shared(at[r] for r in odd) if odd else None
    variables = _differing(own, usual) if own is not None and usual is not None else ()
    places = [f"{named(live, world, [r])} {endpoint(*where)}" for r, where in sorted(at.items())]
    return Hit(
        culprits=Culprits(ranks=odd),
        confidence=Confidence.LIKELY if _is_other_store(live, at) else Confidence.POSSIBLE,
        values={
            "odd": named(live, world, odd) if variables else None,
            "rest": named(live, world, at.keys() - set(odd)) if odd else None,
            "variable": ", ".join(variables) or None,
            "own": endpoint(*own) if own is not None else None,
            "usual": endpoint(*usual) if usual is not None else None,
            "places": listed(places, MAX_SHOWN),
            "waited": f"{waited_s:.0f}",
        },
        evidence=tuple(
            stated(
                f"rank {rank}",
                "rank {rank} looks for the store at {place}[[, in {site}]], pid {pid}",
                rank=rank,
                place=endpoint(*where),
                site=live.ranks()[rank].site or None,
                pid=live.ranks()[rank].pid,
            )
            for rank, where in sorted(at.items())[:MAX_SHOWN]
        ),
        fault_time=clock_time(live.now_s - waited_s),
    )


def _not_as_given(live: Live, at: Mapping[int, Endpoint]) -> tuple[tuple[int, ...], Endpoint | None]:
    """On a tie those that look where their launcher did not send them, and where all others look."""
    given = {r for r in at if (place := live.ranks()[r].joins_at) is not None and place[2]}
    usual = shared(at[r] for r in given)
    return (tuple(r for r in sorted(at) if r not in given), usual) if is_tie(at) and usual is not None else ((), None)


def _differing(own: Endpoint, usual: Endpoint) -> tuple[str, ...]:
    names = ("MASTER_ADDR", "MASTER_PORT")
    return tuple(name for name, a, b in zip(names, own, usual, strict=True) if a != b)


def _is_other_store(live: Live, at: Mapping[int, Endpoint]) -> bool:
    """Whether they cannot all mean one store: another port, or a number that the machine of rank 0 does not have."""
    if len({port for _, port in at.values()}) > 1:
        return True
    first = live.node_of_rank().get(0)
    own = set(live.addresses.get(first, ())) if first is not None else set()
    return bool(own) and any(_is_foreign(host, own) for host, _ in at.values())


def _is_foreign(host: str, own: set[str]) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False  # a name, which may be another one of the same machine
    return not address.is_loopback and host not in own
