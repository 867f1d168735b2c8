from typing import Any

import pytest

from allready.errors import FactUnavailable
from allready.facts.live import LiveHost
from allready.facts.net import collect_net, parse_interfaces, parse_ipv6_routes, parse_routes
from allready.facts.probes import _interfaces_by_psutil
from allready.model import Route
from tests.cases import cases
from tests.facts.helpers import json_in_namespace
from tests.facts.saved_host import SavedHost

ROUTE = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\tFE00000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
ib0\t010AA8C0\t00000000\t0001\t0\t0\t0\t00FEFFFF\t0\t0\t0
eth1\t00000B0A\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0
*\t00000C0A\t00000000\t0200\t0\t0\t0\t00FFFFFF\t0\t0\t0
broken line
"""
ROUTE6 = """\
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0
00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo
ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
"""  # noqa: E501 - as the kernel prints it


def row(**changes: Any) -> dict[str, Any]:
    healthy = {
        "name": "eth0",
        "flags": 0x1043,
        "mtu": 9000,
        "hwtype": 1,
        "mac": "02:00:00:00:00:01",
        "link_kind": None,
        "driver": "mlx5_core",
        "speed_mbit_per_s": 100_000,
        "addresses": ["10.0.0.1/24"],
    }
    return {**healthy, **changes}


def test_reads_ipv4_routes_that_are_up() -> None:
    assert list(parse_routes(ROUTE)) == [
        Route(destination="0.0.0.0/0", interface="eth0", gateway="10.0.0.254", metric=100),
        Route(destination="10.0.0.0/24", interface="eth0", metric=100),
    ]


def test_leaves_out_a_route_whose_mask_does_not_fit() -> None:
    assert "ib0" not in {r.interface for r in parse_routes(ROUTE)}


def test_reads_ipv6_routes_that_lead_off_the_machine() -> None:
    assert list(parse_ipv6_routes(ROUTE6)) == [
        Route(destination="fd00::/64", interface="eth0", metric=256),
        Route(destination="::/0", interface="eth0", gateway="fd00::1", metric=1024),
    ]


@cases(
    ("changes", "kind"),
    [
        ({}, "ethernet"),
        ({"link_kind": "veth", "driver": "veth"}, "veth"),
        ({"link_kind": "bridge"}, "bridge"),
        ({"link_kind": None, "driver": "bridge"}, "bridge"),  # as psutil's fallback knows it
        ({"link_kind": "vlan"}, "vlan"),
        ({"link_kind": "bond"}, "bond"),
        ({"link_kind": "ipoib", "hwtype": 32}, "infiniband"),
        ({"hwtype": 32}, "infiniband"),
        ({"link_kind": "tun", "hwtype": 65534}, "tunnel"),
        ({"hwtype": 776}, "tunnel"),
        ({"link_kind": "dummy"}, "other"),
        ({"hwtype": 280}, "other"),
        ({"name": "wlan0"}, "wireless"),
        ({"name": "lo", "flags": 0x49, "hwtype": 772}, "loopback"),
    ],
)
def test_tells_the_kind(changes: dict[str, Any], kind: str) -> None:
    assert parse_interfaces([row(**changes)], {"wlan0"})[0].kind == kind


@cases(("flags", "up"), [(0x1043, True), (0x1003, False), (0x1002, False), (0x1042, False)])
def test_is_up_when_switched_on_and_running(flags: int, up: bool) -> None:
    assert parse_interfaces([row(flags=flags)], set())[0].is_up is up


@cases("answer", [None, 3, {}, [None], [{}], [row(mtu="x")], [row(addresses=["10.0.0.1/99"])], [[]]])
def test_says_when_the_answer_is_garbage(answer: Any) -> None:
    if answer == {}:
        assert parse_interfaces(answer, set()) == []
    else:
        with pytest.raises(FactUnavailable):
            parse_interfaces(answer, set())


def test_keeps_interfaces_with_addresses_when_there_are_too_many() -> None:
    rows = [row(name=f"cali{i}", addresses=[]) for i in range(300)] + [row(name="eth9")]
    net = collect_net(SavedHost({"probes": {"interfaces": rows}}))
    assert net.interfaces[0].name == "eth9"
    assert len(net.interfaces) == 96


def test_reads_the_port_range_and_mtu_probing() -> None:
    files = {"/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n", "/proc/sys/net/ipv4/tcp_mtu_probing": "1\n"}
    files |= {f"/proc/sys/net/ipv4/conf/{n}/rp_filter": v for n, v in (("all", "1"), ("eth0", "0"), ("lo", "2"))}
    files["/proc/sys/net/ipv4/tcp_retries2"] = "5"
    net = collect_net(SavedHost({"probes": {"interfaces": []}, "files": files}))
    assert (net.local_port_range, net.tcp_mtu_probing, net.tcp_retries2) == ((32768, 60999), 1, 5)
    live = collect_net(LiveHost())
    assert set(live.rp_filter) == {i.name for i in live.interfaces if i.addresses}
    bare = collect_net(SavedHost({"probes": {"interfaces": []}}))
    assert (bare.local_port_range, bare.tcp_mtu_probing, bare.routes) == (None, None, ())


def test_this_machine_has_a_loopback_interface() -> None:
    lo = collect_net(LiveHost()).interface("lo")
    assert lo is not None
    assert (lo.is_loopback, lo.kind, lo.mtu_bytes) == (True, "loopback", 65536)


def test_psutil_and_netlink_agree_on_names_addresses_and_mtu() -> None:
    ours = collect_net(LiveHost())
    other = parse_interfaces(_interfaces_by_psutil(), set())
    assert {i.name: (i.addresses, i.mtu_bytes) for i in ours.interfaces} == {
        i.name: (i.addresses, i.mtu_bytes) for i in other
    }
    order = [i.name for i in ours.interfaces if i.addresses]
    assert [i.name for i in other if i.addresses] == order


def test_sees_the_interfaces_of_its_own_namespace_although_sys_shows_another() -> None:
    found = json_in_namespace("""
        ip link set lo up
        ip link add veth7 mtu 1400 type veth peer name peer7
        ip link set peer7 up; ip link set veth7 up; ip addr add 10.7.0.1/24 dev veth7
        ip addr add 10.7.1.1/24 dev veth7 label veth7:1
        ip link add br7 mtu 9000 type bridge; ip link set br7 up
        ip link add veth8 type veth peer name peer8; ip addr add 10.8.0.1/16 dev veth8; ip link set veth8 up
        ip tuntap add dev tap7 mode tap
        ip route add 10.99.0.0/16 via 10.7.0.2 metric 50
        ip link add veth9 type veth peer name peer9; ip addr add 10.9.0.1/24 dev veth9; ip link set veth9 up
        ip link set peer9 up; ip route add 10.98.0.0/16 nexthop via 10.7.0.3 dev veth7 nexthop via 10.9.0.3 dev veth9
        ip rule add from 10.7.0.0/24 priority 100 lookup 42; ip rule add fwmark 0x10 oif veth7 priority 90 lookup main
        ip -6 rule add to fd00::/8 priority 80 lookup 300
        $PYTHON -c '
