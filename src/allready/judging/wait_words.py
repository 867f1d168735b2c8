"""How sentences tell of a wait: the call, how many ranks wait in it, and for how long."""

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.hang import HangBlame
from allready.judging.mismatch import described
from allready.judging.stated import said
from allready.judging.waits import TORCH, Wait
from allready.model import Operation, Phrase, RunEvidence
from allready.signatures.watchdog import TIMEOUTS

WORLD = {"0", "default_pg"}
"""torch's names of the group of all ranks."""


def call_of(
    run: RunEvidence, wait: Wait, operation: Operation | None = None, *, with_arguments: bool = False
) -> Phrase | str:
    """`all_reduce #12`, `all_reduce [32] float32 #12 (TP, train.py:40 step)`: `operation`, else what they wait in."""
    operation = operation or wait.operation
    if not operation.name and not with_arguments:
        return said("operation #{seq}[[ ({group})]]", seq=operation.seq, group=group_name(run, wait) or None)
    text = f"{described(replace(operation, site=None))} #{operation.seq}" if with_arguments else operation.numbered
    group = group_name(run, wait)
    known = [str(part) for part in (group, operation.site if with_arguments else None) if part]
    return text + (f" ({', '.join(known)})" if known else "")


def group_name(run: RunEvidence, wait: Wait) -> str:
    """The name of the group where it tells something: there are several, or it is not that of all ranks."""
    if not wait.progress.is_named:
        return ""
    has_others = len({p.label or p.group for p in run.progress if p.source == wait.source}) > 1
    return wait.called if has_others or wait.called not in WORLD else ""


def waited_s(case: Analysis, found: HangBlame) -> str | None:
    """For how long they have waited, in seconds, or had when they gave up; None where nothing tells."""
    if case.live is not None:
        for_s = found.for_s
    else:
        for_s = _gave_up_after_s(case.run, found.wait) if found.wait is not None else 0.0
    return f"{max(1.0, for_s):.0f}" if for_s or found.waiting else None


def _gave_up_after_s(run: RunEvidence, wait: Wait) -> float:
    """The longest that a watchdog tells of one of them in this operation."""
    ran_ms = (
        e.values.get("ran_ms", "")
        for e in run.events
        if e.signature in TIMEOUTS
        and e.origin.rank in wait.waiting
        and (wait.source not in TORCH or e.values.get("seq") == str(wait.operation.seq))
    )
    return max((int(ms) / 1000 for ms in ran_ms if ms.isdecimal()), default=0.0)
