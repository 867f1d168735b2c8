import json
import os
import subprocess
import sys

import pytest

from allready.facts.live import LiveHost
from allready.facts.net import collect_net
from allready.facts.transport import choose_gloo, choose_hcas, choose_nccl, collect_transport, version_tuple
from allready.model import FactMissing, InterfaceChoice, NameFacts, NetFacts, RdmaFacts, RdmaPort
from allready.model.fill import in_english
from allready.text.choices import say_choice
from tests.cases import cases
from tests.facts.helpers import LO, interface
from tests.facts.saved_host import SavedHost

ETH0 = interface("eth0", "10.0.0.1/24", "fe80::1/64")
ETH1 = interface("eth1", "10.1.0.1/24")
ETH10 = interface("eth10", "10.10.0.1/24")
IB0 = interface("ib0", "192.168.5.1/24")
IBP = interface("ibp12s0", "192.168.6.1/24")
DOCKER = interface("docker0", "172.17.0.1/16")
VIRBR = interface("virbr0", "192.168.122.1/24")
DOWN = interface("eth7", "10.7.0.1/24", up=False)
BARE = interface("eth8")
SIX = interface("eth6", "fd00::6/64", "fe80::6/64")
MACHINE = (LO, ETH0, ETH1, ETH10, DOCKER, VIRBR, DOWN, BARE, SIX)


def why(choice: InterfaceChoice) -> str:
    """In English."""
    return in_english(say_choice(choice))


@cases(
    ("pattern", "chosen"),
    [
        ("eth0", "eth0"),
        ("eth1", "eth1 eth10"),  # a prefix
        ("eth", "eth0 eth1 eth10 eth6"),
        ("=eth1", "eth1"),
        ("=eth", ""),
        ("eth10,eth0", "eth0 eth10"),  # the machine's order, not the list's
        ("^eth", "lo docker0 virbr0"),
        ("^docker0", "lo eth0 eth1 eth10 virbr0 eth6"),  # the trap: this lets lo in, and first
        ("^docker,lo,virbr", "eth0 eth1 eth10 eth6"),
        ("^=eth1", "lo eth0 eth10 docker0 virbr0 eth6"),
        ("^=eth,lo", "eth0 eth1 eth10 docker0 virbr0 eth6"),
        ("eth0, eth1", "eth0"),  # nothing is trimmed
        (" eth0", ""),
        ("eth0,,", "eth0"),
        (",,", "lo eth0 eth1 eth10 docker0 virbr0 eth6"),  # an empty list matches all
        ("^=", ""),
        ("==eth1", ""),
        ("eth0:1234", "eth0"),  # a port belongs to the syntax
        ("eth7", ""),  # down
        ("eth8", ""),  # no address
        ("eth6", "eth6"),
        ("nope", ""),
        ("x", "eth0 eth1 eth10 eth6"),  # one character counts as not set
        ("", "eth0 eth1 eth10 eth6"),
    ],
)
def test_reads_nccl_socket_ifname_as_nccl_does(pattern: str, chosen: str) -> None:
    choice = choose_nccl(MACHINE, {"NCCL_SOCKET_IFNAME": pattern})
    assert choice.interfaces == tuple(chosen.split())
    assert (choice.failure is None) == bool(chosen)
    assert choice.pattern == pattern
    assert len(choice.addresses) == len(choice.interfaces)


@cases(
    ("machine", "chosen", "reason"),
    [
        ((LO, ETH0, IB0, IBP), "ib0 ibp12s0", "ib*"),
        ((LO, ETH0, ETH1, DOCKER, VIRBR), "eth0 eth1", "all but"),
        ((LO, DOCKER), "docker0", "docker*"),
        ((LO, VIRBR), "lo", "lo*"),
        ((VIRBR,), "virbr0", "virbr*"),
        ((LO, DOWN), "lo", "lo*"),
        ((LO, interface("lowpan0", "10.9.0.1/24")), "lo lowpan0", "lo*"),  # prefixes cut both ways
        ((SIX, ETH0), "eth0 eth6", "all but"),  # IPv4 addresses of all interfaces come first
        ((), "", "no interface"),
    ],
)
def test_searches_in_nccls_order_when_nothing_is_set(machine: tuple[object, ...], chosen: str, reason: str) -> None:
    choice = choose_nccl(machine, {})  # type: ignore[arg-type]
    assert choice.interfaces == tuple(chosen.split())
    assert reason in why(choice)
    assert (choice.failure is None) == bool(chosen)


def test_knows_what_changed_in_nccl_2_28() -> None:
    machine = (LO, VIRBR, DOWN)
    assert choose_nccl(machine, {}, version=(2, 27)).interfaces == ("virbr0", "eth7")
    assert choose_nccl(machine, {}, version=(2, 28)).interfaces == ("lo",)
    assert choose_nccl((DOWN,), {"NCCL_SOCKET_IFNAME": "eth7"}, version=(2, 21)).failure is None


