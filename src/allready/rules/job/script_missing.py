from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import grouped, seen
from allready.model import Culprits, FaultClass, Hit, LaunchFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="JOB012",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="The script does not exist on a node",
    message="node {nodes} has no script {script}",
    remedy=RemedyStep(
        explanation="check the path: the script must exist under the same path on every node, relative to the working "
        "directory of the command there",
        where="node {nodes}",
        command="ls -l {script}",
    ),
)
def script_missing(launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That the script (or with --no-python the program) that the ranks will run exists on every node. Only Python knows
    where a module (`-m`) is; it is not checked.
    ## Why it matters
    The ranks of that node would fail at once with "can't open file", and all others would wait for them.
    ## Check by hand
    `ls -l SCRIPT` on that node, in the directory in which the command was started.
    ## When it is harmless
    Never: nothing can be started there.
    """
    missing = grouped((facts.missing_script, node) for node, facts in launch.items() if facts.missing_script)
    for script, nodes in missing.items():
        yield Hit(
            culprits=Culprits(nodes=nodes),
            values={"nodes": world.labels(nodes), "script": script},
            evidence=seen(
                "roll call", dict.fromkeys(nodes, said("{script}: No such file or directory", script=script))
            ),
        )
