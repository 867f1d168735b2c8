"""LIM006."""

from collections.abc import Iterator

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import said
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, PerNode, RemedyStep, Severity, UsageFacts, Volume, World
from allready.units import GIB, MIB, size

FULL_BYTES = 16 * MIB
LOW_BYTES = 2 * GIB
LOW_SHARE, FULL_SHARE = 0.02, 0.1


@Rule(
    code="LIM006",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_LIMIT,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    applies=Applies.FACTS,
    title="A file system that jobs write to is full",
    message="node {node}: of {total} behind {path}, {free} are free[[ and {inodes} inodes]]",
    remedy=(
        RemedyStep(
            explanation="see what takes the space",
            where="node {node}",
            command="df -h {path}; df -i {path}; du -xh -d1 {path} 2>/dev/null | sort -h | tail",
        ),
        RemedyStep(
            explanation="or have temporary files elsewhere", where="node {node}", command="export TMPDIR=FOLDER"
        ),
    ),
)
def disk_full(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Space and inodes that users may still take, behind the working folder, TMPDIR (or /tmp) and the home folder. A
    warning below 2 % and 2 GiB, an error below 10 % and 16 MiB or without a free inode. File systems that are mounted
    read-only are passed over.
    ## Why it matters
    The checkpoint of one rank fails with "No space left on device" while the others wait in the barrier after it,
    until their timeout. Compilers' caches, logs and dumps fail in the same way.
    ## Check by hand
    `df -h . /tmp $HOME; df -i . /tmp $HOME`; on file systems with quotas: `quota -s`.
    ## When it is harmless
    When the job writes to another file system only, and its caches (Triton, torch_extensions) lie there as well.
    """
    for node, facts in usage.items():
        for volume in facts.volumes:
            if not volume.is_read_only and (is_full := _is_full(volume)) is not None:
                yield Hit(
                    severity=Severity.ERROR if is_full else None,
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "path": volume.path,
                        "total": size(volume.total_bytes),
                        "free": size(volume.free_bytes),
                        "inodes": "?" if volume.num_free_inodes is None else volume.num_free_inodes,
                    },
                    evidence=seen(
                        f"statvfs {volume.path}",
                        {node: said("{free} of {total} B free", free=volume.free_bytes, total=volume.total_bytes)},
                    ),
                )


def _is_full(volume: Volume) -> bool | None:
    """True: nothing fits any more; False: nearly; None: there is room."""
    if volume.total_bytes <= 0:
        return None  # of a kind that does not count
    share = volume.free_bytes / volume.total_bytes
    if share < FULL_SHARE and volume.free_bytes < FULL_BYTES:
        return True
    if volume.num_inodes and volume.num_free_inodes == 0:
        return True
    return False if share < LOW_SHARE and volume.free_bytes < LOW_BYTES else None
