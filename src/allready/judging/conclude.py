"""From findings to the verdict: one sequence of steps for every command, each of which can say what it did and why.

Rules are asked before it (`engine.judge`), the report is built after it (`report_builder`).  docs/verdict-order.md
explains the steps.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.arbiter import Change, Rules, explain_order, in_order, is_error
from allready.judging.differences import Differences, explained_by
from allready.judging.latch import VerdictLatch
from allready.judging.layers import Layer
from allready.judging.raised import ROUNDS, SITUATIONS, raised, situation_of
from allready.judging.report_builder import keep_first_detection, verdict_of
from allready.judging.watched import with_live
from allready.model import Confidence, Finding, Report, RunEvidence, Severity, Status, Verdict

log = logging.getLogger(__name__)


class Conclusion(Struct, frozen=True, kw_only=True):
    """Findings, the verdict's first, and what the steps did to them.  `status`: only of a report that is concluded
    once more."""

    findings: tuple[Finding, ...]
    verdict: Verdict | None = None
    status: Status | None = None
    changes: tuple[Change, ...] = ()


class Running(Struct, frozen=True, kw_only=True):
    """A job that runs.

    `standing`: its verdict so far; this judgement changes it.  `wall_s`: of this judgement; `visible_s`: as
    `VerdictLatch.take` has it.  `is_over_it`: the job goes on in spite of what was found before.
    """

    standing: VerdictLatch
    wall_s: float
    visible_s: Mapping[Layer | None, float] = {}
    is_over_it: bool = False


class Known(Struct, frozen=True, kw_only=True):
    """What is known besides the findings.  A step whose part is missing does nothing.

    `rules`: by code, those of all findings.  `now`: the moment of judging.  `visible_since`: when a fault could first
    be seen.  `previous`: the verdict of the judgement before.  `traffic`: findings about the connections of a check's
    ranks.  `watched`: reports of `allready run` on the job.  `run`: what a run that is over left.  `running`: of a job
    that runs.  `differences`: what its nodes' facts show.  `earlier`: of a node that has lost node 0, the report that
    it had before.
    """

    rules: Rules
    now: datetime | None = None
    visible_since: datetime | None = None
    previous: Verdict | None = None
    traffic: Sequence[Finding] = ()
    watched: Sequence[Report] = ()
    run: RunEvidence | None = None
    running: Running | None = None
    differences: Differences | None = None
    earlier: Report | None = None


Step = Callable[[Conclusion, Known], Conclusion]


def _traffic(done: Conclusion, known: Known) -> Conclusion:
    """Findings about the connections of a check's ranks take their places in the order."""
    if not known.traffic:
        return done
    return replace(done, findings=in_order([*done.findings, *known.traffic], known.rules))


def _watched(done: Conclusion, known: Known) -> Conclusion:
    """Files hold one moment; what `allready run` saw while the ranks lived counts more."""
    if not known.watched:
        return done
    findings, changes = with_live(done.findings, known.watched, known.rules)
    return replace(done, findings=in_order(findings, known.rules), changes=(*done.changes, *changes))


def _raised(done: Conclusion, known: Known) -> Conclusion:
    """Where no finding of a run that is over is an error, the first that fits the situation becomes one; also where
    the errors only say that ranks waited, and not why."""
    errors = [f for f in done.findings if is_error(f)]
    if known.run is None or (errors and not _is_unexplained_wait(errors[0], known.rules)):
        return done
    for situations in ROUNDS:
        for at, finding in enumerate(done.findings):
            rule = known.rules[finding.code]
            wanted = situation_of(rule)
            if wanted is None or wanted.where not in situations:
                continue
            if errors and not rule.layer.explains(known.rules[errors[0].code].layer):
                continue
            new = raised(finding, rule, known.run)
            if new is not None:
                found = (*done.findings[:at], new, *done.findings[at + 1 :])
                state = "ranks waited, and nothing accuses one" if errors else "no finding is an error"
                why = f"{state}, and {SITUATIONS[wanted.where].reason}"
                change = Change("raised", finding.code, f"from {finding.severity} to {new.severity}", why)
                return replace(done, findings=in_order(found, known.rules), changes=(*done.changes, change))
    return done


def _is_unexplained_wait(finding: Finding, rules: Rules) -> bool:
    """Whether all that it says is that ranks were inside an operation, and for whom they waited is not known."""
    layer = rules[finding.code].layer
    return layer is Layer.TRANSPORT and finding.confidence is Confidence.POSSIBLE and not finding.culprits


