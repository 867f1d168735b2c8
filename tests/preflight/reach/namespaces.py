"""Nodes as network namespaces on a switch in a namespace of its own, and the hub's end of their channel."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from allready.errors import DeadlineExceeded
from allready.messaging.channel import LOST
from tests.preflight.reach.node_process import LIMIT


def sh(*argv: str, text: str | None = None) -> None:
    subprocess.run(argv, check=True, timeout=20, input=text, text=True, capture_output=True)


def possible() -> str | None:
    """Why namespaces cannot be made here; None: they can."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "nft", "tc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, timeout=10, check=False)
    return None if probe.returncode == 0 else "unshare -n is not permitted"


class Net:
    """Node r is 10.77.0.{r+1} on its eth0; the switch's port to it is called p{r}."""

    def __init__(self, num_nodes: int) -> None:
        self.prefix = f"reach{os.getpid()}"
        self.switch = f"{self.prefix}s"
        self.num_nodes = num_nodes
        self.made: list[str] = []

    def name(self, node_rank: int) -> str:
        return f"{self.prefix}n{node_rank}"

    def address(self, node_rank: int) -> str:
        return f"10.77.0.{node_rank + 1}"

    def make(self) -> None:
        for name in (self.switch, *(self.name(r) for r in range(self.num_nodes))):
            sh("ip", "netns", "add", name)
            self.made.append(name)
        sh("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", self.switch, "link", "set", "br0", "up")
        for r in range(self.num_nodes):
            sh(
                "ip",
                "link",
                "add",
                f"p{r}",
                "netns",
                self.switch,
                "type",
                "veth",
                "peer",
                "eth0",
                "netns",
                self.name(r),
            )
            sh("ip", "-n", self.switch, "link", "set", f"p{r}", "master", "br0", "up")
            self.ip(r, "addr", "add", f"{self.address(r)}/24", "dev", "eth0")
            self.ip(r, "link", "set", "lo", "up")
            self.ip(r, "link", "set", "eth0", "up")

    def unmake(self) -> None:
        for name in self.made:
            sh("ip", "netns", "del", name)

    def ip(self, node_rank: int, *argv: str) -> None:
        sh("ip", "-n", self.name(node_rank), *argv)

    def drop(self, node_rank: int, rule: str, *, hook: str = "input") -> None:
        """Add one nft rule to what comes into (or goes out of) a node."""
        table = f"table inet t {{ chain c {{ type filter hook {hook} priority 0; policy accept; {rule}; }}; }}\n"
        sh("ip", "netns", "exec", self.name(node_rank), "nft", "-f", "-", text=table)

    def tc(self, node_rank: int, *argv: str) -> None:
        sh("ip", "netns", "exec", self.name(node_rank), "tc", *argv)


@contextmanager
def network(num_nodes: int) -> Iterator[Net]:
    net = Net(num_nodes)
    try:
        net.make()
        yield net
    finally:
        net.unmake()


class LineHub:
    """`HubSide` over socket pairs to node processes."""

    def __init__(self) -> None:
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._inbox: asyncio.Queue[tuple[int, str, Any]] = asyncio.Queue()
        self._pumps: list[asyncio.Task[None]] = []
        self.processes: dict[int, asyncio.subprocess.Process] = {}

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted(self._writers))

    async def start(self, net: Net, extra: dict[int, list[str]]) -> None:
        for r in range(net.num_nodes):
            ours, theirs = socket.socketpair()
            with theirs:
                argv = [
                    "ip",
                    "netns",
                    "exec",
                    net.name(r),
                    sys.executable,
                    "-W",
                    "error",
                    "-m",
                    "tests.preflight.reach.node_process",
                    str(r),
                    str(theirs.fileno()),
                    net.address(r),
                ]
                self.processes[r] = await asyncio.create_subprocess_exec(
                    *argv, *extra.get(r, []), pass_fds=(theirs.fileno(),), start_new_session=True
                )
            reader, self._writers[r] = await asyncio.open_unix_connection(sock=ours, limit=LIMIT)
            self._pumps.append(asyncio.create_task(self._pump(r, reader)))
        for _ in range(net.num_nodes):
            assert (await self.receive(timeout_s=30))[1] == "test.ready"

    async def stop(self) -> dict[int, int]:
        """End and reap all processes that have not ended by themselves within 10 s."""
        codes: dict[int, int] = {}
        for r, process in self.processes.items():
            try:
                codes[r] = await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                codes[r] = await process.wait()
        for writer in self._writers.values():
            writer.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await asyncio.sleep(0)
        return codes

    async def _pump(self, node_rank: int, reader: asyncio.StreamReader) -> None:
        why = "end of file"
        try:
            while line := await reader.readline():
                kind, body = msgspec.json.decode(line)
                self._inbox.put_nowait((node_rank, kind, body))
        except ConnectionError as error:  # it died with a message of ours unread
            why = str(error)
        writer = self._writers.pop(node_rank, None)
        if writer is not None:
            writer.close()
        self._inbox.put_nowait((node_rank, LOST, why))

    async def send(self, node_rank: int | None, kind: str, body: Any) -> None:
        for r in self.nodes if node_rank is None else (node_rank,):
            if r in self._writers:
                self._writers[r].write(msgspec.json.encode([kind, body]) + b"\n")

    async def receive(self, *, timeout_s: float) -> tuple[int, str, Any]:
        try:
            return await asyncio.wait_for(self._inbox.get(), timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(f"no message within {timeout_s} s") from None
