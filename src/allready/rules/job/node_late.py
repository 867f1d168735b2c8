from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, RemedyStep, RollCall, Severity, World
from allready.rules.job._claims import evidence

LATE_AFTER_S = 10.0
"""Commands typed by hand or started by a scheduler lie this far apart; image pulls and slow imports further."""

TOO_LATE_AFTER_S = 60.0
"""torchrun's c10d rendezvous gives a connection to the store 60 s: the shortest of the default timeouts."""


@Rule(
    code="JOB002",
    severity=Severity.INFO,
    fault_class=FaultClass.START_ABSENT,
    layer=Layer.ABSENCE,
    title="Nodes arrived late",
    message="node {nodes} started {late_s} s after node {first}, the first to be ready",
    remedy=(
        RemedyStep(
            explanation="find what is slow before the start: image pull, imports from a shared file system, a queue",
            where="node {nodes}",
            command="ps -o lstart,cmd -C python",
        ),
        RemedyStep(
            explanation="if this is expected, give the job a start-up timeout well above {most_s} s", where="every node"
        ),
    ),
)
def node_late(roll: RollCall, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When each node began to try, compared with the first node. Counted from the start of its own attempts: a node that
    had been waiting for a late node 0 is not late, node 0 is. Delays of 10 s and more are reported; above 60 s it is a
    warning.
    ## Why it matters
    The job's own start-up has timeouts: 60 s in torchrun's rendezvous for the connection to the store, 300 s in JAX,
    600 s for all nodes to join. A node that needs longer ends the job, and the message names no node.
    ## Check by hand
    On the late node: `ps -o lstart,cmd -C python` beside the same on another node.
    ## When it is harmless
    When the commands were typed by hand one after the other.
    """
    claims = [c for c in roll.claims if c.refused is None]
    began = {c.node_rank: c.arrival_s - c.waited_s for c in claims}
    first = min(began, key=lambda r: (began[r], r), default=0)
    late = {r: began[r] - began[first] for r in sorted(began) if began[r] - began[first] > LATE_AFTER_S}
    if not late:
        return
    most_s = max(late.values())
    yield Hit(
        culprits=Culprits(nodes=tuple(late)),
        severity=Severity.WARNING if most_s > TOO_LATE_AFTER_S else None,
        confidence=Confidence.CERTAIN,
        values={
            "nodes": world.labels(tuple(late)),
            "late_s": ", ".join(f"{s:.0f}" for s in list(late.values())[:8]),
            "most_s": f"{most_s:.0f}",
            "first": world.label(first),
        },
        evidence=evidence(c for c in claims if c.node_rank in late or c.node_rank == first),
    )
