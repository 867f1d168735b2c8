"""Faults of cables and interfaces, proven by traffic."""

import pytest

from allready.errors import LabError, UsageError
from allready.lab import Lab
from allready.lab.faults import InterfaceMtu, LinkDown, SecondInterface, SlowLink

from .traffic import arriving, reach, reaches_within, seconds, serving

pytestmark = pytest.mark.lab


def read(lab: Lab, node: int, path: str) -> str:
    return lab.run(node, ["cat", path]).stdout.strip()


def fastest(lab: Lab, source: int, target: str) -> float:
    """Seconds for 1 MB, the best of some tries: a busy machine is no slow link."""
    took_s = seconds(lab, source, target, 5000, 1_000_000)
    for _ in range(9):
        if took_s >= 0.5:
            took_s = min(took_s, seconds(lab, source, target, 5000, 1_000_000))
    return took_s


def test_link_down_takes_the_carrier_and_the_traffic_of_one_node(lab3: Lab) -> None:
    with serving(lab3, 0, 5000):
        with lab3.apply(LinkDown(node=0)):
            assert read(lab3, 0, "/sys/class/net/eth0/carrier") == "0"
            assert read(lab3, 1, "/sys/class/net/eth0/carrier") == "1"
            assert reach(lab3, 1, "node0", 5000) in {"silent", "no-route"}
            assert arriving(lab3, 1, 2) == 5
        assert reaches_within(lab3, 1, "node0", 5000)
        assert reach(lab3, 1, "node0-v6", 5001) == "refused"  # addresses of both families are still there


def test_slow_link_limits_the_rate_in_both_directions(lab2: Lab) -> None:
    with serving(lab2, 0, 5000), serving(lab2, 1, 5000):
        with lab2.apply(SlowLink(node=1, rate_mbit_per_s=8)):  # 1 MB/s
            assert 0.7 < seconds(lab2, 0, "node1", 5000, 1_000_000) < 15
            assert 0.7 < seconds(lab2, 1, "node0", 5000, 1_000_000) < 15
        assert fastest(lab2, 0, "node1") < 0.5


def test_slow_link_can_be_slow_in_one_direction(lab2: Lab) -> None:
    with (
        serving(lab2, 0, 5000),
        serving(lab2, 1, 5000),
        lab2.apply(SlowLink(node=1, rate_mbit_per_s=8, direction="out")),
    ):
        assert seconds(lab2, 1, "node0", 5000, 1_000_000) > 0.7
        assert fastest(lab2, 0, "node1") < 0.5


def test_interface_mtu_differs_and_loses_longer_packets(lab2: Lab) -> None:
    with lab2.apply(InterfaceMtu(node=1, mtu_bytes=1280)):
        assert read(lab2, 1, "/sys/class/net/eth0/mtu") == "1280"
        assert arriving(lab2, 0, 1, num_bytes=1200) == 5
        assert arriving(lab2, 0, 1, num_bytes=1400) == 0
    assert read(lab2, 1, "/sys/class/net/eth0/mtu") == "1500"
    assert arriving(lab2, 0, 1, num_bytes=1400) == 5


def test_a_second_interface_has_the_same_address_everywhere_and_leads_nowhere(lab2: Lab) -> None:
    with serving(lab2, 1, 5000):
        with lab2.apply(SecondInterface(nodes=(0, 1))):
            for node in (0, 1):
                assert read(lab2, node, "/sys/class/net/docker0/carrier") == "1"
            assert reach(lab2, 1, "172.17.0.1", 5000) == "ok"
            assert reach(lab2, 0, "172.17.0.1", 5000) == "refused"  # that is node 0 itself, not node 1
            assert reach(lab2, 0, "172.17.0.9", 5000) in {"silent", "no-route"}
        assert reach(lab2, 0, "172.17.0.1", 5000) == "no-route"


def test_a_second_interface_without_carrier_looks_like_an_idle_docker0(lab2: Lab) -> None:
    with lab2.apply(SecondInterface(nodes=(0,), carrier=False)):
        assert read(lab2, 0, "/sys/class/net/docker0/operstate") in {"down", "lowerlayerdown"}


def test_two_second_interfaces_can_be_there_at_once(lab2: Lab) -> None:
    with (
        lab2.apply(SecondInterface(nodes=(0, 1))),
        lab2.apply(SecondInterface(nodes=(0,), ifname="ib0", address="fd00:99::1/64")),
    ):
        assert lab2.run(0, ["ls", "/sys/class/net"]).stdout.split() == ["docker0", "eth0", "ib0", "lo"]
        assert "fd00009900000000" in read(lab2, 0, "/proc/net/if_inet6")
    assert lab2.run(0, ["ls", "/sys/class/net"]).stdout.split() == ["eth0", "lo"]


def test_one_thing_is_changed_by_one_fault_at_a_time(lab2: Lab) -> None:
    with lab2.apply(InterfaceMtu(node=1, mtu_bytes=1400)):
        with pytest.raises(UsageError, match=r"fault 1 .interface_mtu. has changed this already"):
            lab2.apply(InterfaceMtu(node=1, mtu_bytes=1300))
        lab2.apply(InterfaceMtu(node=0, mtu_bytes=1300))


def test_a_fault_that_fails_half_way_leaves_nothing(lab2: Lab) -> None:
    assert (
        lab2.run(
            1, ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"]
        ).returncode
        == 0
    )
    with pytest.raises(LabError, match="address docker0 in node1"):
        lab2.apply(SecondInterface(nodes=(0, 1), address="fd00:99::1/64"))
    for node in (0, 1):
        assert lab2.run(node, ["ls", "/sys/class/net"]).stdout.split() == ["eth0", "lo"]
    assert lab2.faults() == {}
