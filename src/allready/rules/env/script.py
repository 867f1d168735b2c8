"""The script that the ranks run."""

from collections.abc import Iterator

from allready.judging.node_split import differing
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, FaultClass, Hit, LaunchFacts, PerNode, RemedyStep, ScriptFacts, Severity, World

DIGITS = 12


@Rule(
    code="ENV003",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Nodes would run different scripts",
    message="the content of {path} differs between nodes: {split}",
    remedy=RemedyStep(
        explanation="copy one version to every node, or start it from a shared folder; to compare",
        where="every node",
        command="sha256sum {path}",
    ),
)
def script_differs(script: PerNode[ScriptFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The SHA-256 of the script that was named after `--`, on every node. Its path may differ.
    ## Why it matters
    Ranks that run different code issue different collectives: the job hangs, or continues with wrong numbers. It
    happens when one node was forgotten in the last copy, or a shared folder shows a stale file.
    ## Check by hand
    `sha256sum SCRIPT` on every node. The modules that it imports are not compared: `git status` and `git rev-parse
    HEAD` tell more.
    ## When it is harmless
    When only comments differ; even then it is unknown later which version ran.
    """
    digests = {node: facts.sha256[:DIGITS] for node, facts in script.items()}
    texts = {n: f"{facts.path}: {facts.sha256} ({facts.size_bytes} B)" for n, facts in script.items()}
    for path in list(dict.fromkeys(facts.path for facts in script.values()))[:1]:
        yield from differing(digests, "sha256sum", num_nodes=world.num_nodes, texts=texts, path=path)


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