import json, msgspec
from allready.facts.net import collect_net
from allready.facts.live import LiveHost
print(json.dumps(msgspec.to_builtins(collect_net(LiveHost()))))'
    """)
    by_name = {i["name"]: i for i in found["interfaces"]}
    assert {n: i["kind"] for n, i in by_name.items()} == {
        "lo": "loopback",
        "veth7": "veth",
        "veth7:1": "veth",
        "peer7": "veth",
        "veth8": "veth",
        "peer8": "veth",
        "veth9": "veth",
        "peer9": "veth",
        "br7": "bridge",
        "tap7": "tunnel",
    }
    assert (by_name["veth7"]["mtu_bytes"], by_name["br7"]["mtu_bytes"]) == (1400, 9000)
    assert by_name["veth7"]["is_up"]
    assert by_name["veth7"]["addresses"][0] == "10.7.0.1/24"
    assert by_name["veth7:1"]["addresses"] == ["10.7.1.1/24"]  # getifaddrs gives a label its own name
    assert not by_name["veth8"]["is_up"]  # switched on, with an address, but its other end is down: no carrier
    assert not by_name["peer8"]["is_up"]
    assert found["routing_rules"] == [
        {"text": "90: from all oif veth7 fwmark 0x10 lookup main", "source": None, "is_marked": True},
        {"text": "100: from 10.7.0.0/24 lookup 42", "source": "10.7.0.0/24", "is_marked": False},
        {"text": "80: from all to fd00::/8 lookup 300", "source": None, "is_marked": False},
    ]
    route = {"destination": "10.99.0.0/16", "interface": "veth7", "gateway": "10.7.0.2", "metric": 50}
    assert {**route, "is_shared": False} in found["routes"]
    ways = [(r["interface"], r["gateway"]) for r in found["routes"] if r["destination"] == "10.98.0.0/16"]
    assert ways == [("veth7", "10.7.0.3"), ("veth9", "10.9.0.3")]
    assert all(r["is_shared"] for r in found["routes"] if r["destination"] == "10.98.0.0/16")
