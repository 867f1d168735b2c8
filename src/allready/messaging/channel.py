"""How the stages of a check talk: node 0's hub to every node, and back.

`HubSide` and `NodeSide` are what a stage sees; `hub` and `link` implement them.  Node 0 has a `NodeSide` like every
other node.

A body is anything that msgspec can encode; the receiver gets plain lists, dicts, strings and numbers, and
converts them with `convert(body, Type)`.
"""

import asyncio
from typing import Any, Protocol, TypeVar

import msgspec

from allready.errors import DeadlineExceeded, ExchangeError
from allready.messaging.narrator import Narrator as Narrator
from allready.messaging.wire import BrokenError, PeerClosedError
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
    if isinstance(error, ConnectionLostError):
        return error.loss
    if isinstance(error, BrokenError):
        return Loss(reason=LossReason.BROKEN, text=error.text)
    if isinstance(error, PeerClosedError):
        return Loss(reason=LossReason.PEER_CLOSED)
    return Loss(reason=LossReason.CLOSED, text=str(error))


class HubSide(Protocol):
    """Node 0's end: all nodes of the roll."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node ranks that are connected now, sorted."""
        ...

    async def send(self, node_rank: int | None, kind: str, body: Any) -> None:
        """Send to one node, or to all connected nodes (None).  A node that is gone is passed over; LOST reports it."""
        ...

    async def receive(self, *, timeout_s: float) -> tuple[int, str, Any]:
        """The next message of any node: (node_rank, kind, body), or (node_rank, LOST, Loss).

        Raises:
            DeadlineExceeded: nothing came within `timeout_s`; nothing is lost.
        """
        ...


class NodeSide(Protocol):
    """One node's end.  ExchangeError: the connection is gone; so is this check."""

    @property
    def node_rank(self) -> int:
        """This node's rank in the job."""
        ...

    async def send(self, kind: str, body: Any) -> None:
        """Send to the hub."""
        ...

    async def receive(self, *, timeout_s: float) -> tuple[str, Any]:
        """The hub's next message: (kind, body).

        Raises:
            DeadlineExceeded: nothing came within `timeout_s`; nothing is lost.
            ExchangeError: the connection is gone; so is this check.
        """
        ...


async def take(inbox: asyncio.Queue[T], timeout_s: float) -> T:
    """The next message of an inbox.

    Raises:
        DeadlineExceeded: nothing came within `timeout_s`; nothing is lost.
    """
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            return await inbox.get()
    except TimeoutError:
        raise DeadlineExceeded(f"no message within {timeout_s:.1f} s") from None


def convert(body: object, kind: type[T]) -> T:
    """A received body as a typed value.

    Raises:
        ExchangeError: the body is not of that shape (another version, or garbage).
    """
    try:
        return msgspec.convert(body, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise ExchangeError(f"a message is not what it should be ({kind.__name__}): {error}") from error
