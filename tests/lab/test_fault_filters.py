"""Every fault that drops packets, proven by traffic: before, during, after."""

import subprocess
import sys

import pytest

from allready.lab import Lab
from allready.lab.faults import (
    DataPortsDropped,
    IdleForgotten,
    InterfaceMtu,
    MtuBlackHole,
    OneWayDrop,
    PortDropped,
    RandomLoss,
)

from .traffic import arriving, reach, serving

pytestmark = pytest.mark.lab


def test_a_healthy_lab_connects_refuses_and_resolves(lab2: Lab) -> None:
    with serving(lab2, 0, 29500):
        assert reach(lab2, 1, "node0", 29500, 300_000) == "ok"
        assert reach(lab2, 1, "node0", 29501) == "refused"
        assert reach(lab2, 1, "192.0.2.1", 29500) == "no-route"


def test_port_dropped_is_silent_on_that_port_only_and_until_lifted(lab2: Lab) -> None:
    with serving(lab2, 0, 29500), serving(lab2, 0, 29501):
        with lab2.apply(PortDropped(node=0, port=29500)) as fault:
            assert reach(lab2, 1, "node0", 29500) == "silent"
            assert reach(lab2, 1, "node0", 29501) == "ok"
            assert reach(lab2, 0, "node0", 29500) == "ok"  # the firewall is outside, not on loopback
            assert fault.num_dropped() > 0
        assert reach(lab2, 1, "node0", 29500) == "ok"


def test_port_dropped_for_one_source_leaves_the_others_alone(lab3: Lab) -> None:
    with serving(lab3, 0, 29500), lab3.apply(PortDropped(node=0, port=29500, source=1)):
        assert reach(lab3, 1, "node0", 29500) == "silent"
        assert reach(lab3, 2, "node0", 29500) == "ok"


def test_port_dropped_for_udp_leaves_tcp_alone(lab2: Lab) -> None:
    with serving(lab2, 0, 9000), lab2.apply(PortDropped(node=0, port=9000, protocol="udp")):
        assert reach(lab2, 1, "node0", 9000) == "ok"
        assert arriving(lab2, 1, 0, port=9000) == 0
    assert arriving(lab2, 1, 0, port=9000) == 5


def test_port_dropped_holds_for_ipv6_as_well(lab2: Lab) -> None:
    with serving(lab2, 0, 29500, "::"):
        assert reach(lab2, 1, "node0-v6", 29500) == "ok"
        with lab2.apply(PortDropped(node=0, port=29500, source=1)):
            assert reach(lab2, 1, "node0-v6", 29500) == "silent"


def test_data_ports_dropped_keeps_the_master_port_and_the_own_connections_of_the_node(lab2: Lab) -> None:
    with serving(lab2, 0, 29500), serving(lab2, 0, 40000), serving(lab2, 1, 40000):
        with lab2.apply(DataPortsDropped(node=0)):
            assert reach(lab2, 1, "node0", 29500) == "ok"
            assert reach(lab2, 1, "node0", 40000) == "silent"
            assert reach(lab2, 0, "node1", 40000) == "ok"
        with lab2.apply(DataPortsDropped(node=0, keep=())):
            assert reach(lab2, 1, "node0", 29500) == "silent"
        assert reach(lab2, 1, "node0", 40000) == "ok"


def test_one_way_drop_loses_one_direction_only(lab3: Lab) -> None:
    with lab3.apply(OneWayDrop(source=0, target=1)) as fault:
        assert arriving(lab3, 0, 1) == 0
        assert arriving(lab3, 1, 0) == 5
        assert arriving(lab3, 0, 2) == 5
        with serving(lab3, 0, 29500):
            assert reach(lab3, 1, "node0", 29500) == "silent"  # the answer is lost
        assert fault.num_dropped() >= 5
    assert arriving(lab3, 0, 1) == 5


