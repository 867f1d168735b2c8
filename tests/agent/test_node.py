"""The agent of a node on a machine that has more to do than it can."""

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn

from allready.agent.node import NodeAgent
from allready.errors import DeadlineExceeded
from allready.model import Gather


class Overrun:
    """An observer that is never done in time."""

    def look(self, now_s: float) -> NoReturn:
        raise DeadlineExceeded("a look at the ranks has been going on for more than 1.0 s")

    def gather(self, number: int, *, deadline_s: float, with_dump: bool) -> NoReturn:
        raise DeadlineExceeded("a look at the ranks has been going on for more than 1.0 s")


class Silent:
    """A connection to node 0 over which nothing may go."""

    async def send(self, kind: str, body: Any) -> NoReturn:
        raise AssertionError(f"{kind} was sent")


async def test_a_look_that_takes_too_long_ends_nothing() -> None:
    agent: Any = NodeAgent.__new__(NodeAgent)
    agent._attempt = SimpleNamespace(number=0, has_started=True)
    agent._observer, agent._looking, agent._node = Overrun(), asyncio.Lock(), Silent()
    await agent._look()
    await agent._look(at_once=True)
    await agent._gather(Gather(number=3, why="a wait", keep=True))
    assert not agent._looking.locked()
