from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.live_status import named, place_since_s
from allready.judging.places import num_ranks
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.standing_stray import standing_stray
from allready.judging.stated import stated
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Live,
    RemedyStep,
    Severity,
    StrayProof,
    World,
    clock_time,
)

MAX_SHOWN = 4


@Rule(
    code="LIV019",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.LIVE,
    explains=("LIV007",),
    title="A rank left the pattern of its sends and receives",
    message="{who} left the pattern of its sends and receives: [[it called {made} where its own loop had {loop} until "
    "then|it called another operation where its own loop had {loop} until then|it called {made} where the order of the "
    "others has {theirs}|it called another operation where the order of the others has {theirs}|it made {num_made} "
    "calls of {missing}, and the others {num_usual} of theirs]][[; {waiting} waited {waited} s]]",
    remedy=RemedyStep(
        explanation="every send needs its recv on the other rank, with the same tag and in the same order: look for a "
        "branch, an early continue or a caught exception between [[{site}|these calls]] and the call before"
    ),
)
def stray_exchange(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The sends and receives of every rank, which the beacon notes with peer, tag and line, once all ranks that run have
    stood in a call that waits for others for 2 s, or have ended: who called another one than its own loop had until
    then, while all others kept to theirs; in the first iterations, who names another peer or tag than all others at the
    same line, or has another order of calls than the stages that make the same ones; at the end, who made one fewer
    than all others.
    ## Why it matters
    A send that is left out stops another rank, often iterations later, and its timeout names the rank that waits.
    ## Check by hand
    Print rank, peer and tag before each send and recv, and compare the lines of the ranks that the message names.
    ## When it is harmless
    When another thread of a rank makes the missing half.
    """
    stray = case.of(standing_stray)
    ranks = live.ranks()
    if stray is None:
        return
    others = tuple(r for r, s in ranks.items() if r != stray.rank and not s.is_gone)
    since = [t for r in others if (t := place_since_s(live, r)) is not None]
    is_loop = stray.proof is StrayProof.LOOP
    shown = stray.made or stray.usual
    yield Hit(
        culprits=Culprits(ranks=(stray.rank,)),
        confidence=Confidence.LIKELY,
        values={
            "who": named(live, world, (stray.rank,)),
            "made": stray.made,
            "loop": stray.usual if is_loop else None,
            "theirs": stray.usual if stray.proof is StrayProof.RANKS else None,
            "missing": stray.usual,
            "num_made": stray.num_made,
            "num_usual": stray.num_usual,
            "site": shown.site if shown is not None else None,
            "waiting": num_ranks(others) if others else None,
            "waited": f"{live.now_s - max(since):.0f}" if since else None,
        },
        evidence=tuple(
            stated(f"rank {rank}", "rank {rank} waits: {phase} at {site}", rank=rank, phase=s.phase, site=s.site)
            for rank in (stray.rank, *others)[:MAX_SHOWN]
            if (s := ranks[rank]).site and not s.is_gone
        ),
        fault_time=clock_time(max(since)) if since else None,
    )
