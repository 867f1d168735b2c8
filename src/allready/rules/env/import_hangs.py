"""ENV013."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Import,
    ImportFacts,
    PerNode,
    ProcessState,
    RemedyStep,
    Severity,
    World,
)

SLOW_S = 20.0
"""Longer than any import that is only slow takes, on a file system that works."""
IDLE_CPU_S = 0.02


@Rule(
    code="ENV013",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    title="The import of torch or JAX hangs",
    message="node {node}: import {module} has not ended after {seconds} s and used {recent} s of CPU in the last second"
    "[[; it stands in {place}]]",
    remedy=(
        RemedyStep(
            explanation="see where it stands",
            where="node {node}",
            command="timeout -s ABRT 30 python -X faulthandler -c 'import {module}'",
        ),
        RemedyStep(
            explanation="give it more time, to know whether it ends",
            where="node {node}",
            command="allready doctor --timeout 120",
        ),
    ),
)
def import_hangs(imports: PerNode[ImportFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a process that only imports torch or JAX makes no progress: it has not ended within the time, and in the
    last second it slept and used no CPU. With a time of 20 s or more (`doctor --timeout`) it is an error, else a
    warning. An import that still computes or waits for a file system is only slow: then it is not checked.
    ## Why it matters
    All ranks of this node hang before their first line of output, and no timeout of torch or JAX has begun.
    ## Check by hand
    `timeout -s ABRT 30 python -X faulthandler -c 'import torch'` prints the stack where it stands.
    ## When it is harmless
    When something that the import waits for was only slow, for example a network name service: with a longer
    `--timeout` the finding is gone.
    """
    for node, facts in imports.items():
        for one in facts.modules:
            if _hangs(one):
                is_long = one.limit_s >= SLOW_S
                yield Hit(
                    severity=Severity.ERROR if is_long else None,
                    confidence=Confidence.LIKELY if is_long else Confidence.POSSIBLE,
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "module": one.module,
                        "seconds": f"{one.duration_s:.1f}",
                        "recent": f"{one.recent_cpu_s or 0:.2f}",
                        "place": one.stack[0] if one.stack else "?",
                    },
                    evidence=seen(f"import {one.module}", {node: " < ".join(one.stack[:6]) or f"state {one.state}"}),
                )


_FILES = ("request_wait", "fuse", "nfs", "rpc_", "cl_sync", "ll_", "ceph", "io_schedule", "folio_wait", "wait_on_page")
"""Beginnings of the kernel functions in which a process waits for a file system, also one over a network."""


def _hangs(one: Import) -> bool:
    """It did nothing for the last second.  One that waits for a file system may be only slow."""
    is_idle = one.recent_cpu_s is not None and one.recent_cpu_s <= IDLE_CPU_S
    is_reading = (one.wchan or "").startswith(_FILES)
    is_asleep = one.state in {ProcessState.SLEEPING, ProcessState.STOPPED} and not is_reading
    return one.outcome == "silent" and is_idle and (is_asleep or one.limit_s >= SLOW_S)
