"""ENV018."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, LimitFacts, PerNode, RemedyStep, Severity, World

NO_ATTACH, ADMIN_ONLY = 3, 2


@Rule(
    code="ENV018",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    applies=Applies.FACTS,
    title="Stacks of running ranks cannot be read",
    message="node {node}: the kernel forbids reading the memory of other processes (ptrace_scope={scope}), so the "
    "stack of a rank that hangs cannot be shown",
    remedy=(
        RemedyStep(
            explanation="allow it for child processes",
            where="node {node}",
            command="sudo sysctl -w kernel.yama.ptrace_scope=1",
        ),
        RemedyStep(explanation="in a container: add the capability SYS_PTRACE"),
    ),
)
def stacks_forbidden(limits: PerNode[LimitFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether Yama forbids to attach to processes: scope 3 for all, 2 without the capability SYS_PTRACE. Scope 1,
    the usual one, lets a launcher read its own ranks, and is no finding.
    ## Why it matters
    Nothing fails. When a rank hangs, `allready run` and py-spy cannot tell in which line, and a diagnosis is
    less sure.
    ## Check by hand
    `sysctl kernel.yama.ptrace_scope`; `grep CapEff /proc/self/status`.
    ## When it is harmless
    Always, until a rank hangs.
    """
    for node, facts in limits.items():
        scope = facts.ptrace_scope
        if scope == NO_ATTACH or (scope == ADMIN_ONLY and facts.can_ptrace is False):
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "scope": scope},
                evidence=seen("kernel.yama.ptrace_scope", {node: str(scope)}),
            )
