"""ENV003."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, Hit, PerNode, ScriptFacts, Severity

DIGITS = 12


@Rule(
    code="ENV003",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="Nodes would run different scripts",
    message="the content of {path} differs between nodes: {split}",
    remedy="copy one version to every node, or start it from a folder that all share; to compare: sha256sum {path}",
)
def script_differs(script: PerNode[ScriptFacts]) -> Iterator[Hit]:
    """
    ## What it checks
    The SHA-256 of the script that was named after `--`, on every node. Where it lies may differ.
    ## Why it matters
    Ranks that run different code issue different collectives: the job hangs, or goes on with wrong numbers. It
    happens when one node was forgotten in the last copy, or a shared folder shows a stale file.
    ## Check by hand
    `sha256sum SCRIPT` on every node. The modules that it imports are not compared: `git status` and `git rev-parse
    HEAD` tell more.
    ## When it is harmless
    When only comments differ; even then nobody can tell later what ran.
    """
    split = Split.by({node: facts.sha256[:DIGITS] for node, facts in script.items()})
    if len(split) < 2:
        return
    outliers = split.outliers()
    first = next(iter(script.values()))
    yield Hit(
        culprits=Culprits(nodes=outliers),
        values={"path": first.path, "split": brief(split)},
        evidence=tuple(
            Evidence(source=script[n].path, text=f"{script[n].sha256} ({script[n].size_bytes} B)", node_rank=n)
            for n in some(script, outliers)
        ),
    )
