"""The agent of a node on a machine that has more to do than it can."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from allready.agent import messages
from allready.agent.context import AgentContext, AgentState
from allready.agent.node import NodeAgent, Sampler
from allready.agent.node_report import NodeReport
from allready.errors import DeadlineExceeded, ExchangeError
from allready.launch.request import RankCommand, RunRequest
from allready.live.node.observer import NodeObserver
from allready.model import EndCause, Gather, JobOutcome, NodeEvidence, NodeStatus, Phrase, ProcessEnd


class Overrun(NodeObserver):
    """An observer that is never done in time."""

    num_asked = 0

    def sample(self, now_s: float) -> NodeStatus:
        self.num_asked += 1
        raise DeadlineExceeded("a sample of the ranks has been running for more than 1.0 s")

    def gather(
        self,
        number: int,
        *,
        deadline_s: float = 1.5,
        with_dump: bool = True,
        flush: Callable[[float], bool] | None = None,
    ) -> NodeEvidence:
        self.num_asked += 1
        raise DeadlineExceeded("a sample of the ranks has been running for more than 1.0 s")


class Silent:
    """A connection to node 0 over which nothing may go."""

    node_rank = 0

    async def send(self, kind: str, body: Any) -> NoReturn:
        raise AssertionError(f"{kind} was sent")

    async def receive(self, *, timeout_s: float) -> NoReturn:
        raise DeadlineExceeded("nothing came")


def context_of(folder: Path) -> AgentContext:
    """An agent's context that shows nothing."""
    return AgentContext(
        request=RunRequest(command=RankCommand(target="train.py")),
        name="gpu0",
        instance="0" * 16,
        run_dir=folder,
        report_dir=folder,
        addresses=(),
        say=lambda _note: None,
        on_meeting=lambda: None,
        on_start=lambda: None,
        state=AgentState(reports=NodeReport(lambda _report: None)),
    )


async def test_a_sample_that_takes_too_long_ends_nothing(tmp_path: Path) -> None:
    observer = Overrun(node_rank=0, name="gpu0", run_dir=tmp_path, with_gpu=False)
    sampler = Sampler(Silent(), context_of(tmp_path), observer)
    try:
        await sampler.sample(at_once=True)
        assert observer.num_asked == 0, "no ranks run yet"
        sampler.begin(0, {})
        await sampler.sample()
        await sampler.sample(at_once=True)
        assert await sampler.gather(Gather(number=3, why="a wait")) is None
        assert observer.num_asked == 3
    finally:
        sampler.close()


class Closing:
    """A connection to node 0 over which nothing goes any more; what node 0 said before is still to be read."""

    node_rank = 1

    def __init__(self, *said: tuple[str, Any]) -> None:
        self.said = list(said)

    async def send(self, kind: str, body: Any) -> NoReturn:
        raise ExchangeError(f"sending to node 0 failed: {kind}, {body}")

    async def receive(self, *, timeout_s: float) -> tuple[str, Any]:
        await asyncio.sleep(0.2)  # what cannot be sent is noticed first
        if not self.said:
            raise DeadlineExceeded("nothing came")
        return self.said.pop(0)


async def test_what_node_0_said_before_it_closed_the_connection_counts_more_than_that_nothing_can_be_sent(
    tmp_path: Path,
) -> None:
    ended = messages.Finish(
        job=JobOutcome(exit_code=1, outcome=EndCause.STOPPED, attempts=0), why=Phrase("ended by SIGTERM")
    )
    for said in ([(messages.FINISH, to_builtins(ended))], []):
        context = context_of(tmp_path)
        context.state.requests.put_nowait(messages.Request(stop="SIGTERM"))
        agent = NodeAgent(Closing(*said), replace(context, request=replace(context.request, diagnosis=False)))
        try:
            if said:
                assert await agent.follow() == ended
            else:
                with pytest.raises(ExchangeError, match="sending to node 0 failed"):
                    await agent.follow()
        finally:
            await agent.close()


class Hearing:
    """A connection to node 0 that keeps what was sent."""

    node_rank = 0

    def __init__(self) -> None:
        self.kinds: list[str] = []

    async def send(self, kind: str, _body: Any) -> None:
        self.kinds.append(kind)

    async def receive(self, *, timeout_s: float) -> NoReturn:
        raise DeadlineExceeded("nothing came")


class Leftover:
    """A sampler whose ranks left logs that cannot be read: the file system hangs, or fails."""

    def __init__(self, fault: OSError | None, where: str) -> None:
        self._fault = fault
        self._where = where
        self._is_over = threading.Event()
        self.observer = self

    def has_nccl_logs(self) -> bool:
        if self._where == "logs":
            if self._fault is not None:
                raise self._fault
            self._is_over.wait(20.0)
        return True

    async def sample(self, *, at_once: bool = False) -> None:
        pass

    async def gather(self, _order: Gather) -> None:
        if self._fault is not None:
            raise self._fault
        await asyncio.sleep(600)

    def close(self) -> None:
        self._is_over.set()


@pytest.mark.parametrize("where", ["logs", "gather"])
@pytest.mark.parametrize("fault", [None, OSError(5, "Input/output error")])
async def test_node_0_learns_that_the_ranks_ended_also_where_what_they_left_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, fault: OSError | None
) -> None:
    monkeypatch.setattr("allready.agent.node.LAST_WORDS_S", 0.2)
    node = Hearing()
    context = context_of(tmp_path)
    agent = NodeAgent(node, replace(context, request=replace(context.request, diagnosis=False)))
    agent._sampler = Leftover(fault, where)  # type: ignore[assignment]
    ended = messages.Ended(attempt=0, ends=(ProcessEnd(rank=0, exit_code=0, time_s=1.0),))
    try:
        await asyncio.wait_for(agent._send(messages.ENDED, ended), 15.0)
        assert node.kinds == [messages.ENDED]
    finally:
        await agent.close()
