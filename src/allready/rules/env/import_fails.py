"""ENV012."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, ImportFacts, PerNode, RemedyStep, Severity, World
from allready.rules.env._children import failure_values, has_failed, shown_failure


@Rule(
    code="ENV012",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="torch or JAX is installed and cannot be imported",
    message="node {node}: import {module} [[raises {error}|ends the interpreter with {signal}|ends the interpreter "
    "with exit code {exit_code}]]",
    remedy=(
        RemedyStep(
            explanation="see the whole traceback, and which file is imported",
            where="node {node}",
            command="python -X faulthandler -X importtime -c 'import {module}' 2>&1 | tail -40",
        ),
        RemedyStep(
            explanation="a missing symbol or library: the wheels are of different releases, or LD_LIBRARY_PATH and "
            "LD_PRELOAD put another one in front",
            where="node {node}",
            command='python -m pip check; echo "$LD_LIBRARY_PATH $LD_PRELOAD $PYTHONPATH"',
        ),
    ),
)
def import_fails(imports: PerNode[ImportFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `import torch` and `import jax`, each in a process of its own that is ended afterwards. A module that is not
    installed is no finding; one that is installed and raises an exception or ends the interpreter is.
    ## Why it matters
    Every rank of this node ends in its first line. The launcher reports only an exit code, and the other nodes wait for
    this one until their timeout.
    ## Check by hand
    `python -c 'import torch'`, with the interpreter and the environment of the job.
    ## When it is harmless
    When the job uses the other framework, or another interpreter than the one that runs allready.
    """
    for node, facts in imports.items():
        for one in facts.modules:
            if has_failed(one):
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={"node": world.label(node), "module": one.module, **failure_values(one)},
                    evidence=seen(f"import {one.module}", {node: shown_failure(one)}),
                )
