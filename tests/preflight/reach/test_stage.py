import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from msgspec.structs import replace

from allready.errors import ExchangeError
from allready.messaging.channel import NodeSide, convert
from allready.messaging.sockets import hang_up, local_addresses, unanswered_arp
from allready.model import FactMissing, NodeFacts, PathProbe
from allready.preflight.reach import ReachRequest, conduct, endpoint, take_part, wire
from allready.preflight.reach import hub as hub_part
from allready.preflight.reach import node as node_part
from allready.text.ui import ui
from tests.clock import Stopwatch
from tests.messaging.memory import MemoryNode, memory_channel, silent
from tests.ports import free_port
from tests.preflight.reach.parts import Part, Recorder, facts, honest, paths_of, run_over, run_stage, transport

pytestmark = pytest.mark.jobs

QUICK = ReachRequest(connect_s=0.5, echo_s=0.4, endpoint_s=1.0)


def loopback_nodes(num_nodes: int) -> list[Part]:
    return [honest(facts(f"127.0.0.{r + 1}")) for r in range(num_nodes)]


async def test_healthy_nodes_reach_each_other_on_every_port_size_and_datagram() -> None:
    narrator = Recorder()
    request = ReachRequest(master=("127.0.0.1", 29500))
    reach, ends = await run_stage(request, loopback_nodes(3), narrator)
    assert ends == [None, None, None]
    assert (reach.num_pairs_all, reach.num_pairs_planned, reach.num_pairs_done) == (3, 3, 3)
    for src in range(3):
        for dst in {0, 1, 2} - {src}:
            paths = paths_of(reach, src, dst)
            assert [p.outcome for p in paths] == ["ok", "ok"]
            assert {p.port for p in paths if p.port >= 1024} == {p.port for p in paths}
            for path in paths:
                assert (path.kind, path.interface) == ("data", "lo")
                assert path.address == f"127.0.0.{dst + 1}"
                assert path.passed_bytes == request.payloads_bytes
                assert path.rtt_s is not None
                assert 0 < path.rtt_s < 1
            assert 0 < (paths[0].throughput_gb_per_s or 0) < 200
    assert len(reach.datagrams) == 6
    assert all(d.received_bytes == d.sent_bytes == request.datagrams_bytes for d in reach.datagrams)
    assert [(p.src, p.dst, p.port) for p in reach.paths if p.kind == "master"] == [(1, 0, 29500), (2, 0, 29500)]
    assert [key for key, _ in narrator.logged] == ["reach.plan", "reach.done"]
    assert narrator.logged[1][1] | {"num_good": 3, "num_pairs": 3, "num_done": 3} == narrator.logged[1][1]


async def test_leaves_no_socket_behind() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count

    before = open_files()
    await run_stage(QUICK, loopback_nodes(3))
    assert open_files() == before


async def test_ports_of_the_range_are_tried_and_busy_ones_are_said() -> None:
    low = 21500
    with socket.socket() as other:
        other.bind(("127.0.0.2", low))
        other.listen()
        request = replace(QUICK, port_range=(low, low + 3), master=("127.0.0.1", low + 1))
        reach, _ = await run_stage(request, loopback_nodes(2))
    assert reach.busy_ports == {1: (low,)}
    ports = {way: sorted(p.port for p in paths_of(reach, *way) if p.kind == "range") for way in ((0, 1), (1, 0))}
    assert ports == {(0, 1): [low + 2, low + 3], (1, 0): [low, low + 2, low + 3]}
    assert {p.outcome for p in reach.paths} == {"ok"}


async def test_every_chosen_address_is_tried() -> None:
    reach, _ = await run_stage(QUICK, [honest(facts("127.0.0.1")), honest(facts("127.0.0.2", "127.0.1.2"))])
    assert {p.address for p in paths_of(reach, 0, 1)} == {"127.0.0.2", "127.0.1.2"}
    assert {d.address for d in reach.datagrams if d.src == 0} == {"127.0.0.2", "127.0.1.2"}


def has_ipv6_loopback() -> bool:
    table = Path("/proc/net/if_inet6")
    return table.is_file() and " lo\n" in table.read_text()


