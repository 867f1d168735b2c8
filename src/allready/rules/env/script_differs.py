from collections.abc import Iterator

from allready.judging.node_split import differing
from allready.judging.registry import Applies, Layer, Rule
from allready.model import FaultClass, Hit, PerNode, RemedyStep, ScriptFacts, Severity, World

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
