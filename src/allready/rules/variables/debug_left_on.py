"""VAR022."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RemedyStep, Settings, Severity
from allready.rules.variables._settings import hit, known, remedy
from allready.variables.values import is_debug_value

_TRANSPORTS = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"}
"""Of these rule VAR021 knows more where the machine is known."""
_SLOW = frozenset({
    "CUDA_LAUNCH_BLOCKING", "TORCH_DISTRIBUTED_DEBUG", "NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT",
    "PYTORCH_NO_CUDA_MEMORY_CACHING", "JAX_DEBUG_NANS", "JAX_DEBUG_INFS", "JAX_DISABLE_JIT", "NCCL_CHECK_MODE",
    "NCCL_CHECK_POINTERS", "TF_CPP_MAX_VLOG_LEVEL", "FI_LOG_LEVEL",
})  # fmt: skip


@Rule(
    code="VAR022",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A setting for debugging",
    message="{name}={value} is for debugging and costs time or disk space in production",
    remedy=remedy("remove {name} for production", RemedyStep(shared="explain_variable")),
)
def debug_left_on(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Values that are for debugging only: CUDA_LAUNCH_BLOCKING=1, TORCH_DISTRIBUTED_DEBUG=DETAIL, NCCL_DEBUG=INFO, the
    blocking wait of torch, NaN checks, dumps, and transports of NCCL that a file switches off for other machines. The
    table has the cost of each. A warning for those that slow the computation down, otherwise information.
    ## Why it matters
    They are set for one search and stay in the script. CUDA_LAUNCH_BLOCKING alone can make steps several times longer.
    ## Check by hand
    Measure the step time with and without it.
    ## When it is harmless
    While something is being searched for; P2P off on GPUs that do not have it.
    """
    here = settings.here()
    for variable, same in known(settings):
        if all(setting.is_of_build for setting in same.all):
            continue
        is_known_better = same.name in _TRANSPORTS and same.first in here
        if same.value is not None and is_debug_value(variable, same.value) and not is_known_better:
            severity = Severity.WARNING if same.name in _SLOW else None
            yield hit(same, severity=severity, command=same.unset())
