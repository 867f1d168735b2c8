"""VAR035."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, Settings, Severity, Slip
from allready.rules.variables._settings import at_line, line_remedy
from allready.variables import table
from allready.variables.table import Reader

_OF_JOBS = frozenset({
    Reader.LIBNCCL, Reader.NCCL, Reader.NCCL2, Reader.GLOO, Reader.C10D, Reader.RECORDER, Reader.SYMM_MEM,
    Reader.TENSORPIPE, Reader.TORCHRUN, Reader.UCX, Reader.LIBFABRIC, Reader.NET_PLUGIN, Reader.NVSHMEM,
})  # fmt: skip
"""What no build of an image needs."""


@Rule(
    code="VAR035",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A variable that a Dockerfile sets for the build only",
    message="{text} sets {name} while the image is built, not in the image: no job in a container has it",
    remedy=line_remedy("write ENV {name}=VALUE"),
)
def run_sets_nothing(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Steps RUN of a Dockerfile that only export variables, and ARG with a default and no ENV of its name, for variables
    that a job reads: those of NCCL, torch.distributed, Gloo, torchrun, UCX, libfabric.
    ## Why it matters
    Each RUN is a shell of its own, which ends with its step, and ARG is gone when the image is built. NCCL and torch in
    a container that is started from the image never see the value.
    ## Check by hand
    `docker run --rm IMAGE env | grep NAME`.
    ## When it is harmless
    Where a later step of the same build, or the command that starts the container (`docker run -e`), gives the
    variable as well.
    """
    for line in settings.malformed:
        if line.slip is Slip.ONLY_IN_BUILD:
            variable = table.load().get(line.name)
            if variable is not None and _OF_JOBS & set(variable.readers):
                yield at_line(line.source, line.line, line.name, confidence=Confidence.LIKELY, text=line.text)
