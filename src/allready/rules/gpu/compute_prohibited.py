"""GPU011."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import used_gpus
from allready.model import Culprits, FaultClass, GpuFacts, Hit, LaunchFacts, PerNode, RemedyStep, Severity, World

EXCLUSIVE = {"exclusive_process", "exclusive_thread"}


@Rule(
    code="GPU011",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    title="The compute mode of a GPU keeps the job out",
    message="node {node}: GPU {gpu} is in [[compute mode {mode}|an exclusive compute mode]][[ and belongs to "
    "{holder}]], so no rank can use it",
    remedy=(
        RemedyStep(
            explanation="allow processes again, as root",
            where="node {node}",
            command="sudo nvidia-smi -i {gpu} -c DEFAULT",
        ),
        RemedyStep(explanation="or use other GPUs: --devices or CUDA_VISIBLE_DEVICES", where="node {node}"),
    ),
)
def compute_prohibited(gpu: PerNode[GpuFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The compute mode of the GPUs that the ranks will take: `prohibited`, or exclusive while another process has the
    GPU.
    ## Why it matters
    CUDA fails on this rank ("CUDA-capable device(s) is/are busy or unavailable", or no device at all), and the other
    ranks wait for it.
    ## Check by hand
    `nvidia-smi --query-gpu=index,compute_mode --format=csv`.
    ## When it is harmless
    An exclusive mode without a holder is a policy of many clusters, and no finding.
    """
    for node, facts in gpu.items():
        used = set(used_gpus(launch[node], facts))
        for one in facts.gpus:
            holder = one.processes[0] if one.processes else None
            is_taken = one.compute_mode in EXCLUSIVE and holder is not None
            if one.index in used and (one.compute_mode == "prohibited" or is_taken):
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "gpu": one.index,
                        "mode": one.compute_mode or "?",
                        "holder": f"pid {holder.pid}" if holder is not None else "?",
                    },
                    evidence=(
                        stated(f"NVML GPU {one.index}", "compute mode {mode}", node_rank=node, mode=one.compute_mode),
                    ),
                )
