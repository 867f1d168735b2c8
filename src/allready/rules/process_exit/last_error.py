from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import WAITED, evidence
from allready.judging.signs import Sign
from allready.model import Confidence, FaultClass, Hit, RemedyStep, RunEvidence, Severity


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
    without its traceback), where no process is known to have ended, no other line names a cause, and no rank waited in
    vain.
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
    yield Hit(
        values={"text": ended[0].error},
        confidence=Confidence.LIKELY,
        evidence=tuple(evidence(c.origin, c.error, None) for c in ended[:4]),
    )
