import re
from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.model import Collectives, FaultClass, Hit, RemedyStep, Severity, World
from allready.rules.collective._hits import hit_of

BROKEN_DEVICE = r"(?i)ECC error|fallen off|hardware|unspecified launch failure|Xid"


@Rule(
    code="COL005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.STAGE,
    title="A rank cannot use its GPU",
    message="rank {ranks} cannot use {ranks:its GPU/their GPUs} in stage {stage}[[: {error}]]",
    remedy=(
        RemedyStep(
            explanation="where GPUs are missing on node {nodes}: in a container, docker run --gpus all; after a "
            "driver update, reboot or reload the modules"
        ),
        RemedyStep(shared="gpus"),
        RemedyStep(shared="visible_gpus"),
        RemedyStep(shared="xids"),
    ),
)
def device_failed(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That every rank's process sees the GPU of its local rank and can create a context on it.
    ## Why it matters
    The rank ends before it joins the others.  Words like "ECC error" or "fallen off the bus" mean broken hardware and
    are classed so; the rest is mostly a container without GPUs, a wrong CUDA_VISIBLE_DEVICES, or a driver that does not
    fit.
    ## Check by hand
    `python -c 'import torch; print(torch.cuda.device_count(), torch.zeros(1, device="cuda:0"))'` on that node.
    ## When it is harmless
    Never with NCCL; ranks that need no GPU run with `--backend gloo`.
    """
    found = blame_first_run(collectives, Kind.DEVICE)
    if found is None:
        return
    is_broken = any(re.search(BROKEN_DEVICE, s.error or "") for s in found.states)
    yield hit_of(found, world, fault_class=FaultClass.HW_HANG if is_broken else None)