@pytest.mark.skipif(not has_ipv6_loopback(), reason="no IPv6 loopback here")
async def test_ipv6_addresses_are_tried() -> None:
    reach, _ = await run_stage(QUICK, [honest(facts("::1")), honest(facts("::1"))])
    assert {p.outcome for p in reach.paths} == {"ok"}
    assert all(d.received_bytes == QUICK.datagrams_bytes for d in reach.datagrams)


def offering(report: wire.EndpointReport, then: Part | None = None) -> Part:
    """A node that announces `report`, whatever is really there, and answers like one that probed nothing."""

    async def part(node: NodeSide, start: Any) -> None:
        await node.send("reach.endpoint", report)
        if then is not None:
            await then(node, start)
            return
        while (kind := (await node.receive(timeout_s=20))[0]) != "reach.done":
            if kind == "reach.plan":
                await node.send("reach.result", wire.Result())
            elif kind == "reach.collect":
                await node.send("reach.arrived", wire.Arrived())

    return part


async def test_a_closed_port_is_refused() -> None:
    offer = wire.AddressOffer(interface="lo", address="127.0.0.2", data_ports=(free_port("127.0.0.2"),))
    reach, _ = await run_stage(QUICK, [honest(facts("127.0.0.1")), offering(wire.EndpointReport(offers=(offer,)))])
    [path] = paths_of(reach, 0, 1)
    assert (path.outcome, path.detail) == ("refused", "Connection refused (TCP reset)")
    assert [p.outcome for p in paths_of(reach, 1, 0)] == ["not_run"]
    assert reach.num_pairs_done == 0


