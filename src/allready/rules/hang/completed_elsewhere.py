"""HNG012."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.layers import Layer
from allready.judging.mismatch import described
from allready.judging.onset import onset
from allready.judging.registry import Applies, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, RunEvidence, Severity, clock_time


@Rule(
    code="HNG012",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    since="0.1",
    layer=Layer.DESYNC,
    applies=Applies.OFFLINE,
    unless=(Sign.OTHER_CALLS,),
    title="Ranks waited in an operation that others came out of",
    message="{who} waited in {operation} (number {seq} of group {group}), which {others} had completed, by then in "
    "number {later}: they did not make the same calls",
    remedy="find the first call that differs: give allready flight-recorder dumps of all ranks "
    "(TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1), or run with TORCH_DISTRIBUTED_DEBUG=DETAIL. Look for a "
    "branch on rank or data, batches of different numbers or lengths, parameters that only some ranks use",
)
def completed_elsewhere(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Watchdog lines of one group: a rank waited a whole time-out in an operation that nobody leaves before everybody has
    entered it, while another rank went through that number and the next.
    ## Why it matters
    One order of calls per group, by number: the two ranks' operations were not the same ones, whatever their names.
    Nobody stayed away, and neither the network nor the time-out is at fault.
    ## Check by hand
    `last enqueued` and `last completed` of all ranks, and the kind of operation with each number.
    ## When it is harmless
    Never.  Which of the two is out of step cannot be seen in their last lines, so nobody is accused.
    """
    found = case.of(blame_hang)
    wait = found.wait
    if found.kind != HangKind.APART or wait is None or wait.progress is None:
        return
    stuck = min(wait.elsewhere.values(), key=lambda o: o.seq)
    yield Hit(
        culprits=Culprits(),
        values={
            "who": who(run, found.ranks),
            "operation": described(stuck),
            "seq": stuck.seq,
            "group": wait.label or wait.group,
            "others": who(run, wait.waiting),
            "later": wait.operation.seq,
        },
        confidence=Confidence.LIKELY,
        evidence=tuple(
            Evidence(
                source=str(p.origin) if p.origin else wait.source,
                text=f"rank {r}: last completed {p.completed}, gave up in "
                + (f"{p.stuck.name} #{p.stuck.seq}" if p.stuck is not None else "none"),
                time=clock_time(p.time_s),
            )
            for r in (*sorted(wait.elsewhere)[:4], *wait.waiting[:4])
            for p in (wait.progress.positions[r],)
        ),
        fault_time=clock_time(onset(run)),
    )
