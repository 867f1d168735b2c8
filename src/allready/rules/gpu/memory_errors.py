"""GPU010."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Gpu, GpuFacts, Hit, PerNode, RemedyStep, Severity, World


@Rule(
    code="GPU010",
    severity=Severity.WARNING,
    fault_class=FaultClass.HW_HANG,
    since="0.2",
    layer=Layer.MACHINE,
    title="A GPU has memory errors that it could not correct",
    message="node {node}: GPU {gpu} ({uuid}) had uncorrectable memory errors: {counts}",
    remedy=(
        RemedyStep(
            explanation="with no process on this GPU, reset it: that replaces the row",
            where="node {node}",
            command="sudo nvidia-smi --gpu-reset -i {gpu}",
        ),
        RemedyStep(
            explanation="if the remapping failed, or errors come back: run the diagnosis and have the GPU replaced",
            where="node {node}",
            command="dcgmi diag -r 3 -i {gpu}",
        ),
    ),
)
def memory_errors(gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    What NVML reports of each GPU: memory errors that ECC could not correct since the driver was loaded, a row (before
    Ampere: a page) that waits to be replaced at the next reset, and a replacement that failed because no spare row is
    left. The last is an error, the others are warnings. Errors that ECC corrected are no finding.
    ## Why it matters
    A process that touches the row ends with Xid 94, or with Xid 48 or 95, which take all processes of the GPU with
    them: one rank dies, or its kernels never end, and all others wait for it.
    ## Check by hand
    `nvidia-smi -q -d ECC,ROW_REMAPPER`; `dmesg -T | grep -i xid`.
    ## When it is harmless
    After a reset that replaced the row, the counters are zero again.
    """
    for node, facts in gpu.items():
        for one in facts.gpus:
            counts = tuple(_counts(one))
            if counts:
                yield Hit(
                    severity=Severity.ERROR if one.has_remap_failed else None,
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "gpu": one.index, "uuid": one.uuid, "counts": ", ".join(counts)},
                    evidence=seen(f"NVML GPU {one.index}", {node: ", ".join(counts)}),
                )


def _counts(gpu: Gpu) -> Iterator[str]:
    """In NVML's words."""
    if gpu.num_uncorrected:
        yield f"volatile uncorrected ECC errors {gpu.num_uncorrected}"
    if gpu.is_remap_pending:
        yield "row remapping pending"
    if gpu.is_retirement_pending:
        yield "page retirement pending"
    if gpu.has_remap_failed:
        yield "row remapping failure"