def _verdict(done: Conclusion, known: Known) -> Conclusion:
    """The first error is the verdict; of a job that runs, the one that stands."""
    running = known.running
    if running is None:
        if known.now is None:
            return done
        first = verdict_of(done.findings, now=known.now, visible_since=known.visible_since)
        return replace(done, verdict=keep_first_detection(first, known.previous))
    standing = running.standing
    if running.is_over_it:
        standing.clear()
    standing.take(done.findings, wall_s=running.wall_s, visible_s=running.visible_s)
    changes = () if standing.change is None else (standing.change,)
    return replace(
        done, findings=standing.among(done.findings), verdict=standing.verdict, changes=(*done.changes, *changes)
    )


def _differences(done: Conclusion, known: Known) -> Conclusion:
    """What differs between the nodes of a job is shown beside its own findings, and explains a job that does not
    connect, or that shows nothing else."""
    if known.differences is None:
        return done
    return _shown_beside(_explained(done, known.differences), known.differences)


def _explained(done: Conclusion, differences: Differences) -> Conclusion:
    found = explained_by(done.verdict, differences)
    if found is None or done.verdict is None:
        return done
    cause, verdict = found
    why = f"it is why the nodes do not connect, which is all that {done.verdict.code} says"
    change = Change("differences", cause.code, f"instead of {done.verdict.code}", why)
    return replace(done, verdict=verdict, findings=(cause, *done.findings), changes=(*done.changes, change))


def _shown_beside(done: Conclusion, differences: Differences) -> Conclusion:
    shown = differences.shown
    verdict = verdict_of(shown[:1], now=differences.found, visible_since=differences.started)
    if done.verdict is not None or verdict is None:
        return replace(done, findings=(*done.findings, *shown))
    change = Change("differences", verdict.code, "first", "the job shows nothing that explains more")
    return replace(
        done, findings=(*shown, *done.findings), verdict=verdict, status=Status.FAULT, changes=(*done.changes, change)
    )


def _alone(done: Conclusion, known: Known) -> Conclusion:
    """Of a node that has lost node 0: a fault that was proven before stays the verdict, and the loss stands beside it;
    what was not proven yet stands beside the loss."""
    before = known.earlier
    if before is None:
        return done
    if not _is_proven(before):
        waited = (f for f in before.findings if before.status is Status.WAITING and f not in done.findings)
        return replace(done, findings=(*done.findings, *waited))
    loss = (replace(f, severity=Severity.WARNING) if is_error(f) else f for f in done.findings)
    code = before.verdict.code if before.verdict is not None else ""
    change = Change("alone", code, "stays", "it was proven before node 0 was lost")
    return replace(
        done,
        findings=(*before.findings, *(f for f in loss if f not in before.findings)),
        verdict=before.verdict,
        status=before.status,
        changes=(*done.changes, change),
    )


def _is_proven(report: Report) -> bool:
    return report.status is Status.FAULT and report.verdict is not None


STEPS: Mapping[str, Step] = {
    "traffic": _traffic,
    "watched": _watched,
    "raised": _raised,
    "verdict": _verdict,
    "differences": _differences,
    "alone": _alone,
}
"""The steps, in their order."""


def conclude(begun: Sequence[Finding] | Report, known: Known) -> Conclusion:
    """What the findings mean together with what else is known.

    `begun`: findings in the order of `engine.judge`; or a report, of which the later steps may know more.
    """
    if isinstance(begun, Report):
        done = Conclusion(findings=begun.findings, verdict=begun.verdict, status=begun.status)
    else:
        done = Conclusion(findings=tuple(begun))
    for step in STEPS.values():
        done = step(done, known)
    if log.isEnabledFor(logging.DEBUG):
        for line in explain(done, known.rules):
            log.debug("%s", line)
    return done


def concluded(report: Report, known: Known) -> Report:
    """The report with what the later steps make of it."""
    done = conclude(report, known)
    base = known.earlier if known.earlier is not None and _is_proven(known.earlier) else report
    return replace(base, findings=done.findings, verdict=done.verdict, status=done.status or base.status)


def explain(done: Conclusion, rules: Rules) -> tuple[str, ...]:
    """Why the verdict is the verdict: what each step changed, then why each finding stands before the next one."""
    return (*map(str, done.changes), *explain_order(done.findings, rules))
