from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import AFTER_AN_END_S, HangBlame, HangKind, blame_hang
from allready.judging.live_status import named
from allready.judging.registry import Layer, Rule
from allready.judging.stall import StallCause, StallKind
from allready.judging.stall_live import stall_of_process
from allready.judging.stop_signals import LEAVES_WITHIN_S, StopSignal, ended_by, sent_number, stop_signal
from allready.model import HOSTS, Confidence, FaultClass, Hit, Live, RemedyStep, Severity, World, clock_time
from allready.rules.live._hits import hit_of, visible_s

ALONE_S = 2.0
"""So long the others go on: a signal to all ends them sooner."""


@Rule(
    code="LIV012",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="Some ranks were ended by a termination signal, others were not",
    message="{who} {who:was/were} terminated by {doing} at {since}[[; {spared} did not get it]]"
    "[[; {waiting} waited for {who:it/them} in {operation}]]",
    remedy=(
        RemedyStep(
            explanation="find who sent the signal: a scheduler that evicts, kill, a limit of that node",
            each=HOSTS,
            where="{on}",
            command="journalctl --since '10 min ago' | tail -n 50; dmesg -T | tail -n 30",
        ),
        RemedyStep(shared="note_senders"),
        RemedyStep(shared="noted_senders"),
        RemedyStep(explanation="to end a job, end its launcher: it tells all ranks"),
    ),
)
def rank_terminated(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that ended by SIGTERM, SIGINT or SIGHUP although the job had not been terminated, while others, which such a
    signal would have ended as well, wait for them, or go on for 2 s.  Who handles the signal may have got it and work
    on, that it lives tells nothing; Python handles SIGINT.  Where all others handle it: ranks that it
    ended with exit code 0, which ends no job, and that others, in no handler, wait for 5 s later.
    ## Why it matters
    Such a signal ends one rank in order, without a traceback; the others wait for it or lose their connection.
    ## Check by hand
    The scheduler's and the kernel's log of that node at that time.
    ## When it is harmless
    When the whole job was terminated: then no rank is left out.
    """
    signal = stop_signal(live.statuses.values())
    if signal is None or not (signal.spared or _is_outlived(live, signal)):
        return
    spared = {
        "spared": named(live, world, signal.spared) if signal.spared else None,
        "signal_number": sent_number(signal.signal),
    }
    if signal.spared and (causes := _not_awaited(case, live, signal)):
        found = HangBlame(kind=HangKind.LATE, ranks=signal.ranks, causes=causes, began_s=causes[0].began_s)
        seen_s = clock_time(found.began_s)
        values = {"waiting": None, "doing": signal.signal, **spared}
        yield hit_of(case, found, causes, confidence=Confidence.LIKELY, fault_time=seen_s, values=values)
        return
    found = case.of(blame_hang)
    if found.kind not in {HangKind.LATE, HangKind.JOINING} or found.for_s < AFTER_AN_END_S:
        return
    gone = tuple(r for r in found.causes if r.kind == StallKind.LEFT and r.rank in signal.ranks)
    if not gone:
        return
    fault_time = clock_time(visible_s(found, gone))
    values = {**spared, "doing": signal.signal}  # also where a handler of it ended with an exit code
    yield hit_of(case, found, gone, confidence=Confidence.LIKELY, fault_time=fault_time, values=values)


def _is_outlived(live: Live, signal: StopSignal) -> bool:
    """Whether ranks that handle the signal live on as if it had not come, for longer than they needed to react to it.

    Where a rank ended with another code, its launcher ends the others.
    """
    ranks = live.ranks()
    ends_none = all(ranks[r].exit_code == 0 for r in signal.ranks)
    others = [s for r, s in ranks.items() if r not in signal.ranks and not s.is_gone]
    is_old = live.now_s - signal.first_s >= LEAVES_WITHIN_S
    return ends_none and is_old and not signal.unsure and bool(others) and not any(ended_by(s) for s in others)


def _not_awaited(case: Analysis, live: Live, signal: StopSignal) -> tuple[StallCause, ...]:
    """Those that were terminated, where no rank waits for them: the others go on since then, or failed because of it;
    none has come to a good end."""
    ranks = live.ranks()
    if len(ranks) < max(2, live.world_size) or any(s.exit_code == 0 for s in ranks.values()):
        return ()
    if case.of(blame_hang).kind in {HangKind.LATE, HangKind.JOINING}:
        return ()
    goes_on = any(not ranks[r].is_gone for r in signal.spared)
    is_early = signal.unsure or (goes_on and live.now_s - signal.first_s < ALONE_S)
    return () if is_early else tuple(stall_of_process(case, r) for r in signal.ranks)
