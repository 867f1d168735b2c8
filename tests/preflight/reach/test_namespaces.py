"""The stage between real processes in network namespaces, with real packet filters and queues in between.

The printed times are those of the whole stage on node 0, from "reach.open" to "reach.done".
"""

import os
import signal
import sys
from collections.abc import Callable

import pytest

from allready.model import PathProbe, Reachability
from allready.preflight.reach import ReachRequest, conduct
from tests.cases import cases
from tests.conftest import NO_LAB
from tests.messaging.memory import silent
from tests.preflight.reach.namespaces import LineHub, Net, network, possible, sh
from tests.preflight.reach.parts import Recorder, paths_of

WHY_NOT = possible()
pytestmark = [pytest.mark.lab, pytest.mark.skipif(WHY_NOT is not None, reason=f"{NO_LAB}: {WHY_NOT}")]

NEW = "tcp flags & (syn | ack) == syn"
DATA = "tcp dport 32768-65535"


async def stage(
    break_it: Callable[[Net], None],
    *,
    num_nodes: int = 2,
    request: ReachRequest | None = None,
    extra: dict[int, list[str]] | None = None,
    meanwhile: Callable[[LineHub], None] | None = None,
    afterwards: Callable[[LineHub], None] = lambda _hub: None,
) -> Reachability:
    with network(num_nodes) as net:
        break_it(net)
        hub = LineHub()
        try:
            await hub.start(net, extra or {})
            recorder = Recorder()
            if meanwhile is not None:
                original = recorder.log

                def log(key: str, **values: object) -> None:
                    original(key, **values)
                    if key == "reach.plan":
                        meanwhile(hub)

                recorder.log = log  # type: ignore[method-assign]
            reach = await conduct(hub, request or ReachRequest(), recorder if meanwhile else silent())
        finally:
            afterwards(hub)
            codes = await hub.stop()
    sys.stdout.write(f"{os.environ.get('PYTEST_CURRENT_TEST', '').split('::')[-1]} {reach.duration_s:.2f} s\n")
    if meanwhile is None:
        assert set(codes.values()) == {0}, "a node did not end well"
    return reach


def outcomes(paths: list[PathProbe]) -> set[str]:
    return {p.outcome for p in paths}


def received(reach: Reachability, src: int, dst: int) -> tuple[int, ...]:
    [probe] = [d for d in reach.datagrams if (d.src, d.dst) == (src, dst)]
    return probe.received_bytes


async def test_two_healthy_nodes_are_done_at_once() -> None:
    reach = await stage(lambda _net: None)
    assert outcomes(list(reach.paths)) == {"ok"}
    assert [p.src_address for p in paths_of(reach, 0, 1)] == ["10.77.0.1"] * 2
    for way in ((0, 1), (1, 0)):
        assert received(reach, *way) == (92, 576, 1280, 1400, 1428, 1450, 1500)
        [probe] = [d for d in reach.datagrams if (d.src, d.dst) == way]
        assert probe.too_big_bytes == (4000, 9000)  # over the MTU of eth0


async def test_filtered_data_ports_of_one_node() -> None:
    reach = await stage(lambda net: net.drop(1, f"{NEW} {DATA} drop"), request=ReachRequest(port_range=(20000, 20007)))
    forward = paths_of(reach, 0, 1)
    assert outcomes([p for p in forward if p.kind == "data"]) == {"filtered"}
    assert outcomes([p for p in forward if p.kind == "range"]) == {"ok"}
    assert len([p for p in forward if p.kind == "range"]) == 8
    assert outcomes(paths_of(reach, 1, 0)) == {"ok"}


async def test_a_stateful_filter_that_lets_only_answers_in() -> None:
    reach = await stage(lambda net: net.drop(1, "ct state established,related accept; tcp dport != 29500 drop"))
    assert outcomes(paths_of(reach, 0, 1)) == {"filtered"}
    assert outcomes(paths_of(reach, 1, 0)) == {"ok"}


