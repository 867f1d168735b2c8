"""VAR013."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import hit, problems, remedy
from allready.variables.values import Kind


@Rule(
    code="VAR013",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A value that does not do what it says",
    message="{name}={value} acts like {read}",
    remedy=remedy("[[write {name}={better}|remove {extra}]]"),
)
def value_without_effect(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Switches that know one value only: torch reads TORCH_SHOW_CPP_STACKTRACES and others as on when they are exactly 1,
    so that true means off; and PYTORCH_NO_CUDA_MEMORY_CACHING or NVTX_DISABLE are on as soon as they are set, even
    to 0.  NCCL_WORK_FIFO_BYTES takes powers of two only, and stays at its default for other numbers.
    ## Why it matters
    The feature is off although it was switched on, or on although it was switched off; the size is not the chosen one.
    ## Check by hand
    `allready env explain NAME --value VALUE`.
    ## When it is harmless
    When the effect is the wanted one.
    """
    for same, problem in problems(settings, Kind.WITHOUT_EFFECT):
        read = f"{same.name}={problem.read or '0'}"
        yield hit(same, read=read, better=problem.better or UNKNOWN, extra=UNKNOWN, command=same.export(problem.better))
    for same, _ in problems(settings, Kind.STILL_ON):
        name = same.name
        yield hit(same, read=f"{name}=1", better=UNKNOWN, extra=name, command=same.unset())
