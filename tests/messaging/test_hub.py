"""The store over real sockets: who is let in, who is not, what each rank gets."""

import asyncio
import contextlib
import socket
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from allready.errors import DeadlineExceeded, ExchangeError
from allready.messaging import wire
from allready.messaging.channel import LOST, ConnectionLostError, loss_of
from allready.messaging.contact import Contact
from allready.messaging.datagram import DatagramCaller, UdpCall
from allready.messaging.hub import Hub
from allready.messaging.link import Link
from allready.messaging.sockets import listening_socket
from allready.messaging.wire import GREETING, BrokenError, LastingReader, NodeHello, encode, read_frame
from allready.model import GAVE_UP, Loss, LossReason, PortHolder
from allready.text.catalog import say_phrase
from tests.cases import cases
from tests.ports import free_port


def hello(node_rank: int, **changes: Any) -> NodeHello:
    base = NodeHello(
        protocol=wire.PROTOCOL,
        tool_version="0",
        node_rank=node_rank,
        name=f"gpu{node_rank}",
        pid=100 + node_rank,
        num_nodes=3,
        nproc_per_node=2,
        job_id="none",
        master_addr="127.0.0.1",
        instance=f"i{node_rank}",
    )
    return replace(base, **changes)


async def at_loopback(_name: str) -> tuple[str, ...]:
    return ("127.0.0.1",)


@contextlib.asynccontextmanager
async def open_hub(**changes: Any) -> AsyncIterator[tuple[Hub, int]]:
    port = free_port()
    hub = Hub(hello(0, **changes), wait_limit_s=10.0)
    await hub.open(port)
    try:
        yield hub, port
    finally:
        await hub.close()


async def join(port: int, claimed_rank: int, **changes: Any) -> tuple[Link | None, Contact]:
    contact = Contact(replace(hello(claimed_rank), **changes), port, at_loopback)
    try:
        return await contact.attempt(), contact
    finally:
        contact.close()


def stand_still(seconds: float) -> None:
    """What the loop of a busy machine does."""
    time.sleep(seconds)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30.0):
        while not condition():  # noqa: ASYNC110 - the hub has no event for every condition
            await asyncio.sleep(0.01)


async def stopped(link: Link | None) -> None:
    assert link is not None
    await link.close()


async def test_nodes_join_and_messages_go_both_ways() -> None:
    async with open_hub() as (hub, port):
        link, contact = await join(port, 1)
        assert link is not None
        assert contact.facts.outcome == "joined"
        await until(lambda: hub.nodes == (1,))
        await link.send("facts", {"a": [1, 2]})
        assert await hub.receive(timeout_s=20) == (1, "facts", {"a": [1, 2]})
        big = "x" * 300_000
        await hub.send(None, "result", big)
        assert await link.receive(timeout_s=20) == ("result", big)
        with pytest.raises(DeadlineExceeded):
            await link.receive(timeout_s=0.05)
        await link.close()


async def test_node_0_has_an_end_of_its_own() -> None:
    async with open_hub() as (hub, _):
        own = hub.local_node()
        assert hub.nodes == (0,)
        await hub.send(0, "reach.open", (1, 2))
        assert await own.receive(timeout_s=20) == ("reach.open", [1, 2])
        await own.send("reach.endpoint", None)
        assert await hub.receive(timeout_s=20) == (0, "reach.endpoint", None)


async def test_the_clock_offset_of_the_same_clock_is_inside_its_uncertainty() -> None:
    async with open_hub() as (_, port):
        link, _ = await join(port, 1)
        assert link is not None
        clock = await link.measure_clock()
        assert abs(clock.offset_s) <= clock.uncertainty_s + 1e-3
        assert 0 < clock.uncertainty_s < 0.5
        await link.close()


