from typing import Any

from msgspec.structs import replace

from allready.model import Bond, BondLink, FactMissing, Fleet, NetFacts, RdmaFacts, RdmaPort, Severity, TransportFacts
from tests.fleets import check, commands, fleet, healthy_node

LACP = "IEEE 802.3ad Dynamic link aggregation"


def bonded(*links: BondLink, used: bool = True, num_nodes: int = 2, **changes: Any) -> Fleet:
    healthy = healthy_node(1, 2)
    assert isinstance(healthy.net, NetFacts)
    assert isinstance(healthy.transport, TransportFacts)
    made = {"name": "bond0", "mode": LACP, "is_up": True, "links": links, "aggregator": 1, **changes}
    name = "bond0.100" if used else "eth5"
    chosen = replace(healthy.transport.nccl, interfaces=(name,))
    return fleet(
        num_nodes,
        net={num_nodes - 1: replace(healthy.net, bonds=(Bond(**made),))},
        transport={num_nodes - 1: replace(healthy.transport, nccl=chosen)},
    )


UP = BondLink(name="eth0", is_up=True, aggregator=1)
OTHER = BondLink(name="eth1", is_up=True, aggregator=1)
DOWN = replace(OTHER, is_up=False)
APART = replace(OTHER, aggregator=2)


def test_names_the_bond_and_its_link_that_is_down() -> None:
    [hit] = check("NET029", bonded(UP, DOWN)).hits
    assert (hit.culprits.nodes, hit.severity) == ((1,), None)
    assert (hit.values["bond"], hit.values["down"], hit.values["apart"], hit.values["num_left"]) == (
        "bond0", "eth1", None, 1,
    )  # fmt: skip
    assert commands("NET029", hit) == ["cat /proc/net/bonding/bond0; ethtool eth1; ip -s link show dev eth1"]


def test_names_the_link_that_the_switch_has_in_another_aggregate() -> None:
    [hit] = check("NET029", bonded(UP, APART)).hits
    assert (hit.values["down"], hit.values["apart"]) == (None, "eth1")
    assert commands("NET029", hit)[1] == "grep -E 'Slave Int|Aggregator' /proc/net/bonding/bond0"


def test_a_bond_of_roce_counts_as_used() -> None:
    port = RdmaPort(
        device="mlx5_bond_0", port=1, state="ACTIVE", physical_state="LinkUp", link_layer="Ethernet", bond="bond0"
    )
    made = bonded(UP, DOWN, used=False)
    node = replace(made.nodes[1], rdma=RdmaFacts(ports=(port,)))
    [hit] = check("NET029", replace(made, nodes={**made.nodes, 1: node})).hits
    assert hit.severity is None


def test_one_that_the_job_does_not_use_or_that_loses_only_its_reserve_is_information() -> None:
    for made in (bonded(UP, DOWN, used=False), bonded(UP, DOWN, mode="fault-tolerance (active-backup)")):
        [hit] = check("NET029", made).hits
        assert hit.severity is Severity.INFO


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    unread = replace(APART, aggregator=None)
    harmless = {
        "all links are up": bonded(UP, OTHER),
        "one link of one": bonded(UP),
        "a bond that is down": bonded(UP, DOWN, is_up=False),
        "all links are down": bonded(replace(UP, is_up=False), DOWN),
        "not root": bonded(UP, APART, aggregator=None),
        "no LACP": bonded(UP, unread, mode="load balancing (xor)"),
        "no bond": fleet(2),
    }
    assert not [name for name, made in harmless.items() if check("NET029", made).hits]


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET029", fleet(2, net={1: FactMissing("no netlink")})).unchecked == {1: "no netlink"}