@pytest.mark.parametrize(
    ("family", "chosen", "address"),
    [("AF_INET", "eth0", "10.0.0.1"), ("AF_INET6", "eth0 eth6", "fe80::1"), ("INET6", "eth0 eth6", "10.0.0.1")],
)
def test_forces_the_family(family: str, chosen: str, address: str) -> None:
    choice = choose_nccl((LO, ETH0, SIX), {"NCCL_SOCKET_FAMILY": family})
    assert (choice.interfaces, choice.addresses[0]) == (tuple(chosen.split()), address)


def test_says_that_the_forced_family_is_why_nothing_is_left() -> None:
    choice = choose_nccl((LO, ETH1), {"NCCL_SOCKET_FAMILY": "AF_INET6", "NCCL_SOCKET_IFNAME": "eth1"})
    assert choice.interfaces == ()
    assert why(choice) == "eth1 matches eth1, but is down or has no address with NCCL_SOCKET_FAMILY=AF_INET6"


def test_never_takes_the_ipv6_loopback_address() -> None:
    choice = choose_nccl((interface("lo", "::1/128"),), {})
    assert choice.interfaces == ()


def test_takes_at_most_sixteen() -> None:
    machine = [interface(f"eth{i}", f"10.0.{i}.1/24") for i in range(20)]
    assert len(choose_nccl(machine, {}).interfaces) == 16


@pytest.mark.parametrize(
    ("comm_id", "chosen"),
    [
        ("10.1.0.9:5000", "eth1 eth0 eth10"),
        ("[fd00::9]:5000", "eth6 eth0 eth1 eth10"),
        ("head:5000", "eth10 eth0 eth1"),
    ],
)
def test_the_bootstrap_follows_nccl_comm_id(comm_id: str, chosen: str) -> None:
    machine = (LO, ETH0, ETH1, ETH10, interface("eth6", "fd00::6/64"))
    choice = choose_nccl(
        machine,
        {"NCCL_COMM_ID": comm_id, "NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_SOCKET_IFNAME": "eth"},
        resolve=lambda name: ("10.10.0.7",) if name == "head" else (),
    )
    assert choice.interfaces == tuple(chosen.split())
    assert choice.failure is None


def test_fails_when_nccl_comm_id_is_in_no_subnet_here() -> None:
    assert "10.99.0.1" in why(choose_nccl((LO, ETH0), {"NCCL_COMM_ID": "10.99.0.1:5"}))
    assert choose_nccl((LO, ETH0), {"NCCL_COMM_ID": "unknown:5"}).failure


@cases(
    ("pattern", "chosen", "error"),
    [
        ("eth0", "eth0", None),
        ("eth0,eth1", "eth0 eth1", None),
        ("eth1,eth0", "eth1 eth0", None),  # in the list's order
        ("eth", "", "called eth"),
        ("^docker", "", "NCCL's syntax"),
        ("=eth0", "", "NCCL's syntax"),
        (" eth0", "", "blanks"),
        ("eth0,", "eth0", None),
        ("eth0,,", "eth0", "comma"),
        (",eth0", "eth0", "comma"),
        ("eth8", "", "no address"),
        ("eth7", "eth7", None),  # Gloo does not look whether it is up
        ("nope,eth0", "eth0", "nope"),
    ],
)
def test_reads_gloo_socket_ifname_as_torch_does(pattern: str, chosen: str, error: str | None) -> None:
    choice = choose_gloo(MACHINE, {"GLOO_SOCKET_IFNAME": pattern}, own_addresses=("10.0.0.1",))
    assert choice.interfaces == tuple(chosen.split())
    assert choice.failure is None if error is None else error in why(choice)


@cases(
    ("own", "chosen", "address", "reason"),
    [
        (("10.1.0.1",), "eth1", "10.1.0.1", "resolves to it"),
        (("127.0.1.1",), "lo", "127.0.1.1", "resolves to it"),  # Debian's /etc/hosts
        (("10.99.0.1", "10.0.0.1"), "eth0", "10.0.0.1", "resolves to it"),
        (("10.99.0.1",), "lo", "127.0.0.1", "no address of this node"),
        (("fe80::1%eth0",), "eth0", "fe80::1", "resolves to it"),
        ((), "lo", "127.0.0.1", "does not resolve"),
        (("garbage",), "lo", "127.0.0.1", "no address of this node"),
    ],
)
def test_gloo_takes_what_the_host_name_resolves_to(
    own: tuple[str, ...], chosen: str, address: str, reason: str
) -> None:
    for environ in ({}, {"GLOO_SOCKET_IFNAME": ""}, {"GLOO_SOCKET_IFNAME": "e"}):
        choice = choose_gloo(MACHINE, environ, own_addresses=own)
        assert (choice.interfaces, choice.addresses) == ((chosen,), (address,))
        assert reason in why(choice)


def test_gloo_fails_without_loopback() -> None:
    assert "lo" in why(choose_gloo((ETH0,), {}))


def test_gloo_prefers_the_ipv4_address_of_an_interface() -> None:
    assert choose_gloo((interface("eth0", "fd00::1/64", "10.0.0.1/24"),), {"GLOO_SOCKET_IFNAME": "eth0"}).addresses == (
        "10.0.0.1",
    )


