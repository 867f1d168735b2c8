"""InfiniBand and RoCE ports of a fleet, port by port."""

from collections.abc import Mapping

from allready.judging.majority import is_minority
from allready.model import RdmaFacts, RdmaPort

Place = tuple[str, int]
"""Device and port: namesakes on different nodes are taken to do the same duty."""


def by_place(rdma: Mapping[int, RdmaFacts]) -> dict[Place, dict[int, RdmaPort]]:
    """Place -> node -> port."""
    found: dict[Place, dict[int, RdmaPort]] = {}
    for node, facts in rdma.items():
        for port in facts.ports:
            found.setdefault((port.device, port.port), {})[node] = port
    return found


def down_places(rdma: Mapping[int, RdmaFacts]) -> dict[Place, tuple[int, ...]]:
    """Ports that are not ACTIVE on few nodes and ACTIVE on the others: place -> the nodes where they are not.

    Few: one of two nodes, else less than half; more than that is a port that the cluster does not use.
    """
    found: dict[Place, tuple[int, ...]] = {}
    for place, ports in by_place(rdma).items():
        down = tuple(n for n, port in ports.items() if port.state != "ACTIVE")
        if down and (is_minority(len(down), len(ports)) or (len(down) == 1 and len(ports) == 2)):
            found[place] = down
    return found
