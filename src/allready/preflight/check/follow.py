"""What every node does for the stages, node 0 included: wait for node 0's messages and take part."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from allready.errors import DeadlineExceeded, ExchangeError
from allready.messaging.channel import Narrator, NodeSide, convert
from allready.model import NodeFacts, Report
from allready.preflight import reach
from allready.preflight.collectives import agent
from allready.preflight.collectives.wire import START

REACH_OPEN = "reach.open"
RECEIVE_S = 5.0
"""One wait for a message.  Node 0 bounds every stage, and the link ends when node 0 has been silent for 10 s."""


class Abandoned(Struct, frozen=True, kw_only=True):
    """Node 0 ended the check itself."""

    why: str


async def follow(
    node: NodeSide,
    facts: asyncio.Future[NodeFacts],
    *,
    narrator: Narrator,
    most_ranks: int,
    on_interim: Callable[[Report], None] = lambda _report: None,
    on_stage: Callable[[str], None] = lambda _stage: None,
) -> Report | Abandoned:
    """Take part in every stage that node 0 starts, until its result.

    Args:
        facts: this node's own; awaited where a stage needs them, and left as they are on cancellation.
        most_ranks: that this node's user asked for.

    Raises:
        ExchangeError: the connection to node 0 broke, or node 0 fell silent in the middle of a stage.
    """
    waiting: tuple[str, Any] | None = None  # a message that a stage handed back, because it was not the stage's own
    has_begun = False
    while True:
        kind, body = waiting if waiting is not None else await _next(node)
        waiting = None
        if kind == "interim":
            if not has_begun:  # later ones are what a stage has found
                on_stage("roll")
            on_interim(convert(body, Report))
        elif kind == "result":
            return convert(body, Report)
        elif kind == "abandoned":
            return Abandoned(why=str(body)[:500])
        elif kind == REACH_OPEN:
            has_begun = True
            on_stage("reach")
            try:
                await reach.take_part(node, body, await asyncio.shield(facts), narrator)
            except DeadlineExceeded as error:
                raise ExchangeError(f"node 0 fell silent in the middle of the reachability stage: {error}") from error
        elif kind == START:
            has_begun = True
            on_stage("collectives")
            waiting = await agent.take_part(node, body, narrator=narrator, most_ranks=most_ranks)
        # Anything else is a late message of a stage that this node has left: without meaning now.


async def _next(node: NodeSide) -> tuple[str, Any]:
    while True:
        with contextlib.suppress(DeadlineExceeded):
            return await node.receive(timeout_s=RECEIVE_S)
