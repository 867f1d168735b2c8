"""What every node does for the stages, node 0 included: wait for node 0's word and take part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from allready.errors import DeadlineExceeded, ExchangeError
from allready.model import NodeFacts, Report
from allready.preflight import reach
from allready.preflight.channel import Narrator, NodeSide, convert
from allready.preflight.collectives import agent
from allready.preflight.collectives.wire import START

REACH_OPEN = "reach.open"
IDLE_S = 3600.0
"""Node 0 bounds every stage and beats every 2 s; this only bounds a wait that should never be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """Node 0 ended the check itself."""

    why: str


async def follow(
    node: NodeSide,
    facts: NodeFacts,
    *,
    narrator: Narrator,
    on_interim: Callable[[Report], None] = lambda _report: None,
) -> Report | Abandoned:
    """Take part in every stage that node 0 starts, until its result.

    Raises:
        ExchangeError: the connection to node 0 broke.
    """
    waiting: tuple[str, Any] | None = None  # a message that a stage handed back, because it was not the stage's own
    while True:
        if waiting is not None:
            (kind, body), waiting = waiting, None
        else:
            try:
                kind, body = await node.receive(timeout_s=IDLE_S)
            except DeadlineExceeded as error:
                raise ExchangeError(f"node 0 is alive but started nothing for {IDLE_S:.0f} s") from error
        if kind == "interim":
            on_interim(convert(body, Report))
        elif kind == "result":
            return convert(body, Report)
        elif kind == "abandoned":
            return Abandoned(why=str(body)[:500])
        elif kind == REACH_OPEN:
            await reach.take_part(node, body, facts, narrator)
        elif kind == START:
            waiting = await agent.take_part(node, body, narrator=narrator)
        # Anything else is a late message of a stage that this node has left: without meaning now.
