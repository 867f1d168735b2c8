"""LIV011."""

from collections.abc import Iterator

from allready.model import Aftermath, Confidence, Culprits, Evidence, FaultClass, Hit, Live, Severity, World, clock_time
from allready.rules._live import mark_of, named
from allready.rules.live._decide import decide
from allready.rules.live._say import LEAST_WAIT_S, common, fill, told
from allready.rules.registry import Rule


@Rule(
    code="LIV011",
    severity=Severity.ERROR,
    fault_class=FaultClass.HW_HANG,
    since="0.1",
    depth=28,
    title="A rank's GPU has not begun the operation that all ranks have launched",
    message="all ranks launched {operation}, and the GPU of {who} has not begun it since {waits_since}: it is held "
    "up by earlier work (a kernel that does not end)",
    remedy="look at the GPU of {who}: `nvidia-smi -q -d PERFORMANCE,PAGE_RETIREMENT`, Xid lines in `dmesg -T`; the "
    "kernel that it runs is seen with `cuda-gdb -p {pid}` or with CUDA_LAUNCH_BLOCKING=1 in a second run. Reset or "
    "replace the GPU if it does not end",
)
def gpu_behind(live: Live, world: World, after: Aftermath | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    The recorder tells apart operations that were launched, begun on the GPU and completed.  Where all ranks launched
    the same one and only some have begun it, the others' GPUs are still at something else.
    ## Why it matters
    Seen from the CPU every rank is in the collective; only the GPU shows who is not.
    ## Check by hand
    `started` against `enqueued` in the flight-recorder dumps of all ranks.
    ## When it is harmless
    When the GPU has a lot of own work before the operation: until --hang-after it is told as waiting only.
    """
    decision = decide(live, after)
    if decision.kind != "level" or decision.wait is None or decision.for_s < LEAST_WAIT_S:
        return
    seq = decision.wait.operation.seq
    marks = {r: m for r in decision.waiting if (m := mark_of(live, r, decision.wait.group)) is not None}
    if any(m.started is None or m.started < 0 for m in marks.values()):
        return
    behind = tuple(sorted(r for r, m in marks.items() if (m.started or 0) < seq))
    if not behind or len(behind) >= len(marks):
        return
    too_long = decision.for_s >= min(live.hang_after_s, 5.0 + 3 * max(_period(live, r) for r in behind))
    values = common(live, world, decision, ())
    yield Hit(
        culprits=Culprits(ranks=behind),
        values={
            **fill(values, "operation", "waits_since"),
            "who": named(live, world, behind),
            "pid": live.ranks()[behind[0]].pid or "?",
        },
        severity=None if too_long else Severity.WARNING,
        confidence=Confidence.LIKELY if len(behind) < len(marks) / 2 or len(behind) == 1 else Confidence.POSSIBLE,
        evidence=(
            *(Evidence(source=f"rank {r}", text=f"launched {m.enqueued}, begun {m.started}, completed {m.completed}")
              for r, m in sorted(marks.items())[:8]),
            *told(live, decision, ()),
        )[:12],
        fault_time=clock_time(decision.began_s),
    )  # fmt: skip


def _period(live: Live, rank: int) -> float:
    return live.ranks()[rank].period_s or 0.0
