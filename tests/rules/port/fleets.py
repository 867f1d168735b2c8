"""Partial fleets: what one node knows while it has not got through, and what node 0 knows alone."""

from typing import Any

from msgspec.structs import replace

from allready.model import Fleet, MasterContactFacts, NodeFacts, RollCall, UncheckedKind, World, WorldNode
from allready.text.reasons import reason
from tests.fleets import NPROC, healthy_node, healthy_roll

JOINED_LATER = reason(UncheckedKind.NODE_0_UNREACHED)


def contact(outcome: str, **changes: Any) -> MasterContactFacts:
    """A worker's attempts that ended so."""
    facts = MasterContactFacts(
        outcome=outcome,
        master_addr="10.0.0.1",
        master_port=29500,
        addresses=("10.0.0.1",),
        address="10.0.0.1",
        attempts=5,
        waited_s=4.2,
    )
    return replace(facts, **changes)


def worker_alone(
    outcome: str, *, node: int = 1, num_nodes: int = 4, roll: RollCall | None = None, facts: Any = None, **changes: Any
) -> Fleet:
    """Only this worker's facts; `facts` change others than the contact, `changes` the contact."""
    mine = replace(healthy_node(node, num_nodes), **({"master_contact": contact(outcome, **changes)} | (facts or {})))
    return Fleet(
        world=_world(num_nodes, node),
        nodes={node: mine},
        roll=roll,
        why_not={"roll": JOINED_LATER, "reach": JOINED_LATER, "collectives": JOINED_LATER},
    )


def node_0_alone(num_nodes: int = 4, *, present: tuple[int, ...] = (0,), facts: Any = None, **roll: Any) -> Fleet:
    """Node 0 with a roll in which only `present` are, and their facts; `roll` changes the roll, `facts` node 0's."""
    healthy = healthy_roll(num_nodes)
    called = replace(healthy, claims=tuple(c for c in healthy.claims if c.node_rank in present), waited_s=4.0)
    nodes: dict[int, NodeFacts] = {n: healthy_node(n, num_nodes) for n in present}
    nodes[0] = replace(nodes[0], **(facts or {}))
    return Fleet(world=_world(num_nodes, *present), nodes=nodes, roll=replace(called, **roll))


def _world(num_nodes: int, *known: int) -> World:
    return World(
        num_nodes=num_nodes,
        world_size=num_nodes * NPROC,
        nodes=tuple(
            WorldNode(node_rank=n, name=f"gpu{n}", ranks=tuple(range(n * NPROC, (n + 1) * NPROC))) for n in known
        ),
    )
