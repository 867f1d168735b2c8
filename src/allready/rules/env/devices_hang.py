"""ENV021."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, ImportFacts, PerNode, RemedyStep, Severity, World
from allready.rules.env._children import hang_values, hangs, shown_hang, weight_of_hang


@Rule(
    code="ENV021",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="torch or JAX hangs when it is asked for its devices",
    message="node {node}: {module} can be imported; asked for its devices it has not answered after {seconds} s and "
    "used {recent} s of CPU in the last second[[; it stands in {place}]]",
    remedy=(
        RemedyStep(
            explanation="see whether the driver itself answers, and what the kernel says of it",
            where="node {node}",
            command="timeout 20 nvidia-smi; dmesg | grep -i -e nvrm -e xid | tail",
        ),
        RemedyStep(
            explanation="give it more time, to know whether it ends",
            where="node {node}",
            command="allready doctor --use-gpus --timeout 120",
        ),
    ),
)
def devices_hang(imports: PerNode[ImportFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a process that has imported torch or JAX and asks for its devices makes no progress: no answer within the
    time, and in the last second it slept and used no CPU. With a time of 20 s or more it is an error, else a warning.
    `--use-gpus` asks both for all devices; without it only JAX is asked, on a machine that has no GPU.
    ## Why it matters
    All ranks of this node hang in their first call that needs a device, before a timeout of torch or JAX has begun.
    ## Check by hand
    `timeout -s ABRT 60 python -X faulthandler -c 'import torch; torch.cuda.init()'` prints the stack where it stands.
    ## When it is harmless
    When a driver was only starting: with a longer `--timeout` the finding is gone.
    """
    for node, facts in imports.items():
        for one in facts.modules:
            if one.devices is not None and hangs(one.devices):
                yield Hit(
                    **weight_of_hang(one.devices),
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "module": one.module, **hang_values(one.devices)},
                    evidence=seen(f"devices of {one.module}", {node: shown_hang(one.devices)}),
                )
