"""VAR008."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import hit, problems, remedy
from allready.variables.values import Kind


@Rule(
    code="VAR008",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A switch has a value that is no number: it counts as 0",
    message="{name}={value} is read as {name}=0: a number is expected, and anything else counts as 0",
    remedy=remedy("write a number[[, {name}={better}]]"),
)
def value_read_as_zero(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Words like true, yes or on as values of variables that are read as numbers, which all switches of NCCL are.
    Words that mean 0 anyway (false, off) are left alone.
    ## Why it matters
    NCCL_IB_DISABLE=true leaves InfiniBand on, and NCCL_RAS_ENABLE=true switches RAS off, both without a warning.
    ## Check by hand
    With NCCL_DEBUG=INFO NCCL prints "NCCL_IB_DISABLE set by environment to 0".
    ## When it is harmless
    When 0 is what was meant.
    """
    for same, problem in problems(settings, Kind.READ_AS_ZERO):
        yield hit(same, better=problem.better or UNKNOWN, command=same.export(problem.better))
