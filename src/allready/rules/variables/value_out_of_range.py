"""VAR011."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RemedyStep, Settings, Severity
from allready.rules.variables._settings import hit, problems, remedy
from allready.variables.values import Kind


@Rule(
    code="VAR011",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A value outside of what the variable takes",
    message="{name}={value} is outside of {span}",
    remedy=remedy("choose a value within {span}", RemedyStep(shared="explain_variable")),
)
def value_out_of_range(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Numbers outside of the documented range, such as NCCL_IB_TIMEOUT above 31 or 0, NCCL_IB_RETRY_CNT above 7,
    NCCL_SOCKET_NTHREADS above 16.
    ## Why it matters
    The value is cut down, passed over, or means something else: NCCL_IB_TIMEOUT=0 waits forever.
    ## Check by hand
    `allready env explain NAME`.
    ## When it is harmless
    When a newer release takes more than this table knows.
    """
    for same, problem in problems(settings, Kind.OUT_OF_RANGE):
        yield hit(same, span=problem.better)
