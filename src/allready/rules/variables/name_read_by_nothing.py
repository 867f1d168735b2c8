"""VAR001."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Settings, Severity
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import grouped, hit, remedy
from allready.rules.variables.name_misspelt import misspelt
from allready.variables import table


@Rule(
    code="VAR001",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A variable that no library reads",
    message="{name}={value}: no release of NCCL, PyTorch, Gloo or JAX reads a variable of this name",
    remedy=remedy("remove {name}[[; what does it: {instead}]]"),
)
def name_read_by_nothing(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Names that guides pass on and that no library has ever read: NCCL_TIMEOUT, NCCL_SOCKET_TIMEOUT, NCCL_IB_ENABLE and
    about 20 more, and slips of these (NCCL_ENABLE_IB). `allready env explain NAME` says what each was meant to do.
    ## Why it matters
    With NCCL_TIMEOUT=3600 in the script the timeout is the same as before, and the job ends after it.
    ## Check by hand
    `strings` on libnccl.so.2 and libtorch_cuda.so, followed by `grep -w NAME`, prints nothing.
    ## When it is harmless
    When your own script or launcher reads it.
    """
    for same in grouped(settings.settings):
        variable = table.load().get(same.name) or table.load().get(misspelt(same.name, is_folk=True) or "")
        if variable is not None and variable.is_folk:
            yield hit(same, instead=variable.use or UNKNOWN, command=same.unset())
