"""The shared token over real sockets: who has it, who has none or another one, and what comes in between."""

import asyncio
import contextlib
import os
import pickle
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from allready.errors import ExchangeError, UsageError
from allready.messaging import hub as hub_module
from allready.messaging import link as link_module
from allready.messaging import wire
from allready.messaging.contact import Contact
from allready.messaging.datagram import UdpCall
from allready.messaging.hub import Hub
from allready.messaging.link import Link
from allready.messaging.token import Token, secret_from, token_from
from allready.messaging.wire import GREETING, encode
from allready.model import LossReason, TokenGap
from tests.cases import cases
from tests.messaging.test_hub import at_loopback, hello, stopped, until
from tests.ports import free_port

SECRET = "correct horse battery staple"


def token(text: str = SECRET) -> Token:
    return Token(text.encode())


@contextlib.asynccontextmanager
async def open_hub(own: Token | None) -> AsyncIterator[tuple[Hub, int]]:
    port = free_port()
    hub = Hub(hello(0), wait_limit_s=10.0, token=own)
    await hub.open(port)
    try:
        yield hub, port
    finally:
        await hub.close()


async def join(port: int, own: Token | None, node: int = 1) -> tuple[Link | None, Contact]:
    contact = Contact(hello(node), port, at_loopback, token=own)
    try:
        return await contact.attempt(), contact
    finally:
        contact.close()


async def test_nodes_with_the_token_join_and_messages_go_both_ways() -> None:
    async with open_hub(token()) as (hub, port):
        link, _ = await join(port, token())
        assert link is not None
        for number in range(3):
            await link.send("word", ["x" * 10_000 * number])
            assert await hub.receive(timeout_s=20) == (1, "word", ["x" * 10_000 * number])
            await hub.send(None, "answer", number)
            assert await link.receive(timeout_s=20) == ("answer", number)
        await link.measure_clock()
        await stopped(link)


@cases(
    "own, theirs, gap",
    [(SECRET, None, TokenGap.MISSING), (SECRET, SECRET + "!", TokenGap.DIFFERS), (None, SECRET, TokenGap.NOT_ASKED)],
)
async def test_both_sides_know_why_they_do_not_come_together(
    own: str | None, theirs: str | None, gap: TokenGap
) -> None:
    async with open_hub(token(own) if own else None) as (hub, port):
        link, contact = await join(port, token(theirs) if theirs else None)
        assert link is None
        assert contact.refusal is not None
        assert (contact.refusal.reason, contact.facts.outcome, contact.facts.detail) == (gap, "rejected", gap)
        await until(lambda: any(c.kind == gap for c in hub.roll(finished=False).callers))
        [caller] = hub.roll(finished=False).callers
        assert (caller.node_rank, caller.name) == (1, "gpu1")
        assert hub.nodes == ()
        assert [c.node_rank for c in hub.roll(finished=False).claims] == [0], "what it says of itself is no claim"
        assert hub.clash_since is None
        if own:  # and who has it is let in afterwards
            link, _ = await join(port, token(own))
            assert link is not None
            await stopped(link)


async def test_the_token_is_never_on_the_wire_and_a_hello_cannot_be_said_again() -> None:
    """A relay between node and node 0 hears everything, and says the node's hello once more to node 0."""
    receive = bytearray()
    async with open_hub(token()) as (hub, port):

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inside, outside = await asyncio.open_connection("127.0.0.1", port)

            async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                with contextlib.suppress(OSError):
                    while data := await source.read(65536):
                        receive.extend(data)
                        sink.write(data)
                    sink.close()

            await asyncio.gather(pump(reader, outside), pump(inside, writer))

        between = free_port()
        async with await asyncio.start_server(relay, "127.0.0.1", between):
            link, _ = await join(between, token())
            assert link is not None
            await link.send("word", 1)
            assert await hub.receive(timeout_s=20) == (1, "word", 1)
            await stopped(link)
        assert SECRET.encode() not in receive
        await until(lambda: hub.nodes == ())
        at = bytes(receive).index(b'["hello"') - 5
        length = int.from_bytes(receive[at : at + 4], "big")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GREETING + bytes(receive[at : at + 5 + length]))
        await reader.read()
        writer.close()
        assert hub.nodes == ()
        assert [c.kind for c in hub.roll(finished=False).callers] == [TokenGap.DIFFERS]


