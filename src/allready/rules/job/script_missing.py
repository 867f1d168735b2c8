"""JOB012."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, Hit, LaunchFacts, PerNode, Severity, World


@Rule(
    code="JOB012",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.LAUNCH,
    title="The script does not exist on a node",
    message="script not found on node {nodes}: {script}",
    remedy="check the path on node {nodes}: ls -l {script}; the script must exist under the same path on every node, "
    "relative to the working directory of the command there",
)
def script_missing(launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    That the script (or with --no-python the program) that the ranks are to run exists on every node.  The place of a
    module (`-m`) is known to Python only, and is not looked for.
    ## Why it matters
    The ranks of that node would end at once with "can't open file", and all others would wait for them.
    ## Check by hand
    `ls -l SCRIPT` on that node, in the directory in which the command was started.
    ## When it is harmless
    Never: nothing can be started there.
    """
    missing: dict[str, list[int]] = {}
    for node, facts in launch.items():
        if facts.missing_script:
            missing.setdefault(facts.missing_script, []).append(node)
    for script, nodes in missing.items():
        yield Hit(
            culprits=Culprits(nodes=tuple(nodes)),
            values={"nodes": world.labels(nodes), "script": script},
            evidence=tuple(
                Evidence(source="roll call", node_rank=n, text=f"{script}: No such file or directory")
                for n in nodes[:16]
            ),
        )