TALKS = """
import socket, sys, time
begin = time.monotonic()
while True:
    try:
        kept, idle = (socket.create_connection((sys.argv[1], 5000), 0.5) for _ in range(2))
        break
    except OSError:
        assert time.monotonic() < begin + 10
        time.sleep(0.05)
def said(sock):
    try:
        sock.sendall(b"x")
        return sock.recv(1) == b"x"
    except OSError:
        return False
both = said(kept), said(idle)
for _ in range(12):
    time.sleep(0.25)
    assert said(kept)
kept.settimeout(2); idle.settimeout(2)
with socket.create_connection((sys.argv[1], 5000), 2) as new:
    print(*both, said(kept), said(new), said(idle))
"""
ANSWERS = """
import selectors, socket
watched, server = selectors.DefaultSelector(), socket.create_server(("", 5000))
watched.register(server, selectors.EVENT_READ)
while True:
    for key, _ in watched.select():
        if key.fileobj is server:
            watched.register(server.accept()[0], selectors.EVENT_READ)
        elif data := key.fileobj.recv(10):
            key.fileobj.sendall(data)
        else:
            watched.unregister(key.fileobj)
            key.fileobj.close()
"""


@pytest.mark.parametrize("behind", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_connections_that_were_idle_are_forgotten_and_others_work(lab2: Lab, behind: int) -> None:
    with lab2.apply(IdleForgotten(node=behind, idle_s=2)) as fault:
        server = lab2.popen(1, [sys.executable, "-c", ANSWERS])
        try:
            client = lab2.popen(0, [sys.executable, "-c", TALKS, "node1"], stdout=subprocess.PIPE, text=True)
            assert client.communicate(timeout=30)[0].split() == ["True", "True", "True", "True", "False"]
        finally:
            server.kill()
            server.wait(10)
        assert fault.num_dropped() >= 1


@pytest.mark.parametrize(("source", "target"), [(1, 0), pytest.param(0, 1, marks=pytest.mark.slow)])
def test_mtu_black_hole_passes_small_packets_and_swallows_long_ones(lab3: Lab, source: int, target: int) -> None:
    with serving(lab3, target, 5000), serving(lab3, 2, 5000):
        with lab3.apply(MtuBlackHole(node=1, limit_bytes=1400)):
            assert reach(lab3, source, f"node{target}", 5000, 64) == "ok"
            assert reach(lab3, source, f"node{target}", 5000, 1300) == "ok"
            assert reach(lab3, source, f"node{target}", 5000, 1400) == "stuck"
            assert reach(lab3, 0, "node2", 5000, 100_000) == "ok"
        assert reach(lab3, source, f"node{target}", 5000, 1400) == "ok"


def test_mtu_black_hole_can_be_between_one_pair(lab3: Lab) -> None:
    with serving(lab3, 1, 5000), lab3.apply(MtuBlackHole(node=1, peer=0)):
        assert reach(lab3, 0, "node1", 5000, 1400) == "stuck"
        assert reach(lab3, 2, "node1", 5000, 1400) == "ok"


def test_a_smaller_mtu_is_the_remedy_for_an_mtu_black_hole(lab2: Lab) -> None:
    with serving(lab2, 0, 5000), lab2.apply(MtuBlackHole(node=0)), lab2.apply(InterfaceMtu(node=0, mtu_bytes=1380)):
        assert reach(lab2, 1, "node0", 5000, 300_000) == "ok"


@pytest.mark.parametrize(("direction", "source", "target"), [("in", 0, 1), ("out", 1, 0)])
def test_random_loss_loses_about_that_many_packets_and_counts_them(
    lab2: Lab, direction: str, source: int, target: int
) -> None:
    with lab2.apply(RandomLoss(node=1, percent=20, direction=direction)) as fault:  # type: ignore[arg-type]
        got = arriving(lab2, source, target, num=1000)
        assert 120 <= 1000 - got <= 280  # more than six standard deviations either way
        assert fault.num_dropped() == pytest.approx(
            1000 - got, abs=5
        )  # a stray neighbour advertisement may be lost too
        assert arriving(lab2, target, source, num=50) == 50
    assert arriving(lab2, source, target, num=50) == 50


def test_two_filters_at_once_are_lifted_in_any_order(lab2: Lab) -> None:
    with serving(lab2, 0, 5000), serving(lab2, 0, 5001):
        first, second = lab2.apply(PortDropped(node=0, port=5000)), lab2.apply(PortDropped(node=0, port=5001))
        first.undo()
        assert (reach(lab2, 1, "node0", 5000), reach(lab2, 1, "node0", 5001)) == ("ok", "silent")
        second.undo()
        second.undo()
        assert reach(lab2, 1, "node0", 5001) == "ok"
