"""ENV015."""

import shlex
from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, FaultClass, Hit, PerNode, RemedyStep, Severity, UsageFacts, World

OLD_S, VERY_OLD_S = 600.0, 3600.0
"""Builds take minutes; one on another node that shares the folder cannot be seen from here."""


@Rule(
    code="ENV015",
    severity=Severity.WARNING,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="A lock of an interrupted build of a torch extension",
    message="node {node}: {path} is {minutes} minutes old and no process of this machine holds it: every load of this "
    "extension waits for it",
    remedy=RemedyStep(
        explanation="if no other node builds it now, remove the lock", where="node {node}", command="{remove}"
    ),
)
def stale_build_lock(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Files named `lock` in the folders in which torch builds C++ and CUDA extensions (TORCH_EXTENSIONS_DIR, else
    torch_extensions in XDG_CACHE_HOME or ~/.cache): how old they are, and whether a process has one open, as a build
    does. A warning for those older than an hour that no process holds, information from ten minutes.
    ## Why it matters
    A build that was killed leaves its lock. From then on `torch.utils.cpp_extension.load` waits for the file to
    vanish, without a timeout or a message: DeepSpeed and others hang while they import an operator.
    ## Check by hand
    `find ~/.cache/torch_extensions -name lock -mmin +10`; `fuser -v FILE` shows who has it open.
    ## When it is harmless
    While another node, which shares the home folder, builds this extension.
    """
    for node, facts in usage.items():
        for lock in facts.locks:
            if lock.is_held or lock.age_s < OLD_S:
                continue
            is_very_old = lock.age_s >= VERY_OLD_S
            yield Hit(
                severity=None if is_very_old else Severity.INFO,
                confidence=Confidence.LIKELY if is_very_old else Confidence.POSSIBLE,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "path": lock.path,
                    "remove": f"rm {shlex.quote(lock.path)}",
                    "minutes": round(lock.age_s / 60),
                },
                evidence=(
                    stated(lock.path, "{age} s old, held by no process", node_rank=node, age=f"{lock.age_s:.0f}"),
                ),
            )
