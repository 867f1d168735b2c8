"""What a job needs in /dev/shm; the rules about its size and its fill share it."""

import re

from allready.judging.values import GIB, MIB
from allready.model import LaunchFacts, SoftwareFacts, World

DOCKER_DEFAULT_BYTES = 64 * MIB
ROOMY_BYTES = GIB

PROXY_POOL_BYTES = 34_210_176
"""One rank's pool of proxy operations, as NCCL 2.28.9 asks for it when a network transport is set up (measured)."""

OLD_PROXY_POOL_BYTES = 4 * MIB
"""The same in the releases with 64 B an operation and 1,024 operations for each of 64 local ranks."""


def needed_bytes(launch: LaunchFacts, world: World, software: SoftwareFacts | None) -> int:
    """Lower bound of what NCCL puts into one node's /dev/shm; 0 on a single node, where it may need nothing."""
    if world.num_nodes < 2:
        return 0
    found = re.match(r"(\d+)\.(\d+)", (software.versions.get("nccl") or "") if software else "")
    is_new = found is not None and (int(found[1]), int(found[2])) >= (2, 28)
    return launch.nproc_per_node * (PROXY_POOL_BYTES if is_new else OLD_PROXY_POOL_BYTES)
