import re
from collections.abc import Iterator

from allready.judging.environment_errors import trouble_in
from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import WAITED, evidence
from allready.judging.signs import Sign
from allready.model import Confidence, Event, FaultClass, Hit, Origin, RemedyStep, Role, RunEvidence, Severity
from allready.signatures import load


@Rule(
    code="DTH008",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.EXIT,
    unless=(Sign.PROCESS_END, Sign.ROOT_LINE, Sign.POSITIONS, Sign.OTHER_CALLS),
    title="The last thing that a program wrote is an error",
    message="the log ends with an error of the program: {text}",
    remedy=(
        RemedyStep(
            explanation="start with this line: it is the program's own, and nothing that allready knows explains it. "
            "The launcher's or scheduler's output tells whether the job ended there, and with which exit code"
        ),
    ),
)
def last_error(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Logs that stop with a line that calls itself an error (`ERROR: Lost atoms`, `FATAL: ...`, an exception's name
    without its traceback), or with the system's message on a call that failed (`connect: No route to host`), where no
    process is known to have ended, no other line names a cause, and no rank waited in vain.
    ## Why it matters
    Programs that do not print tracebacks tell so why they end: simulations, configuration frameworks, servers.
    ## Check by hand
    `tail -n 20 LOG`
    ## When it is harmless
    When the program caught the error and went on without writing.
    """
    ended = [c for c in run.closings if c.error and not c.is_good]
    if not ended or any(not d.earlier for d in run.deaths) or any(e.signature in WAITED for e in run.events):
        return
    if any(_says_why(e) and _stands_behind(e.origin, ended[0].origin) for e in run.events):
        return  # a shell, which says why the command failed of which the program complains
    trouble = trouble_in(ended[0].error, re.IGNORECASE)
    yield Hit(
        values={"text": ended[0].error},
        fault_class=trouble.fault_class if trouble is not None else None,
        confidence=Confidence.POSSIBLE,
        evidence=tuple(evidence(c.origin, c.error, None) for c in ended[:4]),
    )


def _says_why(event: Event) -> bool:
    signature = load().get(event.signature)
    return event.role is not Role.HARMLESS and signature is not None and signature.role is Role.ROOT


def _stands_behind(one: Origin, other: Origin) -> bool:
    return one.source == other.source and (one.line or 0) > (other.line or 0)
