from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import AFTER_AN_END_S, HangBlame, HangKind, blame_hang
from allready.judging.live_status import offset_s, status_of
from allready.judging.registry import Layer, Rule
from allready.judging.stall import StallCause, StallKind
from allready.judging.stall_live import stall_of_process
from allready.model import Confidence, FaultClass, Hit, Live, RankStatus, RemedyStep, Severity, clock_time
from allready.model.fill import UNKNOWN
from allready.model.process import ENDING_SIGNALS
from allready.rules.live._hits import hit_of, visible_s

TAKING_LEAVE = frozenset({"saving", "ending"})
ALONE_S = 2.0
"""So long the others go on: a signal to all ends them sooner."""


@Rule(
    code="LIV012",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="One rank received a termination signal; the others continue",
    message="{who} was terminated by {doing} at {since}, and no other rank was"
    "[[; {waiting} waited for it in {operation}]]",
    remedy=(
        RemedyStep(
            explanation="find who sent the signal: a scheduler that evicts, kill, a limit of that node",
            where="node {on}",
            command="journalctl --since '10 min ago' | tail -n 50; dmesg -T | tail -n 30",
        ),
        RemedyStep(explanation="to end a job, end its launcher: it tells all ranks"),
    ),
)
def rank_terminated(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that ended by SIGTERM, SIGINT or SIGHUP although the job had not been terminated, while others go on and wait
    for them; and a single one after whose end all others went on for 2 s, whether they wait for it or not.
    ## Why it matters
    Such a signal ends one rank in order, without a traceback; the others wait for it or lose their connection.
    ## Check by hand
    The scheduler's and the kernel's log of that node at that time.
    ## When it is harmless
    When the whole job was terminated: then no rank waits.
    """
    if (cause := _alone(case, live)) is not None:
        found = HangBlame(kind=HangKind.LATE, ranks=(cause.rank,), causes=(cause,), began_s=cause.began_s)
        seen_s = clock_time(cause.began_s)
        yield hit_of(
            case, found, (cause,), confidence=Confidence.LIKELY, fault_time=seen_s, values={"waiting": UNKNOWN}
        )
        return
    found = case.of(blame_hang)
    if found.kind not in {HangKind.LATE, HangKind.JOINING} or found.for_s < AFTER_AN_END_S:
        return
    gone = tuple(
        r
        for r in found.causes
        if r.kind == StallKind.LEFT and (s := status_of(live, r.rank)) is not None and s.signal is not None
    )
    others = [s for r, s in live.ranks().items() if r not in {g.rank for g in gone}]
    if not gone or all(s.signal in ENDING_SIGNALS for s in others) or any(_is_before(s, gone, live) for s in others):
        return  # all were told to end, or these were ended because somebody else had
    fault_time = clock_time(visible_s(found, gone))
    yield hit_of(case, found, gone, confidence=Confidence.LIKELY, fault_time=fault_time)


def _alone(case: Analysis, live: Live) -> StallCause | None:
    """The only rank that was terminated, where all others go on since then and none waits for it."""
    ranks = live.ranks()
    gone = [r for r, s in ranks.items() if s.is_gone]
    if len(gone) != 1 or len(ranks) < max(2, live.world_size) or ranks[gone[0]].signal not in ENDING_SIGNALS:
        return None
    if case.of(blame_hang).kind in {HangKind.LATE, HangKind.JOINING}:
        return None
    cause = stall_of_process(case, gone[0])
    is_lasting = cause.began_s is not None and live.now_s - cause.began_s >= ALONE_S
    # Who saves or ends may do so since it got the signal as well.
    return None if not is_lasting or any(s.phase in TAKING_LEAVE for s in ranks.values() if not s.is_gone) else cause


def _is_before(status: RankStatus, gone: tuple[StallCause, ...], live: Live) -> bool:
    """Whether a rank ended badly before those that were terminated."""
    if status.ended_s is None or (status.exit_code == 0 and not status.signal):
        return False
    ended_s = status.ended_s - offset_s(live, live.node_of_rank().get(status.rank))
    return any(g.began_s is not None and ended_s < g.began_s for g in gone)
