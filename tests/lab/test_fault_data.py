"""Faults as data: read from words and files, checked, written again.  Needs no namespaces."""

import dataclasses
import json
from pathlib import Path

import pytest

from allready.errors import UsageError
from allready.lab.faults import (
    FAULTS,
    DataPortsDropped,
    Fault,
    HostsLoopback,
    IdleForgotten,
    MtuBlackHole,
    OneWayDrop,
    PortDropped,
    RandomLoss,
    SecondInterface,
    StartLate,
    TinyShm,
    from_file,
    from_mapping,
    from_words,
)
from allready.lab.hosts import HostsEdit, render, rewrite
from allready.lab.network import LabView
from allready.text.ui import table
from tests.cases import cases

LAB = LabView.checked(3, "10.77.0.0/24", "fd00:77::/64", 1500)

EXAMPLES: dict[str, Fault] = {
    "do_not_start node=1": FAULTS["do_not_start"](node=1),  # type: ignore[call-arg]
    "start_late node=1 delay_s=2.5": StartLate(node=1, delay_s=2.5),
    "port_dropped node=node0 port=29500 source=2 start_s=1 end_s=2": PortDropped(
        node=0, port=29500, source=2, start_s=1, end_s=2
    ),
    "data_ports_dropped node=0 keep=29500,29501": DataPortsDropped(node=0, keep=(29500, 29501)),
    "one_way_drop source=0 target=1": OneWayDrop(source=0, target=1),
    "idle_forgotten node=1 idle_s=90": IdleForgotten(node=1, idle_s=90),
    "mtu_black_hole node=1 limit_bytes=1300": MtuBlackHole(node=1, limit_bytes=1300),
    "random_loss node=1 percent=0.5 direction=in": RandomLoss(node=1, percent=0.5, direction="in"),
    "tiny_shm node=0 size_bytes=64M": TinyShm(node=0, size_bytes=64 * 1024**2),
    "hosts_loopback node=1 name=node0": HostsLoopback(node=1, name="node0"),
    "second_interface nodes=0,1 carrier=false": SecondInterface(nodes=(0, 1), carrier=False),
}


@cases(("words", "fault"), EXAMPLES.items())
def test_reads_a_fault_from_words_and_gives_it_back_as_data(words: str, fault: Fault) -> None:
    assert from_words(words.split()) == fault
    assert from_mapping(json.loads(json.dumps(fault.as_dict()))) == fault


def test_reads_faults_from_toml_and_json(tmp_path: Path) -> None:
    toml, listed = tmp_path / "faults.toml", tmp_path / "faults.json"
    toml.write_text(
        '[[fault]]\nfault = "port_dropped"\nnode = 0\nport = 29500\n[[fault]]\nfault = "link_down"\nnode = 1\n'
    )
    listed.write_text('[{"fault": "port_dropped", "node": 0, "port": 29500}, {"fault": "link_down", "node": 1}]')
    assert from_file(toml) == from_file(listed)
    assert [fault.kind for fault in from_file(toml)] == ["port_dropped", "link_down"]