async def test_a_one_way_break_shows_in_the_datagrams() -> None:
    reach = await stage(lambda net: net.drop(1, "ip saddr 10.77.0.1 drop"), num_nodes=3)
    # TCP needs both directions, so both are silent; the datagrams say which one is broken.
    assert outcomes(paths_of(reach, 0, 1)) == {"filtered"}
    assert outcomes(paths_of(reach, 1, 0)) == {"filtered"}
    assert received(reach, 0, 1) == ()
    assert received(reach, 1, 0) == (92, 576, 1280, 1400, 1428, 1450, 1500)
    assert outcomes([p for p in reach.paths if {p.src, p.dst} != {0, 1}]) == {"ok"}


@pytest.mark.parametrize("hook", ["input", "output"])
async def test_an_mtu_black_hole_is_stuck_in_its_direction_only(hook: str) -> None:
    """Packets above 1400 bytes from node 0 to node 1 vanish."""
    culprit = 1 if hook == "input" else 0
    reach = await stage(lambda net: net.drop(culprit, "ip length > 1400 drop", hook=hook))
    for path in paths_of(reach, 0, 1):
        assert (path.outcome, path.passed_bytes, path.stuck_bytes) == ("stuck", (64,), 1400)
    for path in paths_of(reach, 1, 0):
        assert path.outcome == "ok"
        assert path.passed_bytes == (64,)
        assert path.detail == "1400 bytes arrived; their echo did not come back: see 0 -> 1"
    assert received(reach, 0, 1) == (92, 576, 1280, 1400)
    assert received(reach, 1, 0) == (92, 576, 1280, 1400, 1428, 1450, 1500)


async def test_an_mtu_black_hole_both_ways_among_jumbo_frames() -> None:
    """Hosts believe in 9000, the switch passes 1500."""

    def jumbo(net: Net) -> None:
        for r in range(2):
            net.ip(r, "link", "set", "eth0", "mtu", "9000")
        for port in ("p0", "p1"):
            net_switch = ("ip", "-n", net.switch, "link", "set", port, "mtu", "9000")
            sh(*net_switch)
        net.drop(0, "ip length > 1500 drop")
        net.drop(1, "ip length > 1500 drop")

    reach = await stage(jumbo)
    for way in ((0, 1), (1, 0)):
        for path in paths_of(reach, *way):
            assert (path.outcome, path.passed_bytes, path.stuck_bytes) == ("stuck", (64, 1400), 9000)
        assert received(reach, *way) == (92, 576, 1280, 1400, 1428, 1450, 1500)


async def test_a_switch_that_passes_cut_up_packets_but_no_single_long_one_is_a_black_hole() -> None:
    """Hosts at 9000, switch ports at 1500: what is cut up only later (segmentation offload) passes."""

    def jumbo(net: Net) -> None:
        for r in range(2):
            net.ip(r, "link", "set", "eth0", "mtu", "9000")

    reach = await stage(jumbo)
    for way in ((0, 1), (1, 0)):
        assert "stuck" in outcomes(paths_of(reach, *way))
        assert all(path.passed_bytes == (64, 1400) for path in paths_of(reach, *way))
        assert received(reach, *way) == (92, 576, 1280, 1400, 1428, 1450, 1500)


@pytest.mark.slow
async def test_random_loss_shows_in_bursts_of_its_direction_and_a_full_queue_does_not() -> None:
    def lossy(net: Net) -> None:
        net.drop(1, "numgen random mod 100 < 15 drop")
        net.tc(0, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "5kb", "limit", "20kb")

    reach = await stage(lossy)
    [there] = [d for d in reach.datagrams if (d.src, d.dst) == (0, 1)]
    assert there.bursts_sent == (100, 100, 100)
    assert all(40 <= came < 100 for came in there.bursts_received)
    sent = sum(p.num_segments for p in paths_of(reach, 0, 1))
    assert sum(p.num_retransmits for p in paths_of(reach, 0, 1)) > 0.02 * sent

    def slow(net: Net) -> None:
        for r in range(2):
            net.tc(r, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "4mbit", "burst", "5kb", "limit", "20kb")

    reach = await stage(slow)
    for probe in reach.datagrams:
        assert not probe.bursts_sent or probe.bursts_received[-1] == 100
    for way in ((0, 1), (1, 0)):
        rate = max(p.throughput_gb_per_s or 0.0 for p in paths_of(reach, *way))
        assert 0.0001 < rate < 0.0006, "4 Mbit/s are 0.0005 GB/s"


