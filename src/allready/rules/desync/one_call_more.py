from collections.abc import Iterator

from allready import model
from allready.judging.majority import is_minority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.judging.stated import stated
from allready.judging.waits import TORCH

SIZE_ERRORS = (
    "truncated",
    "invalid usage",
    "collective mismatch",
    "doesn't match expected size",
    "incorrect receive info",
)
"""What libraries say when a peer's operation was another one."""


@Rule(
    code="DSY003",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.OFFLINE,
    unless=(Sign.OTHER_CALLS, Sign.PROCESS_END),
    title="One rank made more collective calls than the others",
    message="{who} made {ahead} calls in group {group} where the others made {usual}, and the library found "
    "operations that do not match",
    remedy="look for a collective that only {who} {who:calls/call} (a branch on rank, logging or evaluation on rank 0 "
    "only). A flight-recorder dump of every rank (TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1) shows the "
    "line",
)
def one_call_more(run: model.RunEvidence) -> Iterator[model.Hit]:
    """
    ## What it checks
    Numbers of launched operations (watchdog lines, RAS counters, counted log lines): a minority is ahead, all others
    are equal, and some rank reports an error of non-matching sizes or an invalid usage.
    ## Why it matters
    With one call more on one rank every later call is matched with a wrong partner.
    ## Check by hand
    Compare "last enqueued" of all ranks, or RAS's counters per operation.
    ## When it is harmless
    Ranks may run ahead of each other while everything works; without the error of sizes this is not reported.
    """
    leading = [(progress, ahead) for progress in run.progress if (ahead := _ahead(progress))]
    if not leading:
        return  # as in nearly every run, so not all lines need to be searched
    lines = [e for e in run.events if any(word in (e.text + " ".join(e.extra)).lower() for word in SIZE_ERRORS)]
    for progress, ahead in leading:
        complaints = [p.error for p in progress.positions.values() if p.error and "usage" in p.error.lower()]
        if not (lines or complaints):
            continue
        counts = {r: p.enqueued for r, p in progress.positions.items()}
        usual = min(counts.values())
        yield model.Hit(
            culprits=model.Culprits(ranks=ahead),
            values={
                "who": who(run, ahead),
                "group": progress.label or progress.group,
                "ahead": counts[ahead[0]],
                "usual": usual,
            },
            confidence=model.Confidence.LIKELY,
            evidence=(
                *(
                    stated(progress.source, "rank {rank}: {num} operations launched", rank=r, num=n)
                    for r, n in counts.items()
                ),
                *(
                    model.Evidence(source=str(e.origin), text=e.text[:400], time=model.clock_time(e.time_s))
                    for e in lines[:3]
                ),
            )[:10],
            fault_time=model.clock_time(min((e.time_s for e in lines if e.time_s is not None), default=None)),
        )
        return


def _ahead(progress: model.GroupProgress) -> tuple[int, ...]:
    """The minority that made more calls, if all others made equally many."""
    if progress.source not in {*TORCH, model.Recorder.RAS} or len(progress.positions) < 3:
        return ()
    counts = {r: p.enqueued for r, p in progress.positions.items()}
    low = min(counts.values())
    members = {*counts, *progress.members}
    ahead = tuple(sorted(r for r, n in counts.items() if n > low))
    return ahead if ahead and is_minority(len(ahead), len(members)) and len({counts[r] for r in ahead}) == 1 else ()