def test_nccl_reads_its_configuration_file_where_the_environment_is_silent() -> None:
    net = NetFacts(interfaces=(LO, ETH0, ETH1))
    names = NameFacts(own_name="a", own_addresses=("10.0.0.1",), master_name="a", master_addresses=("10.0.0.1",))
    files = {"/etc/nccl.conf": "# site\nNCCL_SOCKET_IFNAME=eth1\n", "/root/.nccl.conf": "NCCL_DEBUG=WARN\n"}

    def pattern(**environ: str) -> InterfaceChoice:
        host = SavedHost({"files": files, "environ": {"HOME": "/root", **environ}})
        return collect_transport(host, net=net, names=names, nccl_version="2.28.9").nccl

    assert pattern().interfaces == ("eth1",)
    assert pattern(NCCL_SOCKET_IFNAME="eth0").interfaces == ("eth0",)


def test_needs_the_interfaces() -> None:
    with pytest.raises(Exception, match="netlink refused"):
        collect_transport(SavedHost({}), net=FactMissing("netlink refused"), names=FactMissing("x"), nccl_version=None)


@cases(("text", "number"), [("2.28.9", (2, 28)), ("2.18", (2, 18)), ("", None), (None, None)])
def test_reads_a_version(text: str | None, number: tuple[int, int] | None) -> None:
    assert version_tuple(text) == number


@pytest.mark.torch
@pytest.mark.newest
def test_agrees_with_the_real_gloo_about_what_fails() -> None:
    net = collect_net(LiveHost())
    known = next(i.name for i in net.interfaces if i.is_loopback)
    bare = next((i.name for i in net.interfaces if not i.addresses), "nope")
    patterns = [
        known,
        f"{known},",
        f",{known}",
        f"{known},,",
        f"^{known}",
        f"={known}",
        f" {known}",
        bare,
        "nope",
        "",
        "l",
    ]
    child = """
import datetime, json, os, sys
import torch.distributed as dist
failed = []
wait = datetime.timedelta(seconds=20)
for pattern in json.loads(sys.argv[1]):
    os.environ["GLOO_SOCKET_IFNAME"] = pattern
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=wait)
        dist.destroy_process_group()
    except RuntimeError:
        failed.append(pattern)
print(json.dumps(failed))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", child, json.dumps(patterns)],
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
        env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"},
    )
    really = set(json.loads(done.stdout.splitlines()[-1]))
    ours = {p for p in patterns if choose_gloo(net.interfaces, {"GLOO_SOCKET_IFNAME": p}).failure}
    assert ours == really
    assert f"^{known}" in really


def port(device: str, number: int = 1, *, layer: str = "InfiniBand", state: str = "ACTIVE") -> RdmaPort:
    return RdmaPort(device=device, port=number, state=state, physical_state="LinkUp", link_layer=layer)


RAILS = RdmaFacts(
    ports=(
        port("mlx5_0"),
        port("mlx5_1"),
        port("mlx5_10"),
        port("mlx5_2", state="DOWN"),
        port("mlx5_bond_0", layer="Ethernet"),
        port("rdmap0s29", layer="Unspecified"),
    )
)


@cases(
    "environ, taken, by",
    [
        ({}, "mlx5_0:1 mlx5_1:1 mlx5_10:1 mlx5_bond_0:1", ""),
        ({"NCCL_IB_HCA": "mlx5_1"}, "mlx5_1:1 mlx5_10:1", "NCCL_IB_HCA=mlx5_1"),
        ({"NCCL_IB_HCA": "=mlx5_1"}, "mlx5_1:1", "NCCL_IB_HCA==mlx5_1"),
        ({"NCCL_IB_HCA": "^mlx5_bond_0"}, "mlx5_0:1 mlx5_1:1 mlx5_10:1", "NCCL_IB_HCA=^mlx5_bond_0"),
        ({"NCCL_IB_HCA": "mlx5_0:2"}, "", "NCCL_IB_HCA=mlx5_0:2"),
        ({"NCCL_IB_HCA": "mlx4"}, "", "NCCL_IB_HCA=mlx4"),
        ({"NCCL_IB_DISABLE": "1"}, "", "NCCL_IB_DISABLE=1"),
        ({"NCCL_IB_DISABLE": "0"}, "mlx5_0:1 mlx5_1:1 mlx5_10:1 mlx5_bond_0:1", ""),
    ],
)
def test_the_rdma_ports_that_nccl_takes(environ: dict[str, str], taken: str, by: str) -> None:
    found = choose_hcas(RAILS, environ)
    assert (" ".join(found["hcas"]), found["hcas_by"]) == (taken, by)


def test_without_rdma_nothing_is_said_of_its_ports() -> None:
    assert choose_hcas(RdmaFacts(ports=()), {"NCCL_IB_HCA": "mlx5"}) == {"hcas": (), "hcas_by": ""}
    assert choose_hcas(FactMissing("no /sys"), {}) == {}
