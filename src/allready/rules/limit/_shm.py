"""What a job needs in /dev/shm; the rules about its size and its fill share it."""

import re

from allready.judging.analysis import Analysis
from allready.judging.stated import stated
from allready.judging.values import wants_nccl
from allready.model import Evidence, GpuFacts, LaunchFacts, LimitFacts, PerNode, SoftwareFacts
from allready.units import GIB, MIB

DOCKER_DEFAULT_BYTES = 64 * MIB
ROOMY_BYTES = GIB

PROXY_POOL_BYTES = 34_210_176
"""One rank's pool of proxy operations, as NCCL 2.28.9 asks for it when a network transport is set up (measured)."""

OLD_PROXY_POOL_BYTES = 4 * MIB
"""The same in the releases with 64 B an operation and 1,024 operations for each of 64 local ranks."""


def needed_bytes(case: Analysis, node: int, launch: PerNode[LaunchFacts]) -> int:
    """Lower bound of what NCCL puts into one node's /dev/shm; 0 on a single node, where it may need nothing."""
    if case.world.num_nodes < 2 or not wants_nccl(node, launch, case.facts(GpuFacts)):
        return 0
    software = case.facts(SoftwareFacts).get(node)
    found = re.match(r"(\d+)\.(\d+)", (software.versions.get("nccl") or "") if software else "")
    is_new = found is not None and (int(found[1]), int(found[2])) >= (2, 28)
    return launch[node].nproc_per_node * (PROXY_POOL_BYTES if is_new else OLD_PROXY_POOL_BYTES)


def shm_evidence(node: int, facts: LimitFacts, needed: int) -> tuple[Evidence, ...]:
    """Size and free space of a node's /dev/shm, beside what NCCL needs there."""
    total, free = facts.shm_total_bytes, facts.shm_free_bytes
    form = "there is no /dev/shm"
    if total is not None:
        form = "total {total} bytes, free {free} bytes; NCCL's lower bound here: {needed} bytes"
    return (stated("statvfs /dev/shm", form, total=total, free=free, needed=needed, node_rank=node),)