@cases(
    ("words", "says"),
    [
        ("", "unknown fault ''; valid: do_not_start, start_late"),
        ("earthquake node=0", "unknown fault 'earthquake'"),
        ("port_dropped", "needs node and port; its parameters: node=N port=N"),
        ("port_dropped node=0 prot=1", "has no parameter 'prot'"),
        ("port_dropped node=0 port=70000", "port is 1 to 65535, not 70000"),
        ("port_dropped node=x port=1", "Expected `int`"),
        ("port_dropped node=0 port=1 protocol=icmp", "icmp"),
        ("port_dropped node=0 port=1 port=2", "write each parameter once"),
        ("port_dropped node=0 29500", "write each parameter once, as NAME=VALUE"),
        ("one_way_drop source=1 target=1", "the same node"),
        ("idle_forgotten node=1 idle_s=0", "1 to 86400"),
        ("mtu_black_hole node=0 limit_bytes=10", "68 to 65535"),
        ("mtu_black_hole node=0 peer=0", "are the same"),
        ("random_loss node=0 percent=101", "0.001 to 100"),
        ("slow_link node=0 rate_mbit_per_s=nan", "rate_mbit_per_s is"),
        ("interface_mtu node=0 mtu_bytes=100", "1280 to 65535"),
        ("second_interface nodes=", "at least one"),
        ("second_interface nodes=0 ifname=eth0", "no name for a second interface"),
        ("second_interface nodes=0 address=here", "no address"),
        ("hosts_entry node=0 name=a;b address=1.2.3.4", "no host name"),
        ("hosts_entry node=0 name=a address=1.2.3", "no IP address"),
        ("tiny_shm node=0 size_bytes=1", "at least 4096"),
        ("start_late node=0 delay_s=0", "delay_s is above 0"),
        ("link_down node=0 start_s=-1", "start_s"),
        ("link_down node=0 start_s=5 end_s=4", "end_s must be later"),
    ],
)
def test_says_what_is_wrong_with_a_fault(words: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_words(words.split())
    assert says in str(caught.value)


@cases("text", ["fault = 1", "[fault]\nnode = 1", "[[fault", "[[fault]]\nnode = 1"])
def test_says_what_is_wrong_with_a_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(text)
    with pytest.raises(UsageError):
        from_file(path)
    with pytest.raises(UsageError, match="cannot read faults"):
        from_file(tmp_path / "missing.toml")


def test_every_fault_is_immutable_and_described_and_nothing_else_is() -> None:
    for fault in FAULTS.values():
        assert dataclasses.is_dataclass(fault)
        assert fault.__hash__ is not None
    described = {key.removeprefix("fault_") for key in table("en", "lab") if key.startswith("fault_")}
    assert described - {"list_footer"} == set(FAULTS)


def test_hosts_has_every_node_under_one_address_per_name() -> None:
    lines = render(LAB).splitlines()
    assert "10.77.0.3\tnode2" in lines
    assert "fd00:77::3\tnode2-v6" in lines
    names = [line.split()[1] for line in lines]
    assert len(names) == len(set(names))


def test_hosts_edits_replace_add_and_remove() -> None:
    edits = [HostsEdit(0, "node1", "127.0.1.1"), HostsEdit(0, "node2", None), HostsEdit(0, "new", "10.0.0.1")]
    text = render(LAB, edits)
    assert "127.0.1.1\tnode1\n" in text
    assert "10.77.0.2" not in text
    assert "node2\n" not in text
    assert text.endswith("10.0.0.1\tnew\n")


@pytest.mark.parametrize("text", ["short\n", "much longer than before, on one line\n" * 3])
def test_hosts_is_rewritten_in_place_because_a_bind_mount_follows_the_inode(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts"
    path.write_text("some lines\nof before\n")
    inode = path.stat().st_ino
    rewrite(path, text)
    assert (path.read_text(), path.stat().st_ino) == (text, inode)


@cases(
    ("num_nodes", "subnet", "subnet6", "mtu_bytes"),
    [
        (0, "10.77.0.0/24", "", 1500),
        (201, "10.0.0.0/8", "", 1500),
        (7, "10.77.0.0/29", "", 1500),
        (2, "10.77.0.1/24", "", 1500),
        (2, "here", "", 1500),
        (2, "127.0.0.0/8", "", 1500),
        (2, "224.0.0.0/24", "", 1500),
        (2, "10.77.0.0/24", "fd00::/127", 1500),
        (2, "10.77.0.0/24", "", 100),
    ],
)
def test_refuses_networks_that_cannot_be(num_nodes: int, subnet: str, subnet6: str, mtu_bytes: int) -> None:
    with pytest.raises(UsageError):
        LabView.checked(num_nodes, subnet, subnet6, mtu_bytes)
