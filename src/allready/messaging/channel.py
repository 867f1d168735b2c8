"""How the stages of a check talk: node 0's hub to every node, and back.

`HubSide` and `NodeSide` are what a stage sees.  `allready.messaging` implements them over TCP;
`memory_channel` implements them inside one event loop, for tests.  Node 0 has a `NodeSide` like everyone else.

A body is anything that msgspec can encode; the receiver gets plain lists, dicts, strings and numbers, and
converts them with `convert(body, Type)`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from allready.errors import DeadlineExceeded, ExchangeError
from allready.model import Loss, LossReason

T = TypeVar("T")

LOST = "lost"
"""Kind of the event that the hub receives when a node's connection breaks; its body is a `Loss`."""


class ConnectionLostError(ExchangeError):
    """The connection to node 0 is gone; `loss` says how."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(str(loss))
        self.loss = loss


def loss_of(error: Exception) -> Loss:
    """How the connection ended that raised this."""
    return error.loss if isinstance(error, ConnectionLostError) else Loss(reason=LossReason.CLOSED, text=str(error))


class HubSide(Protocol):
    """Node 0's end: all nodes of the roll."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node ranks that are connected now, sorted."""
        ...

    async def send(self, node_rank: int | None, kind: str, body: Any) -> None:
        """Send to one node, or to all connected nodes (None).  A node that is gone is passed over: LOST tells."""
        ...

    async def receive(self, *, timeout_s: float) -> tuple[int, str, Any]:
        """The next message of any node: (node_rank, kind, body), or (node_rank, LOST, Loss).

        Raises:
            DeadlineExceeded: nothing came within `timeout_s`; nothing is lost.
        """
        ...


class NodeSide(Protocol):
    """One node's end."""

    @property
    def node_rank(self) -> int:
        """This node's rank in the job."""
        ...

    async def send(self, kind: str, body: Any) -> None:
        """Send to the hub.

        Raises:
            ExchangeError: the connection is gone; so is this check.
        """
        ...

    async def receive(self, *, timeout_s: float) -> tuple[str, Any]:
        """The hub's next message: (kind, body).

        Raises:
            DeadlineExceeded: nothing came within `timeout_s`; nothing is lost.
            ExchangeError: the connection is gone; so is this check.
        """
        ...


class Narrator(Protocol):
    """Where live progress goes.  Must be quick; called from the event loop."""

    def say(self, key: str, **values: object) -> None:
        """Show a passing state: the text of `key` (see `allready.text.ui`), replacing the previous state."""
        ...

    def log(self, key: str, **values: object) -> None:
        """Show a line that stays."""
        ...


def convert(body: Any, kind: type[T]) -> T:
    """A received body as a typed value.

    Raises:
        ExchangeError: the body is not of that shape (another version, or garbage).
    """
    try:
        return msgspec.convert(body, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise ExchangeError(f"a message is not what it should be ({kind.__name__}): {error}") from error


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
        try:
            async with asyncio.timeout(timeout_s):
                return await self.inbox.get()
        except TimeoutError:
            raise DeadlineExceeded(f"no message within {timeout_s} s") from None


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
        try:
            async with asyncio.timeout(timeout_s):
                kind, body = await self.inbox.get()
        except TimeoutError:
            raise DeadlineExceeded(f"no message within {timeout_s} s") from None
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
