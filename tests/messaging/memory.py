"""A hub and its nodes inside one event loop, in place of connections."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from allready.messaging.channel import LOST, ConnectionLostError, HubSide, Narrator, NodeSide, take
from allready.model import Loss, LossReason


class MemoryHub:
    """`HubSide` inside one event loop."""

    def __init__(self, num_nodes: int) -> None:
        self.inbox: asyncio.Queue[tuple[int, str, Any]] = asyncio.Queue()
        self.ends = {r: MemoryNode(r, self) for r in range(num_nodes)}

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(r for r, end in self.ends.items() if not end.gone)

    async def send(self, node_rank: int | None, kind: str, body: Any) -> None:
        plain = _through_json(body)
        for r in self.nodes if node_rank is None else (node_rank,):
            self.ends[r].inbox.put_nowait((kind, plain))

    async def receive(self, *, timeout_s: float) -> tuple[int, str, Any]:
        return await take(self.inbox, timeout_s)


class MemoryNode:
    """`NodeSide` inside one event loop; `break_off` is a lost connection."""

    def __init__(self, node_rank: int, hub: MemoryHub) -> None:
        self._node_rank = node_rank
        self._hub = hub
        self.inbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.gone = False

    @property
    def node_rank(self) -> int:
        return self._node_rank

    def break_off(self, why: str) -> None:
        """Lose the connection, as seen from both sides."""
        self.gone = True
        loss = Loss(reason=LossReason.LEFT, text=why)
        self._hub.inbox.put_nowait((self._node_rank, LOST, loss))
        self.inbox.put_nowait((LOST, loss))

    async def send(self, kind: str, body: Any) -> None:
        if self.gone:
            raise ConnectionLostError(Loss(reason=LossReason.CLOSED, text="the connection to node 0 is gone"))
        self._hub.inbox.put_nowait((self._node_rank, kind, _through_json(body)))

    async def receive(self, *, timeout_s: float) -> tuple[str, Any]:
        kind, body = await take(self.inbox, timeout_s)
        if kind == LOST:
            raise ConnectionLostError(body)
        return kind, body


def memory_channel(num_nodes: int) -> tuple[HubSide, Sequence[NodeSide]]:
    """A hub and its nodes inside one event loop."""
    hub = MemoryHub(num_nodes)
    return hub, tuple(hub.ends.values())


def silent() -> Narrator:
    """A narrator that says nothing."""
    return _Silent()


class _Silent:
    def say(self, key: str, **values: object) -> None:
        pass

    def log(self, key: str, **values: object) -> None:
        pass


def _through_json(body: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body))
