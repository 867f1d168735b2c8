"""Several nodes in one event loop: addresses of 127.0.0.0/8, the memory channel, real sockets."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from allready.errors import AllreadyError
from allready.messaging.channel import HubSide, Narrator, NodeSide
from allready.model import InterfaceChoice, NodeFacts, PathProbe, Reachability, TransportFacts
from allready.preflight.reach import ReachRequest, conduct, take_part
from tests.messaging.memory import memory_channel, silent


def transport(*addresses: str, interface: str = "lo") -> TransportFacts:
    names = tuple(interface for _ in addresses)
    nccl = InterfaceChoice(variable="NCCL_SOCKET_IFNAME", pattern=None, interfaces=names, addresses=addresses)
    gloo = InterfaceChoice(variable="GLOO_SOCKET_IFNAME", pattern=None, interfaces=names[:1], addresses=addresses[:1])
    return TransportFacts(nccl=nccl, gloo=gloo)


def facts(*addresses: str, interface: str = "lo") -> NodeFacts:
    return NodeFacts(transport=transport(*addresses, interface=interface))


Part = Callable[[NodeSide, Any], Awaitable[None]]


def honest(node_facts: NodeFacts, narrator: Narrator | None = None) -> Part:
    async def part(node: NodeSide, start: Any) -> None:
        await take_part(node, start, node_facts, narrator or silent())

    return part


async def run_node(node: NodeSide, part: Part) -> None:
    kind, start = await node.receive(timeout_s=10)
    assert kind == "reach.open"
    await part(node, start)


async def run_stage(
    request: ReachRequest, parts: Sequence[Part], narrator: Narrator | None = None
) -> tuple[Reachability, list[BaseException | None]]:
    """The stage with one part per node; returns what node 0 found and how each part ended."""
    hub, nodes = memory_channel(len(parts))
    return await run_over(hub, nodes, request, parts, narrator)


async def run_over(
    hub: HubSide,
    nodes: Sequence[NodeSide],
    request: ReachRequest,
    parts: Sequence[Part],
    narrator: Narrator | None = None,
) -> tuple[Reachability, list[BaseException | None]]:
    tasks = [asyncio.create_task(run_node(node, part)) for node, part in zip(nodes, parts, strict=True)]
    try:
        reach = await conduct(hub, request, narrator or silent())
        async with asyncio.timeout(10):
            ends = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if end is not None and not isinstance(end, AllreadyError):
            raise end
    return reach, ends


def paths_of(reach: Reachability, src: int, dst: int) -> list[PathProbe]:
    return [p for p in reach.paths if (p.src, p.dst) == (src, dst) and p.kind != "master"]


class Recorder:
    """A narrator that keeps what it was given."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, object]]] = []
        self.logged: list[tuple[str, dict[str, object]]] = []

    def say(self, key: str, **values: object) -> None:
        self.said.append((key, values))

    def log(self, key: str, **values: object) -> None:
        self.logged.append((key, values))
