"""ENV013."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, ImportFacts, PerNode, RemedyStep, Severity, World
from allready.rules.env._children import hang_values, hangs, shown_hang, weight_of_hang


@Rule(
    code="ENV013",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="The import of torch or JAX hangs",
    message="node {node}: import {module} has not ended after {seconds} s and used {recent} s of CPU in the last second"
    "[[; it stands in {place}]]",
    remedy=(
        RemedyStep(
            explanation="see where it stands",
            where="node {node}",
            command="timeout -s ABRT 30 python -X faulthandler -c 'import {module}'",
        ),
        RemedyStep(
            explanation="give it more time, to know whether it ends",
            where="node {node}",
            command="allready doctor --timeout 120",
        ),
    ),
)
def import_hangs(imports: PerNode[ImportFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a process that only imports torch or JAX makes no progress: it has not ended within the time, and in the
    last second it slept and used no CPU. With a time of 20 s or more (`doctor --timeout`) it is an error, else a
    warning. An import that still computes or waits for a file system is only slow: then it is not checked.
    ## Why it matters
    All ranks of this node hang before their first line of output, and no timeout of torch or JAX has begun.
    ## Check by hand
    `timeout -s ABRT 30 python -X faulthandler -c 'import torch'` prints the stack where it stands.
    ## When it is harmless
    When something that the import waits for was only slow, for example a network name service: with a longer
    `--timeout` the finding is gone.
    """
    for node, facts in imports.items():
        for one in facts.modules:
            if hangs(one):
                yield Hit(
                    **weight_of_hang(one),
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "module": one.module, **hang_values(one)},
                    evidence=seen(f"import {one.module}", {node: shown_hang(one)}),
                )
