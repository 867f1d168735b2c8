"""The agent of a node on a machine that has more to do than it can."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from allready.agent.context import AgentContext, AgentState
from allready.agent.interruption import ReportKeeper
from allready.agent.node import Sampler
from allready.errors import DeadlineExceeded
from allready.launch.request import Command, RunRequest
from allready.live.node.observer import NodeObserver
from allready.model import Gather, NodeEvidence, NodeStatus


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
        request=RunRequest(command=Command(target="train.py")),
        name="gpu0",
        instance="0" * 16,
        run_dir=folder,
        report_dir=folder,
        addresses=(),
        say=lambda _note: None,
        on_start=lambda: None,
        state=AgentState(reports=ReportKeeper(lambda _report: None)),
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