@cases("change", ["flip a bit", "no seal", "twice", "left out"])
async def test_what_is_changed_on_the_way_breaks_the_connection(change: str) -> None:
    async with open_hub(token()) as (hub, port):
        link, _ = await join(port, token())
        assert link is not None
        frame = wire.sealed(encode("word", "the first of two"), link._seal)
        if change == "left out":
            frame = wire.sealed(encode("word", "the second of two"), link._seal)
        if change == "no seal":
            frame = encode("word", "the first of two")
        if change == "flip a bit":
            frame = frame[:20] + bytes([frame[20] ^ 1]) + frame[21:]
        link._writer.write(frame * (2 if change == "twice" else 1))
        if change == "twice":
            assert await hub.receive(timeout_s=20) == (1, "word", "the first of two")
        node, kind, loss = await hub.receive(timeout_s=20)
        assert (node, kind, loss.reason) == (1, "lost", LossReason.CLOSED)
        assert "seal" in loss.text
        await stopped(link)


async def test_a_false_node_0_is_not_obeyed() -> None:
    """It asks for a token, takes any proof, and lets all ranks in."""

    async def rogue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here = {"job_id": "none", "num_nodes": 3, "name": "rogue", "pid": 1, "nonce": "0" * 32}
        writer.write(GREETING + encode("here", here))
        await reader.readexactly(len(GREETING))
        await wire.read_frame(reader)
        writer.write(encode("joined", {"node_rank": 1}) + encode("collectives.start", {}))
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(rogue, "127.0.0.1", port):
        link, contact = await join(port, token())
        assert link is None
        assert contact.facts.outcome != "joined"


def test_a_call_by_datagram_has_a_proof_as_well() -> None:
    call = UdpCall(job_id="none", node_rank=1, num_nodes=3, name="gpu1", contact="silent", hears_us=None)
    assert call.with_proof(token()).has_proof(token())
    assert call.has_proof(None)
    assert not call.has_proof(token())
    assert not call.with_proof(token("another one, as long")).has_proof(token())


def test_a_token_shows_itself_nowhere() -> None:
    assert SECRET not in repr(token()) + str(token())
    with pytest.raises(TypeError):
        pickle.dumps(token())
    with pytest.raises(TypeError):
        wire.to_json(token())


def test_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"  {SECRET}\n")
    assert secret_from(str(file), {}) == SECRET
    environ = {"ALLREADY_TOKEN": SECRET + "2", "HOME": "/"}
    assert secret_from(None, environ) == SECRET + "2"
    assert environ == {"HOME": "/"}, "no rank and no report has it"
    assert token_from(None, {}) is None


@cases("kind", ["short", "empty", "missing", "fifo", "folder", "huge"])
def test_what_is_no_token_is_named(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"token-{kind}"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind != "missing":
        file.write_text({"short": "abc", "empty": "", "huge": "x" * 100_000}[kind])
    with pytest.raises(UsageError, match="token"):
        token_from(str(file), {})
    with pytest.raises(UsageError, match="ALLREADY_TOKEN"):
        token_from(None, {"ALLREADY_TOKEN": "short"})


def test_a_seal_needs_its_bytes() -> None:
    seal = token().seal(("a" * 32, "b" * 32), is_node_0=True)
    for payload, flags in ((b"", 2), (b"x" * 15, 2), (b"x" * 40, 0)):
        with pytest.raises(ExchangeError, match="seal"):
            wire.unsealed(payload, flags, seal)


@pytest.mark.jobs
async def test_heartbeats_are_sealed_as_well_and_keep_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hub_module, link_module):
        monkeypatch.setattr(module, "HEARTBEAT_S", 0.1)
    async with open_hub(token()) as (hub, port):
        link, _ = await join(port, token())
        assert link is not None
        for number in range(4):
            await asyncio.sleep(0.4)
            await link.send("word", number)
            assert await hub.receive(timeout_s=20) == (1, "word", number)
            await hub.send(1, "answer", number)
            assert await link.receive(timeout_s=20) == ("answer", number)
        assert hub.nodes == (1,)
        await stopped(link)
