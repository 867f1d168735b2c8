from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.live_status import asleep_s, is_idle, named, same_place_s, since_operation_s
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import grouped
from allready.model import FaultClass, Hit, Live, RankStatus, RemedyStep, Severity, World, clock_time
from allready.model.live import STILL_S
from allready.rules.live._hits import key_phrase

NO_KEY_S = 10.0
"""In place of `STILL_S` where all wait for one key of a store: none of them is left to set it."""
RARE = 10.0
"""Ranks that go from line to line may compute: so many times --hang-after without an operation is reported."""
TELL_WHY = {"evaluating", "saving", "loading", "compiling", "importing"}
"""Phases that may make no operation for long."""
OPEN = {HangKind.NONE, HangKind.LEVEL, HangKind.INSIDE, HangKind.PARTIAL, HangKind.ALL_WAIT}
"""Where nothing says who is missing."""
NOT_YET = {"starting", "importing", "compiling", "ending"}
"""What may rightly take so long, as long as it uses a processor."""
MAX_PLACES = 3


@Rule(
    code="LIV014",
    severity=Severity.WARNING,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    title="No rank has made progress for 40 s",
    message="[[no rank has made progress for {seconds} s|no rank has begun an operation for {quiet} s, {times} times "
    "--hang-after, though all compute|no rank has made progress]]: {places}[[; each {awaited}]][[; {ended} had ended "
    "with exit code 0]]",
    remedy=(
        RemedyStep(
            explanation="compare their stacks in the report folder with new ones: frames that change are work; GPUs "
            "that compute show it in nvidia-smi. If a long step is intentional (saving, evaluation, a first batch), "
            "nothing is wrong"
        ),
        RemedyStep(shared="stack"),
    ),
)
def nothing_moves(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That for 40 s no rank finished an operation and none left the line of the program that it stands in, while nothing
    shows who is missing: all ranks sleep, spin, wait for a GPU that does not answer, or are in the same call.  At the
    start, where imports and compilers take long, only ranks that use no processor count; so do ranks whose line nothing
    shows, as of a program that is not Python's, with all of their children.  Of ranks that are
    ending others may have ended with exit code 0: JAX waits for them for minutes.  Ranks that go from line to line are
    reported after ten times --hang-after without any operation, unless one of them evaluates, saves, loads or compiles;
    ranks that all wait for one key of a store after 10 s.
    ## Why it matters
    A job that stands on all ranks at once has no late rank that could be named, and no time-out notices it as long as
    no rank waits in a collective.
    ## Check by hand
    `py-spy dump --pid PID` of any rank, twice.
    ## When it is harmless
    Where one line of the program takes so long on purpose.  It stays a warning, and is withdrawn when a rank makes
    progress.
    """
    ranks = live.ranks()
    living = {r: s for r, s in ranks.items() if not s.is_gone}
    ended = [r for r, s in ranks.items() if s.is_gone and s.exit_code == 0 and not s.signal]
    if not living or len(living) + len(ended) < max(live.world_size, len(ranks)):
        return
    if ended and not all(s.phase == "ending" for s in living.values()):
        return  # the last one may save what all have made
    if case.of(blame_hang).kind not in OPEN:
        return
    if any(s.is_frozen or (_has_not_begun(s) and not is_idle(live, r)) for r, s in living.items()):
        return
    still_s = min(max(same_place_s(live, r), asleep_s(live, r)) for r in living)
    quiet_s = min(since_operation_s(live, r) for r in living)
    is_rare = quiet_s >= RARE * live.hang_after_s and all(_computes(s) for s in living.values())
    awaited = key_phrase(live, living)
    is_still = still_s >= (STILL_S if awaited is None else NO_KEY_S)
    if not is_still and not is_rare:
        return
    places = grouped((s.site, r) for r, s in living.items())
    shown = sorted(places.items(), key=lambda place: (-len(place[1]), place[1]))
    texts = [
        f"{named(live, world, who)} @ {site}" if site else named(live, world, who) or ""
        for site, who in shown[:MAX_PLACES]
    ]
    yield Hit(
        fault_class=None if awaited is None else FaultClass.DESYNC_FLOW,
        values={
            "seconds": f"{still_s:.0f}" if is_still else None,
            "quiet": None if is_still else f"{quiet_s:.0f}",
            "times": None if is_still else f"{quiet_s / live.hang_after_s:.0f}",
            "places": "; ".join(texts) + ("; …" if len(shown) > MAX_PLACES else ""),
            "awaited": awaited or None,
            "ended": named(live, world, ended) if ended else None,
        },
        evidence=tuple(
            stated(
                f"rank {rank}",
                "rank {rank}: [[{phase} at {site}, |{phase}, ]]pid {pid}",
                rank=rank,
                phase=status.phase if status.heartbeat_age_s is not None else None,
                site=status.site or None,
                pid=status.pid,
            )
            for rank, status in sorted(living.items())[:8]
        ),
        fault_time=clock_time(live.now_s - (still_s if is_still else quiet_s)),
    )


def _computes(status: RankStatus) -> bool:
    return status.phase not in TELL_WHY and all(g.waiting_s is None for g in status.groups)


def _has_not_begun(status: RankStatus) -> bool:
    return status.phase in NOT_YET or not (status.num_operations or status.framework == "jax")
