"""Whether a run is in a situation in which a warning is the verdict; the warning's rule names the situation."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.arbiter import is_error
from allready.judging.layers import Layer
from allready.judging.processes import OF_START
from allready.judging.registry import Rule
from allready.model import Confidence, Finding, Raised, Role, RunEvidence, Severity, Situation
from allready.signatures import load

MAX_BEHIND = 40
"""Lines that may stand behind the last output: others' warnings, a shell's prompt, a scheduler's report."""

MAX_BEHIND_A_CLUE = 3
"""The same, where the rule does not say that its lines can be the verdict."""

MAX_FIRST_CALLS = 3
"""A job that makes no progress from the beginning is in the first operations of its communicators."""


class SituationSign(Struct, frozen=True):
    """How a situation is seen, for a finding of a rule; how sure a verdict can be by it, and why it is one."""

    holds: Callable[[Finding, Rule, RunEvidence], bool]
    max_confidence: Confidence
    reason: str


def _has_progress(run: RunEvidence) -> bool:
    return any(closing.progress_line is not None for closing in run.closings)


def _got_nowhere(run: RunEvidence) -> bool:
    """Whether ranks on several nodes are seen, and nothing shows that they made progress or ended well."""
    nodes = max((p.num_nodes or 0 for p in run.processes), default=0)
    is_across_nodes = max(nodes, len(set(run.node_of_rank.values()))) > 1
    return is_across_nodes and not run.ended_well and not _has_progress(run)


def _waits_at_start(run: RunEvidence) -> bool:
    """Whether some communicator was begun, and none of the whole job was completed."""
    comms = [c for p in run.processes for c in p.comms if c.nranks == run.expected_ranks]
    return any(c.init_started for c in comms) and not any(c.init_completed for c in comms)


def _is_in_first_calls(run: RunEvidence) -> bool:
    """Whether every rank that is seen made calls, as many as the others, and no more than a few."""
    numbers = {sum(p.op_counts.values()) for p in run.processes if p.rank is not None}
    return len(numbers) == 1 and 0 < numbers.pop() <= MAX_FIRST_CALLS


def _no_start(finding: Finding, rule: Rule, run: RunEvidence) -> bool:
    del finding, rule
    return _got_nowhere(run) and _waits_at_start(run)


def _first_calls(finding: Finding, rule: Rule, run: RunEvidence) -> bool:
    del finding, rule
    return _got_nowhere(run) and (_waits_at_start(run) or _is_in_first_calls(run))


def _last_words(finding: Finding, rule: Rule, run: RunEvidence) -> bool:
    """Whether its lines are among the last ones of each log that has any, behind all progress: what a job prints while
    it waits stands last in its log when it waits for ever.

    What is reported of a start stands at a job's end as well, when the first process has gone.
    """
    if run.ended_well or (finding.fault_class in OF_START and _has_progress(run)):
        return False
    lines: dict[str, int] = {}
    for event in run.events:
        if event.signature == rule.signature:
            lines[event.origin.source] = max(lines.get(event.origin.source, 0), event.origin.line or 0)
    num_lines = {source.path: source.num_lines for source in run.sources}
    behind = MAX_BEHIND if rule.raised is not None else MAX_BEHIND_A_CLUE
    went_on = any(c.progress_line is not None and c.progress_line > lines.get(c.origin.source, 0) for c in run.closings)
    return (
        not went_on
        and not any(c.init_completed for p in run.processes for c in p.comms)
        and all(line > num_lines.get(source, 0) - behind for source, line in lines.items())
    )


SITUATIONS: Mapping[Situation, SituationSign] = {
    Situation.NO_START: SituationSign(
        _no_start, Confidence.LIKELY, "communicators across nodes were begun, and none was completed"
    ),
    Situation.FIRST_CALLS: SituationSign(_first_calls, Confidence.LIKELY, "no rank got beyond its first operations"),
    Situation.ENDED_FROM_OUTSIDE: SituationSign(
        lambda *_: True, Confidence.POSSIBLE, "the run was ended from outside, and nothing else is wrong with it"
    ),
    Situation.LAST_WORDS: SituationSign(_last_words, Confidence.POSSIBLE, "its log ends with it"),
}
"""Situation -> what it means."""

ROUNDS = ((Situation.NO_START, Situation.FIRST_CALLS), (Situation.ENDED_FROM_OUTSIDE,), (Situation.LAST_WORDS,))
"""The order in which they are looked for; of findings of one round the first is raised."""


_SAY_NOTHING = {Layer.READINESS, Layer.PACE, Layer.ECHO}
"""What differs, or makes a job slow, ends none."""

_CLUE = Raised(where=Situation.LAST_WORDS)


def situation_of(rule: Rule) -> Raised | None:
    """When a finding of the rule becomes the verdict: as it declares; else, where it reads lines that tell a first
    cause, when they are the last that is left of the job."""
    if rule.raised is not None or not rule.signature or rule.layer in _SAY_NOTHING:
        return rule.raised
    return _CLUE if load()[rule.signature].role is Role.ROOT else None


def raised(finding: Finding, rule: Rule, run: RunEvidence) -> Finding | None:
    """The finding as an error, where the run is in the situation that its rule names.

    Not a line that is an echo in this run: then it is less severe than its rule says.  Where the rule names none, a
    warning counts that its rule would have as an error: nothing else is left that could explain the end.
    """
    wanted = situation_of(rule)
    if wanted is None or is_error(finding) or run.closing is not None:
        return None
    meaning = SITUATIONS[wanted.where]
    least = rule.severity if rule.raised is not None else Severity.WARNING
    is_meant = finding.severity.weight >= least.weight and all(
        finding.values.get(name) in values for name, values in wanted.values.items()
    )
    if not is_meant or not meaning.holds(finding, rule, run):
        return None
    return replace(
        finding,
        severity=Severity.ERROR,
        fault_class=wanted.fault_class or finding.fault_class,
        confidence=min(finding.confidence, meaning.max_confidence, key=lambda c: c.weight),
    )