async def test_how_long_node_0_has_been_silent_begins_anew_with_every_word() -> None:
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        assert link is not None
        await asyncio.sleep(0.3)
        silent_s = link.silent_s
        assert silent_s >= 0.25
        await hub.send(None, "result", "word")
        await link.receive(timeout_s=20)
        assert link.silent_s < silent_s
        await link.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_nodes": 4}, "num_nodes_differs"),
        ({"node_rank": 0, "instance": "other"}, "duplicate_rank"),
        ({"protocol": wire.PROTOCOL - 1}, "version"),
    ],
)
async def test_a_clash_is_kept_with_both_claims_and_told_to_the_refused(changes: dict[str, Any], reason: str) -> None:
    async with open_hub() as (hub, port):
        attempt = asyncio.create_task(join(port, 1, **changes))
        await until(lambda: hub.clash_since is not None)
        roll = hub.roll(finished=True)
        assert [(c.node_rank, c.refused) for c in roll.claims] == [(0, None), (changes.get("node_rank", 1), reason)]
        await hub.refuse_all(roll)
        link, contact = await attempt
        assert link is None
        assert contact.facts.outcome == "rejected"
        assert contact.refusal is not None
        assert contact.refusal.roll.claims == roll.claims


async def test_the_second_node_with_a_rank_is_refused_and_the_first_one_stays() -> None:
    async with open_hub() as (hub, port):
        first, _ = await join(port, 1)
        attempt = asyncio.create_task(join(port, 1, name="gpu9", pid=9, instance="other"))
        await until(lambda: hub.clash_since is not None)
        await hub.refuse_all(hub.roll(finished=True))
        await attempt
        assert hub.nodes == (1,)
        assert [c.name for c in hub.roll(finished=True).claims if c.node_rank == 1] == ["gpu1", "gpu9"]
        await stopped(first)


async def test_a_node_of_another_job_is_turned_away_at_once_and_does_not_end_the_roll() -> None:
    async with open_hub() as (hub, port):
        link, contact = await join(port, 1, job_id="other")
        assert link is None
        assert contact.facts.outcome == "other_job"
        assert "'none'" in contact.facts.detail
        assert hub.clash_since is None
        assert hub.roll(finished=False).missing == (1, 2)


async def test_after_the_roll_call_a_clash_is_refused_at_once_and_the_agent_names_itself() -> None:
    async with open_hub() as (hub, port):
        first, _ = await join(port, 1)
        hub.close_roll(PortHolder(pid=100, command="allready run train.py"))
        second, contact = await join(port, 1, instance="another", pid=7)
        assert second is None
        assert contact.refusal is not None
        assert (contact.refusal.reason, contact.refusal.roll.partial) == ("job_running", True)
        assert contact.facts.outcome == "other_job"
        assert contact.facts.holder == PortHolder(pid=100, command="allready run train.py")
        assert hub.clash_since is None, "the job that runs is not concerned"
        assert [c.refused for c in hub.roll(finished=True).claims] == [None, None]
        await stopped(first)


async def test_a_refused_node_that_went_away_gets_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    async with open_hub() as (hub, port):
        first, _ = await join(port, 1)
        for number in range(6):  # asyncio warns from the fifth write on into a connection that is gone
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GREETING + encode("hello", replace(hello(1), instance=f"x{number}")))
            await until(lambda n=number: len(hub._refused) > 0)  # type: ignore[misc]
            writer.close()
            await until(lambda: not hub._refused)
            del reader
        assert hub.nodes == (1,)
        await stopped(first)
    assert "socket.send() raised" not in caplog.text


async def test_our_own_connection_by_another_address_is_no_rival() -> None:
    async with open_hub() as (hub, port):
        attempt = asyncio.create_task(join(port, 0))  # the same instance
        link, _ = await attempt
        assert link is None
        assert hub.clash_since is None


async def test_a_node_that_breaks_off_is_lost_and_may_come_back() -> None:
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        await stopped(link)
        assert (await hub.receive(timeout_s=20))[:2] == (1, LOST)
        assert hub.roll(finished=True).lost == (1,)
        again, _ = await join(port, 1, instance="restarted")
        await until(lambda: hub.nodes == (1,))
        assert hub.roll(finished=True).lost == ()
        await stopped(again)


