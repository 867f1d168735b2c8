"""What a node says when node 0 is not what it should be: real listeners of every kind."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from allready.errors import FactUnavailable
from allready.messaging.contact import Contact
from allready.messaging.identify import classify_bytes, identify
from tests.cases import cases
from tests.messaging.test_hub import at_loopback, hello
from tests.ports import free_port

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def service(handler: Handler) -> AsyncIterator[int]:
    writers: list[asyncio.StreamWriter] = []

    async def kept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await handler(reader, writer)

    server = await asyncio.start_server(kept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.sleep(0)


async def outcome_at(
    port: int, resolve: Callable[[str], Awaitable[tuple[str, ...]]] = at_loopback, master: str = "127.0.0.1"
) -> Contact:
    contact = Contact(hello(1, master_addr=master), port, resolve)
    assert await contact.attempt() is None
    contact.close()
    return contact


async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"HTTP/1.1 400 Bad Request\r\nServer: test\r\n\r\n")
    await writer.drain()
    writer.close()


async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    await writer.drain()
    await reader.read(10)
    await asyncio.sleep(5)


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        pass


async def noise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(bytes(range(256)))
    await writer.drain()
    await reader.read(10)
    await asyncio.sleep(5)


@pytest.mark.jobs
@cases(
    ("handler", "kind"),
    [(http, "http"), (ssh, "ssh"), (mute, "silent"), (noise, "banner")],
    ids=["http", "ssh", "mute", "noise"],
)
async def test_another_service_on_the_port_is_named(handler: Handler, kind: str) -> None:
    async with service(handler) as port:
        contact = await outcome_at(port)
        assert (contact.facts.outcome, contact.facts.service) == ("wrong_service", kind)


async def test_nobody_listens() -> None:
    contact = await outcome_at(free_port())
    assert contact.facts.outcome == "refused"
    assert "ECONNREFUSED" in contact.facts.detail


async def test_a_name_that_means_this_very_machine_is_called_loopback() -> None:
    contact = await outcome_at(free_port(), master="gpu01")
    assert contact.facts.outcome == "loopback"


async def test_localhost_asked_for_literally_is_one_machine_on_purpose() -> None:
    contact = await outcome_at(free_port(), master="localhost")
    assert contact.facts.outcome == "refused"


async def test_a_name_that_does_not_resolve_keeps_the_resolvers_words() -> None:
    async def resolve(name: str) -> tuple[str, ...]:
        raise FactUnavailable(f"{name}: Name or service not known")

    contact = await outcome_at(1, resolve, master="nowhere")
    assert (contact.facts.outcome, contact.facts.detail) == ("unresolved", "nowhere: Name or service not known")


async def test_of_several_addresses_the_one_that_got_furthest_is_told() -> None:
    async def resolve(_: str) -> tuple[str, ...]:
        return ("127.0.0.3", "127.0.0.1", "127.0.0.4")

    async with service(http) as port:
        contact = await outcome_at(port, resolve)
        assert (contact.facts.outcome, contact.facts.address) == ("wrong_service", "127.0.0.1")


@pytest.mark.torch
@pytest.mark.newest
def test_a_real_torch_store_is_told_as_one() -> None:
    port = free_port()
    code = (
        "import torch.distributed as d, sys\n"
        f"s = d.TCPStore('127.0.0.1', {port}, is_master=True, wait_for_workers=False)\n"
        "s.set('k', 'v'); print('up', flush=True); sys.stdin.read(); print(s.get('k').decode(), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as store:
        assert store.stdout is not None
        assert store.stdout.readline() == "up\n"
        contact = asyncio.run(outcome_at(port))
        out, _ = store.communicate("", timeout=30)
    assert contact.facts.outcome == "stale_store"
    assert out == "v\n", "the store must survive being asked"


async def test_asking_a_closed_port_raises_oserror() -> None:
    with pytest.raises(OSError, match=r"refused|Connect"):
        await identify("127.0.0.1", free_port())


@cases(
    ("said", "kind"),
    [
        (b"ALLREADY/1\r\n", "allready"),
        (b"HTTP/1.0 200 OK", "http"),
        (b"\n<!DOCTYPE HTML>", "http"),
        (b"SSH-2.0-x", "ssh"),
        (b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00@\x00", "grpc"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "tls"),
        (b"220 mail ESMTP", "banner"),
    ],
)
def test_first_words_of_services(said: bytes, kind: str) -> None:
    assert classify_bytes(said).kind == kind


def test_a_banner_cannot_carry_control_characters() -> None:
    assert "\x1b" not in classify_bytes(b"\x1b[31mred\x1b[0m").banner
