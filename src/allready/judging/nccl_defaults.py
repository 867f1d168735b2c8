"""Which nodes' ranks will use NCCL: `values.wants_nccl`, asked once for all nodes."""

from collections.abc import Iterable

from allready.judging.values import wants_nccl
from allready.model import GpuFacts, LaunchFacts, PerNode


def nccl_nodes(
    nodes: Iterable[int], launch: PerNode[LaunchFacts] | None, gpu: PerNode[GpuFacts] | None
) -> frozenset[int]:
    """The nodes among `nodes` that will use NCCL; a node of whose job nothing is known is taken to use it."""
    by_backend: dict[str | None, bool] = {}
    found: set[int] = set()
    for node in nodes:
        if launch is None or node not in launch:
            found.add(node)
            continue
        backend = launch[node].backend
        if backend not in by_backend:
            by_backend[backend] = wants_nccl(node, launch, gpu)
        if by_backend[backend]:
            found.add(node)
    return frozenset(found)