def give_up(port: int, node_rank: int) -> None:
    """Greet, and be gone before node 0's loop runs."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(GREETING + encode("hello", hello(node_rank)))


@pytest.mark.parametrize("num_times", [1, 3])
async def test_a_node_that_gave_node_0_up_before_its_answer_is_no_lost_member(num_times: int) -> None:
    async with open_hub() as (hub, port):
        for _ in range(num_times):
            give_up(port, 1)
        await until(lambda: any(c.kind == GAVE_UP for c in hub.roll(finished=False).callers))
        roll = hub.roll(finished=False)
        assert (roll.missing, roll.lost, hub.nodes, hub.expects_return) == ((1, 2), (), (), False)
        assert [(c.node_rank, c.name, c.address) for c in roll.callers] == [(1, "gpu1", "127.0.0.1")]
        with pytest.raises(DeadlineExceeded):
            await hub.receive(timeout_s=0.0)
        link, _ = await join(port, 1)
        await until(lambda: hub.nodes == (1,))
        assert hub.roll(finished=False).callers == ()
        await stopped(link)
        assert (await hub.receive(timeout_s=20))[:2] == (1, LOST)
        assert hub.roll(finished=False).lost == (1,)


async def test_a_node_that_does_not_wait_for_node_0s_answer_joins_when_it_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allready.messaging.contact.HELLO_ANSWER_S", 0.2)
    async with open_hub() as (hub, port):
        answer = hub._send_frame
        late = asyncio.Event()

        async def answer_late(peer: Any, frame: bytes) -> None:
            await late.wait()
            await answer(peer, frame)

        monkeypatch.setattr(hub, "_send_frame", answer_late)
        link, contact = await join(port, 1)
        assert (link, contact.facts.num_broken) == (None, 1)
        late.set()
        await until(lambda: bool(hub.roll(finished=False).callers))
        assert hub.roll(finished=False).awaited == (1, 2)
        again, _ = await join(port, 1)
        await until(lambda: hub.nodes == (1,))
        await stopped(again)


async def test_a_node_that_stops_after_its_greeting_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not close the connection: it did not give node 0 up."""
    monkeypatch.setattr("allready.messaging.hub.SILENCE_S", 0.2)
    async with open_hub() as (hub, port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(GREETING + encode("hello", hello(1)))
            assert (await hub.receive(timeout_s=20))[:2] == (1, LOST)
            roll = hub.roll(finished=False)
            assert (roll.lost, roll.lost_silently, roll.missing) == ((1,), (1,), (2,))
            assert roll.losses[0].reason is LossReason.AGENT_SILENT


async def test_a_node_that_says_nothing_and_whose_kernel_acknowledges_is_answering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allready.messaging.hub.HEARTBEAT_S", 0.05)
    async with open_hub() as (hub, port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(GREETING + encode("hello", hello(1)))
            await until(lambda: hub.answering == {1})
        await until(lambda: not hub.answering)


async def test_a_node_that_was_stopped_too_long_learns_how_all_ended_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allready.messaging.hub.SILENCE_S", 0.2)
    async with open_hub() as (hub, port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(GREETING + encode("hello", hello(1)) + encode("beat", None))
            assert (await hub.receive(timeout_s=20))[:2] == (1, LOST)
            await hub.send(None, "plan", "of an attempt without it")
            sock.sendall(encode("status", "too late"))
            await hub.send_last("finish", "all is over")
            with pytest.raises(DeadlineExceeded):
                await hub.receive(timeout_s=0.1)
            await hub.close()
            sock.settimeout(20)
            words = b"".join(iter(lambda: sock.recv(65536), b""))  # to the end of the connection: it is closed in order
        assert b"finish" in words
        assert b"plan" not in words


async def test_a_node_that_comes_back_has_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allready.messaging.hub.SILENCE_S", 0.2)
    async with open_hub() as (hub, port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(GREETING + encode("hello", hello(1)) + encode("beat", None))
            assert (await hub.receive(timeout_s=20))[:2] == (1, LOST)
            monkeypatch.setattr("allready.messaging.hub.SILENCE_S", 20.0)
            again, _ = await join(port, 1)
            await until(lambda: hub.nodes == (1,))
            sock.setblocking(False)
            async with asyncio.timeout(20.0):
                while await asyncio.get_running_loop().sock_recv(sock, 65536):
                    pass
            await stopped(again)


async def test_a_link_that_breaks_behind_a_pause_of_its_own_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allready.messaging.link.SILENCE_S", 0.3)
    for pause_s in (0.0, 0.5):
        async with open_hub() as (hub, port):
            link, _ = await join(port, 1)
            assert link is not None
            await until(lambda: hub.nodes == (1,))
            stand_still(pause_s)
            await hub.close()
            with pytest.raises(ConnectionLostError) as error:
                await link.receive(timeout_s=20)
            assert (error.value.loss.pause_s or 0.0) >= pause_s
            assert (error.value.loss.pause_s is None) is (pause_s == 0.0)
            assert ("own agent did not run" in str(error.value)) is (pause_s > 0.0)
            await link.close()


async def test_a_node_that_leaves_behind_a_pause_of_node_0_has_given_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allready.messaging.hub.SILENCE_S", 0.3)
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        await until(lambda: hub.nodes == (1,))
        stand_still(0.5)
        await stopped(link)
        assert (await hub.receive(timeout_s=20))[:2] == (1, LOST)
        [loss] = hub.roll(finished=True).losses
        assert (loss.pause_s or 0.0) >= 0.5


@pytest.mark.parametrize("last", [b"", encode("leaving", "interrupted on that node")])
async def test_a_node_that_falls_silent_or_says_why_it_leaves_has_not_given_node_0_up(
    last: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allready.messaging.hub.SILENCE_S", 0.3)
    async with open_hub() as (hub, port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(GREETING + encode("hello", hello(1)) + encode("beat", None))
            await until(lambda: hub.nodes == (1,))
            stand_still(0.5)
            sock.sendall(last)
            assert (await hub.receive(timeout_s=20))[:2] == (1, LOST)
            assert [loss.pause_s for loss in hub.roll(finished=True).losses] == [None]


async def test_what_had_come_is_read_before_the_error_that_broke_the_connection() -> None:
    reader = LastingReader()
    reader.feed_data(encode("finish", "all is over"))
    reader.set_exception(BrokenPipeError("Broken pipe"))
    assert await read_frame(reader) == ("finish", "all is over")
    with pytest.raises(BrokenError, match="Broken pipe"):
        await read_frame(reader)
    with pytest.raises(BrokenPipeError):
        await reader.read(1)
    assert isinstance(reader.exception(), BrokenPipeError)


async def test_a_lost_node_is_expected_back_for_as_long_as_its_host_knocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it asks for seconds who is here before it greets again."""
    monkeypatch.setattr("allready.messaging.hub.RETURN_S", 0.3)
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        assert link is not None
        assert not hub.expects_return
        await link.close("")
        await until(lambda: 1 not in hub.nodes)
        await until(lambda: not hub.expects_return)
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: any(c.kind == "stranger" for c in hub.roll(finished=False).callers))
            assert not hub.expects_return
        with socket.create_connection(("127.0.0.1", port)) as again:
            again.sendall(GREETING)
            await until(lambda: hub.expects_return)
        await until(lambda: not hub.expects_return)


async def test_a_lost_node_may_knock_while_node_0_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds up the loop that answers nodes keeps the lost one from coming back: that time is not its own."""
    monkeypatch.setattr("allready.messaging.hub.RETURN_S", 0.6)
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        await stopped(link)
        await until(lambda: 1 not in hub.nodes)
        with socket.create_connection(("127.0.0.1", port)) as again:
            again.sendall(GREETING)
            stand_still(1.0)
            assert hub.expects_return


async def test_a_node_that_leaves_says_why() -> None:
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        assert link is not None
        await link.close("interrupted on that node")
        loss = Loss(reason=LossReason.LEFT, text="interrupted on that node")
        node, kind, told = await hub.receive(timeout_s=20)
        assert (node, kind, replace(told, num_sent=0)) == (1, LOST, loss)
        assert told.num_sent > 0
        roll = hub.roll(finished=True)
        assert (roll.lost, roll.lost_why, roll.losses) == ((1,), ("interrupted on that node",), (told,))


def test_small_messages_do_not_wait_for_an_acknowledgement() -> None:
    with (
        listening_socket(0, loopback_only=True) as listener,
        socket.create_connection(listener.getsockname(), 10),
        accepted(listener) as taken,
    ):
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def accepted(listener: socket.socket) -> socket.socket:
    listener.settimeout(10)
    return listener.accept()[0]


async def test_a_node_whose_hub_goes_away_is_told() -> None:
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        assert link is not None
        await until(lambda: hub.nodes == (1,))
        await hub.close()
        with pytest.raises(ExchangeError, match="closed"):
            await link.receive(timeout_s=20)
        await link.close()


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00\x85\xce\xf5\x3c\x0d1234",
        GREETING + b"\xff\xff\xff\xff\x00",
        GREETING + encode("hello", {"node_rank": "one"}),
        GREETING + encode("nonsense", None),
        GREETING + b"\x00\x00\x00\x04\x01abcd",
        b"",
    ],
)
async def test_strangers_harm_nothing(words: bytes) -> None:
    async with open_hub() as (hub, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(words)
        writer.write_eof()
        async with asyncio.timeout(20):
            await reader.read()  # until the hub closes
        writer.close()
        link, _ = await join(port, 1)
        await until(lambda: hub.nodes == (1,))
        assert all(c.kind == "stranger" for c in hub.roll(finished=False).callers)
        await stopped(link)


@pytest.mark.jobs
async def test_a_silent_client_is_noted_and_cut_off() -> None:
    async with open_hub() as (hub, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(25):
            await reader.read()
        [caller] = hub.roll(finished=False).callers
        assert (caller.kind, caller.address) == ("stranger", "127.0.0.1")
        writer.close()


async def test_a_call_by_datagram_is_heard_and_answered() -> None:
    async with open_hub() as (hub, port):
        caller = DatagramCaller()
        call = UdpCall(job_id="none", node_rank=2, num_nodes=3, name="gpu2", contact="silent", hears_us=None)
        assert await caller.call("127.0.0.1", port, call, timeout_s=20.0) is True
        async with asyncio.timeout(20.0):  # node 0 learns that its answer came, not only that it was called
            while [c.hears_us for c in hub.roll(finished=False).callers] != [True]:
                hub.changed.clear()
                await hub.changed.wait()
        caller.close()
        [noted] = hub.roll(finished=False).callers
        assert (noted.kind, noted.node_rank, noted.address) == ("datagram", 2, "127.0.0.1")


async def test_no_answer_to_a_call_is_said_and_not_raised() -> None:
    caller = DatagramCaller()
    call = UdpCall(job_id="none", node_rank=2, num_nodes=3, name="gpu2", contact="silent", hears_us=None)
    assert await caller.call("127.0.0.1", free_port(), call, timeout_s=0.3) is False
    caller.close()


async def test_closing_frees_the_port() -> None:
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        await hub.close()
        second = Hub(hello(0), wait_limit_s=1.0)
        await second.open(port)
        await second.close()
        await stopped(link)


@cases("flags", [0, 1, 7])
@cases("payload", [b"", b"{}", b"[1]", b'["a"]', b'[1,"a"]', b"\xff\xfe", b'["a",1,2]', b'["a",' + b"[" * 20_000])
def test_garbage_frames_are_refused_with_our_own_error(payload: bytes, flags: int) -> None:
    with pytest.raises(ExchangeError):
        wire.decode(payload, flags)


@pytest.mark.thorough
def test_a_frame_that_unpacks_to_more_than_the_limit_is_refused() -> None:
    bomb = zlib.compress(b"[" + b" " * (wire.MAX_FRAME_BYTES + 100) + b"]")
    assert len(bomb) < 100_000
    with pytest.raises(ExchangeError, match="unpacks"):
        wire.decode(bomb, 1)


@pytest.mark.parametrize("ticks", range(5))
async def test_a_cancellation_that_comes_together_with_a_message_is_not_lost(ticks: int) -> None:
    """An interrupted command would go on until its next deadline."""
    async with open_hub(num_nodes=1) as (hub, _):
        node = hub.local_node()
        ends: list[tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[None]]]] = [
            (lambda: hub.receive(timeout_s=5.0), lambda: node.send("word", None)),
            (lambda: node.receive(timeout_s=5.0), lambda: hub.send(0, "word", None)),
        ]
        for receive, send in ends:

            async def serve(receive: Callable[[], Awaitable[Any]] = receive) -> None:
                while True:
                    await receive()

            task = asyncio.ensure_future(serve())
            await asyncio.sleep(0.01)
            await send()
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            done, _pending = await asyncio.wait([task], timeout=1.0)
            assert task in done
            assert task.cancelled()


async def test_a_message_that_is_there_is_received_without_waiting() -> None:
    async with open_hub(num_nodes=1) as (hub, _):
        await hub.local_node().send("word", 1)
        assert await hub.receive(timeout_s=0.0) == (0, "word", 1)
        with pytest.raises(DeadlineExceeded):
            await hub.receive(timeout_s=0.0)


LISTS = b"[]," * 300_000 + b"[]"


async def test_what_a_node_sends_while_nobody_takes_it_is_not_kept_without_bound() -> None:
    """Six frames of 3 kB on the wire would be 6 MB of text and 150 MB of lists; the rest waits at the sender."""
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        assert link is not None
        for number in range(6):
            await link.send("x", [number, "y" * 900_000])
        await asyncio.sleep(0.5)
        waiting_bytes = sum(hub._inbox._bytes_of.values())
        assert 0 < waiting_bytes < 3_000_000
        for number in range(6):  # and nothing of it is lost
            node, kind, body = await hub.receive(timeout_s=20)
            assert (node, kind, body[0], len(body[1])) == (1, "x", number, 900_000)
        assert not hub._inbox._bytes_of
        await stopped(link)


async def test_a_message_waits_as_text_and_takes_no_more_room_than_it_has_letters() -> None:
    kind, body = wire.decode(b'["x",[' + LISTS + b"]]", 0)
    assert kind == "x"
    assert isinstance(body, msgspec.Raw)
    assert len(wire.plain(body)) == 300_001


@pytest.mark.thorough
@cases("unit", [b"[],", b"{},", b'{"a":1},', b"[1],", b'"ab",', b"1.5,"])
def test_a_message_that_would_take_much_memory_is_refused_before_it_is_decoded(unit: bytes) -> None:
    bomb = zlib.compress(b'["x",[' + unit * (30_000_000 // len(unit)) + b"0]]")
    tracemalloc.start()
    try:
        with pytest.raises(ExchangeError, match="of memory"):
            wire.decode(bomb, 1)
        assert tracemalloc.get_traced_memory()[1] < 150_000_000
    finally:
        tracemalloc.stop()


async def test_a_hello_may_not_unpack_to_more_than_a_hello_has() -> None:
    async with open_hub() as (hub, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        payload = zlib.compress(b'["hello",[' + b"[]," * 100_000 + b"[]]]")
        assert len(payload) < wire.MAX_HELLO_BYTES
        writer.write(GREETING + len(payload).to_bytes(4, "big") + b"\x01" + payload)
        await writer.drain()
        await reader.read()  # all that node 0 says, until it closes the connection
        assert hub.nodes == ()
        writer.close()


async def test_a_node_cannot_say_that_another_connection_is_lost() -> None:
    async with open_hub() as (hub, port):
        link, _ = await join(port, 1)
        assert link is not None
        await link.send(LOST, {"reason": "closed"})
        await link.send("word", 1)
        assert await hub.receive(timeout_s=20) == (1, "word", 1)
        await stopped(link)


def test_that_the_other_end_closed_a_connection_is_a_reason_of_its_own() -> None:
    async def read_what_is_closed() -> Loss:
        reader = asyncio.StreamReader()
        reader.feed_eof()
        try:
            await read_frame(reader)
        except ExchangeError as error:
            return loss_of(error)
        raise AssertionError

    loss = asyncio.run(read_what_is_closed())
    assert (loss.reason, loss.text) == (LossReason.PEER_CLOSED, "")
    assert str(loss) == "the other side closed the connection"
    assert say_phrase(loss.phrase, "zh") == "对方关闭了连接"
    assert loss_of(ExchangeError("too long")).reason is LossReason.CLOSED
