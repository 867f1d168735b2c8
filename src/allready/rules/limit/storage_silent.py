"""LIM009."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, FaultClass, Hit, PerNode, RemedyStep, Severity, UsageFacts, World


@Rule(
    code="LIM009",
    severity=Severity.WARNING,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="A file system that jobs use does not answer",
    message="node {node}: the file system behind {paths} gave no answer within 1 s",
    remedy=(
        RemedyStep(
            explanation="see which server it is, and whether it answers",
            where="node {node}",
            command="grep -E ' (nfs4?|ceph|lustre|fuse[^ ]*|beegfs|gpfs) ' /proc/mounts; dmesg -T | grep 'not resp'",
        ),
        RemedyStep(
            explanation="processes that wait for it cannot be killed; name them",
            where="node {node}",
            command="ps -eo pid,stat,wchan:24,args | awk '$2 ~ /^D/'",
        ),
    ),
)
def storage_silent(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the file systems behind the working folder, TMPDIR (or /tmp) and the home folder answer a question about
    their free space within a second. A server that works answers in milliseconds.
    ## Why it matters
    A rank that reads data, imports a module or writes a checkpoint there stops without an error, and cannot be killed;
    the others wait in the next collective until their timeout. Also `ls`, `df` and the login of users hang.
    ## Check by hand
    `timeout 5 stat -f FOLDER; echo $?` prints 124 where it hangs.
    ## When it is harmless
    When the server was only busy for a moment, or an automounter had just begun to mount it: then a second
    `allready doctor` has no such finding.
    """
    for node, facts in usage.items():
        if facts.silent_folders:
            paths = ", ".join(facts.silent_folders)
            yield Hit(
                confidence=Confidence.LIKELY,
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "paths": paths},
                evidence=(stated("statvfs", "{paths}: no answer", node_rank=node, paths=paths),),
            )
