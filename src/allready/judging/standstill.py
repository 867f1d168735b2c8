"""A warning that becomes the verdict: the job visibly did not make progress, and nothing else explains it."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from allready.judging.arbiter import is_error
from allready.judging.causes import Ender
from allready.model import Confidence, FaultClass, Finding, RunEvidence, Severity

MAX_BEHIND = 40
"""Lines that may stand behind the last output: others' warnings, a shell's prompt, a scheduler's report."""

MAX_FIRST_CALLS = 3
"""A job that makes no progress from the beginning is in the first operations of its communicators."""


def with_standstill(findings: Sequence[Finding], run: RunEvidence) -> tuple[Finding, ...]:
    """The findings, the first warning that fits the standstill raised to an error at "likely".

    Only where no finding is an error, no log shows progress or a good end, and ranks on several nodes are seen before
    or in their first operations.
    """
    if any(map(is_error, findings)) or run.closing is not None or run.ended_well or _has_progress(run):
        return tuple(findings)
    for at, finding in enumerate(findings):
        fits = FITTING.get(finding.code)
        if finding.severity is Severity.WARNING and fits is not None and fits(run):
            raised = replace(
                finding,
                severity=Severity.ERROR,
                fault_class=CLASS_OF_STANDSTILL.get(finding.code, finding.fault_class),
                confidence=min(finding.confidence, Confidence.LIKELY, key=lambda c: c.weight),
            )
            return (*findings[:at], raised, *findings[at + 1 :])
    return tuple(findings)


def with_ending(findings: Sequence[Finding], run: RunEvidence) -> tuple[Finding, ...]:
    """The findings, that of who ended the job from outside raised to an error at "possible".

    Only where no finding is an error and no log has a good end: a cancelled job has no other fault.
    """
    if any(map(is_error, findings)) or run.closing is not None:
        return tuple(findings)
    for at, finding in enumerate(findings):
        if finding.code in ENDED_FROM_OUTSIDE and ENDED_FROM_OUTSIDE[finding.code](finding):
            raised = replace(finding, severity=Severity.ERROR, confidence=Confidence.POSSIBLE)
            return (*findings[:at], raised, *findings[at + 1 :])
    return tuple(findings)


def with_last_words(findings: Sequence[Finding], run: RunEvidence) -> tuple[Finding, ...]:
    """The findings, a warning that nothing followed raised to an error at "possible".

    Only where no finding is an error, no communicator was completed, and no log shows a good end, or progress behind
    the warning: what a job says while it waits stands last in its log when it waits for ever.
    """
    if any(map(is_error, findings)) or run.closing is not None or run.ended_well:
        return tuple(findings)
    for at, finding in enumerate(findings):
        lines = LAST_WORDS.get(finding.code)
        if finding.fault_class.startswith("START") and _has_progress(run):
            continue  # the job had started: this is reported at its end, when the first process has gone
        if finding.severity is Severity.WARNING and lines is not None and _stands_last(lines, run):
            raised = replace(finding, severity=Severity.ERROR, confidence=Confidence.POSSIBLE)
            return (*findings[:at], raised, *findings[at + 1 :])
    return tuple(findings)


def _stands_last(signature: str, run: RunEvidence) -> bool:
    """Whether its lines are among the last ones of each log that has any, behind all progress."""
    lines: dict[str, int] = {}
    for event in run.events:
        if event.signature == signature:
            lines[event.origin.source] = max(lines.get(event.origin.source, 0), event.origin.line or 0)
    num_lines = {source.path: source.num_lines for source in run.sources}
    went_on = any(c.progress_line is not None and c.progress_line > lines.get(c.origin.source, 0) for c in run.closings)
    return (
        not went_on
        and not any(c.init_completed for p in run.processes for c in p.comms)
        and all(line > num_lines.get(source, 0) - MAX_BEHIND for source, line in lines.items())
    )


def _has_progress(run: RunEvidence) -> bool:
    return any(closing.progress_line is not None for closing in run.closings)


def _is_across_nodes(run: RunEvidence) -> bool:
    nodes = max((p.num_nodes or 0 for p in run.processes), default=0)
    return max(nodes, len(set(run.node_of_rank.values()))) > 1


def _waits_at_start(run: RunEvidence) -> bool:
    """Whether some communicator was begun, and none of the whole job was completed."""
    comms = [c for p in run.processes for c in p.comms if c.nranks == run.expected_ranks]
    return any(c.init_started for c in comms) and not any(c.init_completed for c in comms)


def _is_in_first_calls(run: RunEvidence) -> bool:
    """Whether every rank that is seen made calls, as many as the others, and no more than a few."""
    numbers = {sum(p.op_counts.values()) for p in run.processes if p.rank is not None}
    return len(numbers) == 1 and 0 < numbers.pop() <= MAX_FIRST_CALLS


def _is_unreachable(run: RunEvidence) -> bool:
    return _is_across_nodes(run) and _waits_at_start(run)


def _disagrees(run: RunEvidence) -> bool:
    return _is_across_nodes(run) and (_waits_at_start(run) or _is_in_first_calls(run))


LAST_WORDS: Mapping[str, str] = {
    "STO006": "store.connect_failed",
    "JAX017": "jax.rendezvous_stuck",
    "JAX025": "jax.coordinator_unreachable",
    "JAX035": "jax.backend_waits",
    "LCH020": "launcher.kubernetes_restarting",
    "LCH032": "launcher.horovod_stalled",
    "LCH065": "launcher.module_unknown",
    "LCH066": "launcher.program_says_why",
}
"""Code of a warning that explains why a log ends with it -> its signature."""

FITTING: Mapping[str, Callable[[RunEvidence], bool]] = {
    "NLG004": _is_unreachable,  # an interface that other nodes cannot reach
    "FAB002": _disagrees,  # plain sockets on some ranks
    "FAB004": _disagrees,  # settings of NCCL that must be equal
}
"""Code of a warning -> whether the standstill is one that it brings about."""

CLASS_OF_STANDSTILL = {"FAB002": FaultClass.ENV_MISMATCH}
"""What is only slow where it works, and keeps a job from starting where it does not."""

ENDED_FROM_OUTSIDE: Mapping[str, Callable[[Finding], bool]] = {
    "LCH008": lambda finding: finding.values.get("what") in {"JOB", "STEP"},  # cancelled, and nothing says why
    "DTH006": lambda finding: finding.values.get("by") in {Ender.KEYBOARD, Ender.SHELL, Ender.SESSION},
}
"""Code of a line on the end -> whether it says that a scheduler ended the job.  A signal to torchrun alone says less:
a person who watches a job that hangs sends one as well; SIGHUP is the end of the terminal or the SSH session."""
