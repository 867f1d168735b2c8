"""VAR009."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import hit, problems, remedy
from allready.variables.values import Kind


@Rule(
    code="VAR009",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="Only the leading digits of a value count",
    message="{name}={value} is read as {read}: reading stops before {part}",
    remedy=remedy("write the plain number[[, {name}={better}]]"),
)
def value_cut_off(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Numbers with a unit or other letters behind them: 8M, 30min, 1800s, 4,194,304.
    ## Why it matters
    NCCL and torch read the leading digits and drop the rest: NCCL_BUFFSIZE=8M is a buffer of 8 bytes.
    ## Check by hand
    With NCCL_DEBUG=INFO NCCL prints "NCCL_BUFFSIZE set by environment to 8".
    ## When it is harmless
    When the unit happens to be the variable's own, as in a timeout of 600s that is read in seconds.
    """
    for same, problem in problems(settings, Kind.CUT_OFF):
        harmless = problem.better == problem.read
        yield hit(
            same,
            severity=Severity.INFO if harmless else None,
            read=problem.read,
            part=problem.part,
            better=problem.better or UNKNOWN,
            command=same.export(problem.better),
        )