async def test_somebody_else_behind_the_port_is_an_error_and_not_ok() -> None:
    async def shout(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.2", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        offer = wire.AddressOffer(interface="lo", address="127.0.0.2", data_ports=(port,))
        reach, _ = await run_stage(QUICK, [honest(facts("127.0.0.1")), offering(wire.EndpointReport(offers=(offer,)))])
    [path] = paths_of(reach, 0, 1)
    assert (path.outcome, path.detail) == ("error", "connected, then: something else than this check answers there")


async def test_a_process_that_takes_the_bytes_and_does_not_answer_is_not_a_stuck_path() -> None:
    with socket.create_server(("127.0.0.2", 0)) as mute:
        offer = wire.AddressOffer(interface="lo", address="127.0.0.2", data_ports=(mute.getsockname()[1],))
        reach, _ = await run_stage(QUICK, [honest(facts("127.0.0.1")), offering(wire.EndpointReport(offers=(offer,)))])
    [path] = paths_of(reach, 0, 1)
    assert path.outcome == "error"
    assert path.stuck_bytes is None
    assert "acknowledged all bytes" in path.detail


async def test_another_node_at_the_address_is_named() -> None:
    """Nodes 1 and 2 both announce 127.0.0.3, where node 2 listens."""
    announced: asyncio.Future[wire.EndpointReport] = asyncio.get_running_loop().create_future()

    async def second(node: NodeSide, start: Any) -> None:
        class Overheard:
            node_rank = node.node_rank
            receive = node.receive

            async def send(self, kind: str, body: Any) -> None:
                if kind == "reach.endpoint":
                    announced.set_result(body)
                await node.send(kind, body)

        await take_part(Overheard(), start, facts("127.0.0.3"), silent())

    async def first(node: NodeSide, start: Any) -> None:
        await offering(await announced)(node, start)

    reach, _ = await run_stage(QUICK, [honest(facts("127.0.0.1")), first, second])
    assert {p.outcome for p in paths_of(reach, 0, 2)} == {"ok"}
    assert {p.outcome for p in paths_of(reach, 0, 1)} == {"error"}
    assert {p.detail for p in paths_of(reach, 0, 1)} == {"connected, then: node 2 answers at this address, not node 1"}


async def test_a_node_that_never_opens_ports_holds_up_nobody() -> None:
    async def mute(node: NodeSide, _start: Any) -> None:
        while (await node.receive(timeout_s=20))[0] != "reach.done":
            pass

    narrator = Recorder()
    start = Stopwatch()
    reach, _ = await run_stage(QUICK, [*loopback_nodes(2), mute], narrator)
    assert start.s < 15
    assert {p.outcome for p in paths_of(reach, 0, 1) + paths_of(reach, 1, 0)} == {"ok"}
    for way in ((0, 2), (2, 0), (1, 2), (2, 1)):
        [path] = paths_of(reach, *way)
        assert path.outcome == "not_run"
        assert path.detail == "node 2: no reach.endpoint within 1 s"
    assert (reach.num_pairs_planned, reach.num_pairs_done) == (3, 1)
    assert ("reach.no_endpoint", {"nodes": "2", "seconds": "1"}) in narrator.logged


async def test_a_node_lost_in_the_middle_is_not_run_and_accuses_nobody() -> None:
    hub, nodes = memory_channel(3)
    ended = asyncio.Event()

    async def dying(node: NodeSide, start: Any) -> None:
        """Opens real ports, then dies: the others meet closed ports."""
        opening = convert(start, wire.Opening)
        ports = endpoint.Endpoint(opening, node.node_rank)
        report = await ports.open([("lo", "127.0.0.3")])
        await ports.close()
        await node.send("reach.endpoint", report)
        assert (await node.receive(timeout_s=20))[0] == "reach.plan"
        assert isinstance(node, MemoryNode)
        node.break_off("connection reset")
        ended.set()

    narrator = Recorder()
    reach, _ = await run_over(hub, nodes, QUICK, [*loopback_nodes(2), dying], narrator)
    assert ended.is_set()
    assert {p.outcome for p in paths_of(reach, 0, 1) + paths_of(reach, 1, 0)} == {"ok"}
    for way in ((0, 2), (2, 0), (1, 2), (2, 1)):
        assert {p.outcome for p in paths_of(reach, *way)} == {"not_run"}
        assert all("the connection to node 2 broke" in p.detail for p in paths_of(reach, *way))
    assert not [d for d in reach.datagrams if 2 in (d.src, d.dst)]
    assert ("reach.lost", {"node": 2}) in narrator.logged


async def test_a_node_whose_addresses_are_not_known_still_probes_the_others() -> None:
    blind = NodeFacts(transport=FactMissing("no torch"))
    reach, _ = await run_stage(QUICK, [*loopback_nodes(1), honest(blind)])
    assert {p.outcome for p in paths_of(reach, 1, 0)} == {"ok"}
    [path] = paths_of(reach, 0, 1)
    assert path.outcome == "not_run"
    assert path.detail == "node 1 opened no port: the addresses of NCCL and Gloo are not known: no torch"


async def test_an_address_that_is_not_here_is_said_and_not_probed() -> None:
    reach, _ = await run_stage(QUICK, [*loopback_nodes(1), honest(facts("192.0.2.7"))])
    [path] = paths_of(reach, 0, 1)
    assert path.outcome == "not_run"
    assert path.detail == "node 1 opened no port: 192.0.2.7 (lo): Cannot assign requested address"


async def test_one_node_alone_is_done_at_once() -> None:
    reach, ends = await run_stage(QUICK, loopback_nodes(1))
    assert (reach.paths, reach.num_pairs_all, ends) == ((), 0, [None])


@pytest.mark.parametrize(
    "body",
    [
        {"offers": [{"interface": "lo", "address": "$(reboot)", "data_ports": [80]}]},
        {"offers": [{"interface": "lo", "address": "127.0.0.2", "data_ports": [0]}]},
        {"offers": [{"interface": "lo", "address": "127.0.0.2", "data_ports": list(range(1, 5000))}]},
        "garbage",
        None,
    ],
)
async def test_an_endpoint_that_makes_no_sense_is_not_run(body: Any) -> None:
    async def liar(node: NodeSide, _start: Any) -> None:
        await node.send("reach.endpoint", body)
        while (await node.receive(timeout_s=20))[0] != "reach.done":
            pass

    reach, _ = await run_stage(QUICK, [*loopback_nodes(1), liar])
    assert [p.outcome for p in paths_of(reach, 0, 1)] == ["not_run"]


async def test_rows_that_nobody_asked_for_are_dropped() -> None:
    rows = [[0, 0, 1, "refused"], [7, 0, 40000, "refused"], [0, 9, 40000, "refused"], [0, -1, 40000, "refused"]]

    async def liar(node: NodeSide, _start: Any) -> None:
        await node.send("reach.endpoint", {"offers": []})
        while (kind := (await node.receive(timeout_s=20))[0]) != "reach.done":
            if kind == "reach.plan":
                await node.send("reach.result", {"rows": rows, "sent": [[0, 5, [92]], [9, 0, [92]]]})

    reach, _ = await run_stage(QUICK, [*loopback_nodes(1), liar])
    assert {p.outcome for p in reach.paths} == {"not_run"}
    assert reach.datagrams == ()


@pytest.mark.parametrize("change", [{"token": "short"}, {"payloads_bytes": [2**40]}, {"num_data_ports": 10**6}])
async def test_a_node_refuses_an_opening_that_makes_no_sense(change: dict[str, Any]) -> None:
    hub, nodes = memory_channel(1)
    task = asyncio.create_task(conduct(hub, QUICK, silent()))
    _, start = await nodes[0].receive(timeout_s=20)
    with pytest.raises(ExchangeError):
        await take_part(nodes[0], start | change, facts("127.0.0.1"), silent())
    assert (await task).paths == ()


async def test_the_total_limit_ends_probing_and_says_so() -> None:
    """Three of four partners are black holes; the limit allows for one of them only."""
    with socket.socket() as full:
        full.bind(("127.0.0.9", 0))
        full.listen(0)
        # A backlog that is full answers no SYN: silence on the loopback.
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        offer = wire.AddressOffer(interface="lo", address="127.0.0.9", data_ports=(full.getsockname()[1],))
        hole = offering(wire.EndpointReport(offers=(offer,)))
        request = replace(QUICK, connect_s=2.0, limit_s=3.9)
        reach, _ = await run_stage(request, [honest(facts("127.0.0.1")), hole, hole, hole])
        for sock in waiting:
            sock.close()
    outcomes = sorted(p.outcome for dst in (1, 2, 3) for p in paths_of(reach, 0, dst))
    assert outcomes == ["filtered", "not_run", "not_run"]


async def test_node_0_gone_ends_a_node_at_once_and_closes_its_ports() -> None:
    hub, nodes = memory_channel(2)
    task = asyncio.create_task(conduct(hub, QUICK, silent()))
    node = nodes[1]
    assert isinstance(node, MemoryNode)
    _, start = await node.receive(timeout_s=20)
    part = asyncio.create_task(take_part(node, start, facts("127.0.0.2"), silent()))
    await asyncio.sleep(0)
    node.break_off("reset")
    with pytest.raises(ExchangeError):
        await asyncio.wait_for(part, 20)
    await task


async def test_cancelling_mid_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while payloads are under way."""
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    reached = asyncio.Event()
    original = endpoint.Endpoint._echo

    async def echo(self: endpoint.Endpoint, sock: socket.socket) -> None:
        reached.set()
        await original(self, sock)

    monkeypatch.setattr(endpoint.Endpoint, "_echo", echo)
    task = asyncio.create_task(run_stage(QUICK, loopback_nodes(2)))
    await asyncio.wait_for(reached.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def test_many_healthy_nodes_send_one_row_per_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allready.preflight.reach.node.MAX_NODES_WITH_ALL_ROWS", 1)
    reach, _ = await run_stage(QUICK, loopback_nodes(2))
    assert [(p.outcome, p.detail) for p in reach.paths] == [("ok", "1 more ports as good")] * 2


class SlowBurst:
    """A partner that takes its time for the last burst."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.sent = [wire.SentRow(1, 0, (64,), (), bursts=(100, 100))]
        self.is_over = False

    async def count_once_more(self) -> None:
        try:
            await asyncio.sleep(self.seconds)
            self.sent = [replace(row, bursts=(*row.bursts, 100)) for row in self.sent]
        finally:
            self.is_over = True


async def test_last_bursts_to_many_partners_are_sent_side_by_side() -> None:
    probes = [(number, SlowBurst(0.1)) for number in range(28)]
    clock = asyncio.get_running_loop().time
    begin = clock()
    counted = await node_part._count(cast("Any", probes), 0.2 / 28)
    assert clock() - begin < 1.5  # one after the other: 2.8
    assert [row.bursts for row in counted.sent] == [(100, 100, 100)] * 28


async def test_when_the_time_for_last_bursts_is_over_what_was_counted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert node_part.MAX_LAST_BURSTS_S < node_part.COUNT_S < hub_part.COUNTED_S
    monkeypatch.setattr(node_part, "COUNT_S", 0.3)
    probes = [(number, SlowBurst(seconds)) for number, seconds in enumerate((0.0, 20.0))]
    counted = await node_part._count(cast("Any", probes), 0.0)
    assert [row.bursts for row in counted.sent] == [(100, 100, 100), (100, 100)]
    assert all(probe.is_over for _, probe in probes)
    assert (await node_part._count((), 0.0)).sent == ()


async def test_a_sample_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    narrator = Recorder()
    reach, _ = await run_stage(replace(QUICK, max_rounds=1), loopback_nodes(4), narrator)
    assert (reach.num_pairs_all, reach.num_pairs_planned, reach.num_pairs_done) == (6, 2, 2)
    assert narrator.logged[0][0] == "reach.plan_sample"


async def first_byte(address: str, port: int, words: bytes = b"") -> bytes:
    """What a client that says `words` and waits gets first."""
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(words)
        return await asyncio.wait_for(reader.readexactly(1), 5)
    finally:
        writer.transport.abort()


class TestListener:
    """What strangers may do to a listener."""

    async def opened(self) -> tuple[endpoint.Endpoint, wire.Opening, int]:
        request = QUICK
        opening = wire.Opening(
            token="ab" * 16,
            num_nodes=2,
            payloads_bytes=request.payloads_bytes,
            port_range=None,
            avoid_port=None,
            datagrams_bytes=request.datagrams_bytes,
            num_data_ports=1,
            num_range_ports=0,
            max_addresses=1,
            connect_s=1,
            echo_s=1,
            slowest_bytes_per_s=1e7,
        )
        ports = endpoint.Endpoint(opening, 1)
        report = await ports.open([("lo", "127.0.0.2")])
        return ports, opening, report.offers[0].data_ports[0]

    @pytest.mark.parametrize(
        "garbage", [b"GET / HTTP/1.1\r\nHost: allready.example.com\r\n\r\n", os.urandom(4096), b"\0" * 36]
    )
    async def test_cuts_off_whoever_has_no_token(self, garbage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(endpoint, "HELLO_S", 60.0)
        ports, _, port = await self.opened()
        try:
            start = Stopwatch()
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await first_byte("127.0.0.2", port, garbage)
            assert start.s < 20
        finally:
            await ports.close()

    async def test_cuts_off_a_half_open_client_after_its_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(endpoint, "HELLO_S", 0.2)
        ports, _, port = await self.opened()
        try:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await first_byte("127.0.0.2", port, b"ab")
        finally:
            await ports.close()

    async def test_reads_no_payload_of_an_unknown_size(self) -> None:
        ports, opening, port = await self.opened()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.2", port)
            writer.write(wire.HELLO.pack(opening.token.encode(), 0))
            assert wire.REPLY.unpack(await asyncio.wait_for(reader.readexactly(8), 5)) == (wire.WELCOME, 1)
            writer.write(struct.pack("!I", 2**31))
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 5)
            writer.transport.abort()
        finally:
            await ports.close()

    async def test_bounds_the_number_of_connections(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(endpoint, "MAX_SESSIONS", 2)
        ports, opening, port = await self.opened()
        clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        try:
            for _ in range(2):
                clients.append(await asyncio.open_connection("127.0.0.2", port))
                clients[-1][1].write(wire.HELLO.pack(opening.token.encode(), 0))
                await asyncio.wait_for(clients[-1][0].readexactly(8), 5)
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await first_byte("127.0.0.2", port)
        finally:
            for _, writer in clients:
                writer.transport.abort()
            await ports.close()

    async def test_a_stranger_in_the_middle_disturbs_no_path(self) -> None:
        """Garbage and a half-open client on every port while the stage runs."""
        strangers: list[socket.socket] = []

        async def disturbed(node: NodeSide, start: Any) -> None:
            class Overheard:
                node_rank = node.node_rank
                receive = node.receive

                async def send(self, kind: str, body: Any) -> None:
                    if kind == "reach.endpoint":
                        for port in body.offers[0].data_ports:
                            for words in (b"\x16\x03\x01garbage" * 20, b""):
                                strangers.append(socket.create_connection(("127.0.0.2", port), 5))
                                strangers[-1].sendall(words)
                    await node.send(kind, body)

            await take_part(Overheard(), start, facts("127.0.0.2"), silent())

        reach, _ = await run_stage(QUICK, [*loopback_nodes(1), disturbed])
        for sock in strangers:
            hang_up(sock)
        assert {p.outcome for p in reach.paths} == {"ok"}

    async def test_hears_only_whole_datagrams_with_the_token(self) -> None:
        ports, opening, _ = await self.opened()
        try:
            token = opening.token.encode()
            ports.note(0, wire.DATAGRAM.pack(token, 0, 92).ljust(64, b"\0"), 28)
            ports.note(0, wire.DATAGRAM.pack(b"x" * 32, 0, 576).ljust(548, b"\0"), 28)
            ports.note(0, wire.DATAGRAM.pack(token, 0, 1400).ljust(100, b"\0"), 28)
            ports.note(0, wire.DATAGRAM.pack(token, 99, 92).ljust(64, b"\0"), 28)
            ports.note(0, b"short", 28)
            assert ports.arrived() == wire.Arrived(rows=(wire.ArrivedRow(0, 0, (92,), (0, 0, 0)),))
        finally:
            await ports.close()


def test_loopback_counts_only_when_there_is_nothing_else() -> None:
    both = transport("127.0.0.1", "10.0.0.1", "10.0.0.1", "10.1.0.1", "10.2.0.1", "10.3.0.1", "10.4.0.1")
    found = [a for _, a in local_addresses(both, num_nodes=2, most=4)]
    assert found == ["10.0.0.1", "10.1.0.1", "10.2.0.1", "10.3.0.1"]
    assert local_addresses(both, num_nodes=2, most=4, with_nccl=False) == local_addresses(
        replace(both, nccl=both.gloo), num_nodes=2, most=4
    )
    assert local_addresses(transport("127.0.0.1"), num_nodes=2, most=4) == (("lo", "127.0.0.1"),)
    assert [a for _, a in local_addresses(both, num_nodes=1, most=2)] == ["127.0.0.1", "10.0.0.1"]
    assert local_addresses(transport("not-an-address"), num_nodes=2, most=4) == ()


def test_only_an_incomplete_neighbour_is_unanswered(tmp_path: Path) -> None:
    table = tmp_path / "arp"
    table.write_text(
        "IP address       HW type     Flags       HW address            Mask     Device\n"
        "10.9.0.77        0x1         0x0         00:00:00:00:00:00     *        eth0\n"
        "10.9.0.2         0x1         0x2         06:39:6d:52:5b:3f     *        eth0\n"
    )
    assert unanswered_arp("10.9.0.77", table) == "eth0"
    assert unanswered_arp("10.9.0.2", table) is None
    assert unanswered_arp("10.9.0.7", table) is None
    assert unanswered_arp("10.9.0.77", tmp_path / "none") is None


def test_range_ports_are_spread_and_finite() -> None:
    assert list(endpoint.sampled_ports(100, 107)) == [100, 107, 103, 101, 105, 102, 104, 106]
    assert list(endpoint.sampled_ports(100, 100)) == [100]
    assert list(endpoint.sampled_ports(100, 101, avoid=100)) == [101]
    many = list(endpoint.sampled_ports(30000, 40000))
    assert len(many) == len(set(many)) == 64
    assert many[:5] == [30000, 40000, 35000, 32500, 37500]


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_everything_said_has_its_text(language: str) -> None:
    narrator = Recorder()
    await run_stage(QUICK, [honest(facts(f"127.0.0.{r + 1}"), narrator) for r in range(3)], narrator)
    for key, values in narrator.said + narrator.logged:
        assert "{" not in ui(key, language, **values)
    others: dict[str, dict[str, object]] = {
        "reach.wait": {"nodes": "1", "left_s": 2},
        "reach.no_endpoint": {"nodes": "1", "seconds": 5},
        "reach.lost": {"node": 1},
        "reach.plan_sample": {"num_pairs": 1, "num_pairs_all": 2, "num_rounds": 1, "estimate_s": 1},
    }
    for key, values in others.items():
        assert "{" not in ui(key, language, **values)


def test_the_outcomes_are_those_of_the_model() -> None:
    for outcome in get_args(wire.Outcome):
        assert f'"{outcome}"' in (PathProbe.__doc__ or "")
