from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, FaultClass, Hit, LaunchFacts, PerNode, RemedyStep, ScriptFacts, Severity, World


@Rule(
    code="ENV011",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="The script starts its ranks itself",
    message="{path} starts its ranks itself (line {call}): under torchrun or allready run each of the {nproc} ranks of "
    "a node would do so",
    remedy=(
        RemedyStep(explanation="start it once per node, as it is", command="allready run --nproc-per-node 1 {path}"),
        RemedyStep(
            explanation="or let the launcher start the ranks: remove that call, and take rank and world size from "
            "RANK, LOCAL_RANK and WORLD_SIZE (init_process_group without arguments does)"
        ),
    ),
)
def script_spawns(script: PerNode[ScriptFacts], launch: PerNode[LaunchFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Calls of `mp.spawn` (torch.multiprocessing) and its like in the script that was named after `--`, where more than
    one rank per node is asked for and the script reads none of RANK, LOCAL_RANK and WORLD_SIZE.
    ## Why it matters
    Every rank would start all ranks again: they claim one port and the same rank numbers, and hang or fail at the
    rendezvous. The ranks that the script starts are no ranks for the launcher: it cannot name them.
    ## Check by hand
    `grep -n "spawn(" SCRIPT`.
    ## When it is harmless
    When the call starts something else, for example workers that prepare data.
    """
    for node, facts in script.items():
        nproc = launch[node].nproc_per_node
        if facts.spawns and nproc > 1:
            yield Hit(
                values={"path": facts.path, "call": facts.spawns[0], "nproc": nproc},
                confidence=Confidence.POSSIBLE,
                evidence=(
                    stated(
                        "script", "{path}, line {lines}", node_rank=node, path=facts.path, lines=", ".join(facts.spawns)
                    ),
                ),
            )
            return
