"""A node's part, over a channel inside one event loop: it does what node 0 says, until the result."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from allready.errors import DeadlineExceeded, ExchangeError
from allready.model import NodeFacts, Report, Status
from allready.preflight import reach
from allready.preflight.check import follow as module
from allready.preflight.check.follow import REACH_OPEN, Abandoned, follow
from allready.preflight.check.report_series import ReportSeries, plain
from allready.preflight.collectives import agent
from allready.preflight.collectives.wire import START
from tests.cases import cases
from tests.fleets import fleet, healthy_node
from tests.messaging.memory import MemoryHub, memory_channel, silent

REPORT = ReportSeries().judge(fleet(2), waiting=False, visible_since=None)


def facts_now() -> "asyncio.Future[NodeFacts]":
    future: asyncio.Future[NodeFacts] = asyncio.get_running_loop().create_future()
    future.set_result(healthy_node(1, 2))
    return future


class Follower:
    """Node 1 of two, following; what it received meanwhile."""

    def __init__(self, facts: "asyncio.Future[NodeFacts] | None" = None) -> None:
        hub, nodes = memory_channel(2)
        assert isinstance(hub, MemoryHub)
        self.hub = hub
        self.interim: list[Report] = []
        self.stages: list[str] = []
        self.end = asyncio.ensure_future(
            follow(
                nodes[1],
                facts or facts_now(),
                narrator=silent(),
                most_ranks=2,
                on_interim=self.interim.append,
                on_stage=self.stages.append,
            )
        )

    async def hears(self, kind: str, body: Any) -> None:
        await self.hub.send(1, kind, body)

    async def ended(self) -> Report | Abandoned:
        async with asyncio.timeout(5.0):
            return await self.end


async def test_the_result_ends_it() -> None:
    follower = Follower()
    await follower.hears("result", plain(REPORT))
    result = await follower.ended()
    assert isinstance(result, Report)
    assert (result.status, result.world, result.roll) == (Status.HEALTHY, REPORT.world, REPORT.roll)


async def test_interim_reports_are_passed_on_and_do_not_end_it() -> None:
    follower = Follower()
    await follower.hears("interim", plain(REPORT))
    await follower.hears("interim", plain(REPORT))
    await follower.hears("result", plain(REPORT))
    await follower.ended()
    assert len(follower.interim) == 2
    assert follower.stages == ["roll", "roll"]


async def test_a_check_that_node_0_gives_up_is_abandoned_with_the_reason() -> None:
    follower = Follower()
    await follower.hears("abandoned", "node 0 was interrupted")
    assert await follower.ended() == Abandoned(why="node 0 was interrupted")


async def test_an_endless_reason_is_cut() -> None:
    follower = Follower()
    await follower.hears("abandoned", "x" * 100_000)
    ended = await follower.ended()
    assert isinstance(ended, Abandoned)
    assert len(ended.why) == 500


async def test_a_broken_connection_is_raised() -> None:
    follower = Follower()
    follower.hub.ends[1].break_off("cable out")
    with pytest.raises(ExchangeError, match="cable out"):
        await follower.ended()


@cases("body", [None, 7, [], {"status": "healthy"}, {"status": "superb"}])
async def test_a_result_that_is_none_is_our_own_error(body: Any) -> None:
    follower = Follower()
    await follower.hears("result", body)
    with pytest.raises(ExchangeError, match="not what it should be"):
        await follower.ended()


async def test_words_without_meaning_are_passed_over() -> None:
    follower = Follower()
    for kind in ("beat", "reach.plan", "collectives.stop", "\x00", ""):
        await follower.hears(kind, {"any": "thing"})
    await follower.hears("result", plain(REPORT))
    assert isinstance(await follower.ended(), Report)
    assert follower.stages == []


def taking_part(monkeypatch: pytest.MonkeyPatch, stage: Any, work: Coroutine[Any, Any, Any]) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    async def take_part(*args: Any, **_kwargs: Any) -> Any:
        calls.append(args)
        return await work

    monkeypatch.setattr(stage, "take_part", take_part)
    return calls


async def nothing() -> None:
    """A stage that ends at once."""


async def test_a_stage_waits_for_the_nodes_own_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = taking_part(monkeypatch, reach, nothing())
    facts: asyncio.Future[NodeFacts] = asyncio.get_running_loop().create_future()
    follower = Follower(facts)
    await follower.hears(REACH_OPEN, {"a": 1})
    await follower.hears("result", plain(REPORT))
    await asyncio.sleep(0.05)
    assert (calls, follower.stages, follower.end.done()) == ([], ["reach"], False)
    facts.set_result(healthy_node(1, 2))
    await follower.ended()
    assert [call[1:3] for call in calls] == [({"a": 1}, healthy_node(1, 2))]


async def test_ending_it_while_it_waits_leaves_the_facts_to_others() -> None:
    facts: asyncio.Future[NodeFacts] = asyncio.get_running_loop().create_future()
    follower = Follower(facts)
    await follower.hears(REACH_OPEN, None)
    await asyncio.sleep(0.05)
    follower.end.cancel()
    await asyncio.gather(follower.end, return_exceptions=True)
    assert not facts.cancelled()
    facts.cancel()


async def test_a_node_0_that_falls_silent_in_a_stage_is_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silence() -> None:
        raise DeadlineExceeded("no message within 60.0 s")

    taking_part(monkeypatch, reach, silence())
    follower = Follower()
    await follower.hears(REACH_OPEN, None)
    with pytest.raises(ExchangeError, match="fell silent in the middle of the reachability stage"):
        await follower.ended()


async def test_a_message_that_a_stage_hands_back_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hand_back() -> tuple[str, Any]:
        return "abandoned", "node 0 was interrupted"

    taking_part(monkeypatch, agent, hand_back())
    follower = Follower()
    await follower.hears(START, None)
    assert await follower.ended() == Abandoned(why="node 0 was interrupted")
    assert follower.stages == ["collectives"]


async def test_a_start_order_of_nonsense_is_our_own_error_and_starts_nothing() -> None:
    follower = Follower()
    await follower.hears(START, {"run": 7})
    with pytest.raises(ExchangeError, match="StartOrder"):
        await follower.ended()


async def test_node_0_is_waited_for_as_long_as_the_connection_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECEIVE_S", 0.02)
    follower = Follower()
    await asyncio.sleep(0.2)  # ten waits
    assert not follower.end.done()
    follower.hub.ends[1].break_off("no sign of life")
    with pytest.raises(ExchangeError, match="no sign of life"):
        await follower.ended()
