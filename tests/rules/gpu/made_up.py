"""Parts of made-up nodes that the tests of this area share."""

from typing import Any

from msgspec.structs import replace

from allready.model import Fleet, Gpu, GpuFacts, LaunchFacts
from tests.fleets import GIB, healthy_node


def gpus(node_rank: int = 0, *, num: int = 2, **changes: Any) -> GpuFacts:
    """`num` GPUs as a healthy node has them, all visible, then changed as said."""
    healthy = healthy_node(node_rank, 2).gpu
    assert isinstance(healthy, GpuFacts)
    made = tuple(replace(healthy.gpus[0], index=i, uuid=f"GPU-{node_rank:04d}-{i}") for i in range(num))
    return replace(healthy, **{"gpus": made, "visible": tuple(range(num)), **changes})


def gpu(index: int = 0, **changes: Any) -> Gpu:
    """One H200, changed as said."""
    healthy = Gpu(
        index=index,
        uuid=f"GPU-0000-{index}",
        name="NVIDIA H200",
        pci_bus_id="0",
        memory_total_bytes=140 * GIB,
        memory_used_bytes=GIB // 2,
    )
    return replace(healthy, **changes)


def launched(made: Fleet, **changes: Any) -> Fleet:
    """The fleet with the launch facts of all nodes changed."""
    nodes = {}
    for node_rank, node in made.nodes.items():
        assert isinstance(node.launch, LaunchFacts)
        nodes[node_rank] = replace(node, launch=replace(node.launch, **changes))
    return replace(made, nodes=nodes)


def launched_on(made: Fleet, node_rank: int, **changes: Any) -> Fleet:
    """The fleet with the launch facts of one node changed."""
    node = made.nodes[node_rank]
    assert isinstance(node.launch, LaunchFacts)
    nodes = {**made.nodes, node_rank: replace(node, launch=replace(node.launch, **changes))}
    return replace(made, nodes=nodes)
