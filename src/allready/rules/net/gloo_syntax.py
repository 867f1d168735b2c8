from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief
from allready.judging.registry import Applies, Layer, Rule
from allready.model import FaultClass, Hit, PerNode, RemedyStep, Severity, TransportFacts
from allready.rules.net._interfaces import choice_hit, choices, has_nccl_syntax


@Rule(
    code="NET011",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.PATH,
    applies=Applies.FACTS,
    title="GLOO_SOCKET_IFNAME uses NCCL's syntax",
    message="GLOO_SOCKET_IFNAME={values} on node {nodes}: ^ and = are NCCL's syntax; Gloo takes the value as an "
    "interface name and finds no such interface",
    remedy=RemedyStep(
        explanation="set the plain interface name, without ^ and =",
        where="node {on}",
        command="{command}",
        each="exports",
    ),
)
def gloo_syntax(transport: PerNode[TransportFacts], case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    That GLOO_SOCKET_IFNAME does not begin with ^ or =, which only NCCL understands.
    ## Why it matters
    Gloo searches for an interface called "^lo" and fails with "Unable to find address for: ^lo" on every rank, as soon
    as the first Gloo group is created.
    ## Check by hand
    `echo "$GLOO_SOCKET_IFNAME"`; it must be an exact name of `ip -br addr`, or several with commas.
    ## When it is harmless
    When the job creates no Gloo group.
    """
    bad = {
        c.node: c for c in case.of(choices) if c.backend == "Gloo" and c.choice.failure and has_nccl_syntax(c.choice)
    }
    if bad:
        patterns = {n: item.choice.pattern for n, item in bad.items()}
        yield choice_hit(
            case,
            bad,
            {n: f"GLOO_SOCKET_IFNAME={pattern}" for n, pattern in patterns.items()},
            severity=None if any(item.needed for item in bad.values()) else Severity.WARNING,
            values=brief(Split.by(patterns)),
        )