@cases(
    ("verdict", "words"),
    [
        ("reject with tcp reset", "(TCP reset)"),
        ("reject with icmp type port-unreachable", "(ICMP port unreachable from 10.77.0.2)"),
        ("reject with icmp type admin-prohibited", "(ICMP administratively prohibited from 10.77.0.2)"),
        ("reject with icmp type host-prohibited", "(ICMP host prohibited from 10.77.0.2)"),
    ],
)
async def test_a_reject_is_refused_with_the_words_of_who_rejected(verdict: str, words: str) -> None:
    reach = await stage(lambda net: net.drop(1, f"meta l4proto tcp {NEW} {DATA} {verdict}"))
    for path in paths_of(reach, 0, 1):
        assert path.outcome == "refused"
        assert path.detail.endswith(words)
    assert outcomes(paths_of(reach, 1, 0)) == {"ok"}


async def test_an_address_without_a_route_is_no_route() -> None:
    def second_network(net: Net) -> None:
        net.ip(1, "link", "add", "eth1", "type", "veth", "peer", "name", "eth1p")
        net.ip(1, "addr", "add", "192.168.77.1/24", "dev", "eth1")
        net.ip(1, "link", "set", "eth1", "up")

    reach = await stage(second_network, extra={1: ["192.168.77.1"]})
    by_address = {p.address: p for p in paths_of(reach, 0, 1)}
    assert by_address["10.77.0.2"].outcome == "ok"
    assert (by_address["192.168.77.1"].outcome, by_address["192.168.77.1"].detail) == (
        "no_route",
        "Network is unreachable",
    )


async def test_a_host_that_answers_no_arp_is_no_route() -> None:
    def unplug(net: Net) -> None:
        sh("ip", "-n", net.switch, "link", "set", "p1", "nomaster")

    reach = await stage(unplug, num_nodes=3)
    for way in ((0, 1), (1, 0), (2, 1), (1, 2)):
        assert outcomes(paths_of(reach, *way)) == {"no_route"}
        assert paths_of(reach, *way)[0].detail.startswith("no answer to ARP on eth0")
    assert outcomes(paths_of(reach, 0, 2) + paths_of(reach, 2, 0)) == {"ok"}


async def test_a_slow_link_is_slow_and_not_stuck() -> None:
    """8 Mbit/s: 1 MiB takes more than a second, longer than its deadline, but it moves."""

    def slow(net: Net) -> None:
        for r in range(2):
            net.tc(r, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "8mbit", "burst", "16k", "latency", "500ms")

    reach = await stage(slow)
    assert outcomes(list(reach.paths)) == {"ok"}
    for way in ((0, 1), (1, 0)):
        measured = [p.throughput_gb_per_s for p in paths_of(reach, *way) if p.throughput_gb_per_s is not None]
        assert len(measured) == 1
        # The link bounds it from above; a busy machine takes what it likes from below.
        assert 0 < measured[0] < 0.0012


async def test_a_stopped_process_is_not_called_a_broken_path() -> None:
    def freeze(hub: LineHub) -> None:
        os.killpg(hub.processes[1].pid, signal.SIGSTOP)

    def thaw(hub: LineHub) -> None:
        os.killpg(hub.processes[1].pid, signal.SIGCONT)

    # It goes on only when the stage is over, which could wait for it forever.
    request = ReachRequest(limit_s=4.0)
    reach = await stage(lambda _net: None, num_nodes=3, meanwhile=freeze, afterwards=thaw, request=request)
    assert outcomes(paths_of(reach, 0, 2) + paths_of(reach, 2, 0)) == {"ok"}
    for path in paths_of(reach, 0, 1) + paths_of(reach, 2, 1):
        assert path.outcome in {"error", "not_run"}
    assert outcomes(paths_of(reach, 1, 0)) == {"not_run"}


async def test_a_killed_node_is_lost_and_its_paths_are_not_run() -> None:
    def kill(hub: LineHub) -> None:
        os.killpg(hub.processes[1].pid, signal.SIGKILL)

    reach = await stage(lambda _net: None, num_nodes=3, meanwhile=kill)
    assert outcomes(paths_of(reach, 0, 2) + paths_of(reach, 2, 0)) == {"ok"}
    for way in ((0, 1), (1, 0), (2, 1), (1, 2)):
        assert outcomes(paths_of(reach, *way)) == {"not_run"}
