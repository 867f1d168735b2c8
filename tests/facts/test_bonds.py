"""The text is that of drivers/net/bonding/bond_procfs.c of Linux 5.15 and 6.8."""

from typing import Any

from allready.facts.bonds import bonds, parse_bond
from allready.model import Bond, BondLink
from tests.facts.saved_host import SavedHost

LACP = """\
Ethernet Channel Bonding Driver: v5.15.0-91-generic

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer3+4 (1)
MII Status: up
MII Polling Interval (ms): 100
Up Delay (ms): 0
Down Delay (ms): 0
Peer Notification Delay (ms): 0

802.3ad info
LACP active: on
LACP rate: fast
Min links: 0
Aggregator selection policy (ad_select): stable
System priority: 65535
System MAC address: 02:00:00:00:00:01
Active Aggregator Info:
\tAggregator ID: 2
\tNumber of ports: 1
\tActor Key: 21
\tPartner Key: 1001
\tPartner Mac Address: 02:00:00:00:00:99

Slave Interface: ens1f0np0
MII Status: up
Speed: 100000 Mbps
Duplex: full
Link Failure Count: 0
Permanent HW addr: 02:00:00:00:00:01
Slave queue ID: 0
Aggregator ID: 2
Actor Churn State: none
Partner Churn State: none
Actor Churned Count: 0
Partner Churned Count: 0
details actor lacp pdu:
    system priority: 65535
    port state: 63
details partner lacp pdu:
    oper key: 1001
    port state: 63

Slave Interface: ens1f1np1
MII Status: up
Speed: 100000 Mbps
Aggregator ID: 3

Slave Interface: ens2f0np0
MII Status: down
Speed: Unknown
Duplex: Unknown
Link Failure Count: 7
Aggregator ID: 4
"""
BACKUP = """\
Ethernet Channel Bonding Driver: v6.8.0

Bonding Mode: fault-tolerance (active-backup) (fail_over_mac active)
Primary Slave: ib0 (primary_reselect always)
Currently Active Slave: ib1
MII Status: up

Slave Interface: ib0
MII Status: going back

Slave Interface: ib1
MII Status: up
"""


def test_reads_modes_links_and_aggregates() -> None:
    assert parse_bond("bond0", LACP) == Bond(
        name="bond0",
        mode="IEEE 802.3ad Dynamic link aggregation",
        is_up=True,
        aggregator=2,
        links=(
            BondLink(name="ens1f0np0", is_up=True, aggregator=2),
            BondLink(name="ens1f1np1", is_up=True, aggregator=3),
            BondLink(name="ens2f0np0", is_up=False, aggregator=4),
        ),
    )


def test_without_root_the_active_aggregate_is_not_told() -> None:
    hidden = LACP[: LACP.index("System priority")] + LACP[LACP.index("\nSlave Interface") :]
    bond = parse_bond("bond0", hidden)
    assert bond is not None
    assert (bond.aggregator, len(bond.links)) == (None, 3)


def test_reads_a_bond_with_a_reserve() -> None:
    bond = parse_bond("bond1", BACKUP)
    assert bond is not None
    assert (bond.active, [link.is_up for link in bond.links]) == ("ib1", [False, True])


def test_lists_those_of_a_machine_and_passes_over_what_is_none() -> None:
    files = {"bond0": LACP, "bond1": "", "x": "Slave Interface: a"}
    answers: dict[str, dict[str, Any]] = {
        "dirs": {"/proc/net/bonding": list(files)},
        "files": {f"/proc/net/bonding/{name}": text for name, text in files.items()},
    }
    assert [bond.name for bond in bonds(SavedHost(answers))] == ["bond0"]
    assert list(bonds(SavedHost({}))) == []
