"""A rank had raised, and its interpreter was still ending, when a signal came to the job."""

import asyncio
from typing import Any, cast

import pytest
from msgspec import Struct

from allready.agent import messages
from allready.agent.last_words import raised_before, raised_until_s, without_later
from allready.judging.interruption import UNSEEN_S, Interruption
from allready.live.monitor.monitor import Monitor
from allready.model import Gather, GroupMark, NodeEvidence, NodeStatus, RankEvidence, RankStatus, Report, Status
from allready.model.live import WORLD, ScriptException
from tests.agent.test_interruption import HEALTHY
from tests.agent.test_observed import supervisor
from tests.cases import cases
from tests.live.monitor.made import CLOSED, WALL, traceback

BATCH = traceback("ValueError: bad batch")
CTRL_C = Interruption(signal="SIGINT", node=0, time_s=WALL)
TERM = Interruption(signal="SIGTERM", node=0, time_s=WALL)


def rank(number: int, **changes: Any) -> RankStatus:
    known: dict[str, Any] = {"pid": 100 + number, "process_state": "sleeping", "phase": "computing"}
    return RankStatus(rank=number, **(known | changes))


def raised(number: int, at_s: float, kind: str = "ValueError", **changes: Any) -> RankStatus:
    return rank(number, **{"phase": "ending", "raised": ScriptException(kind, WALL + at_s), **changes})


def killed(number: int, at_s: float, **changes: Any) -> RankStatus:
    return rank(number, process_state="killed", signal="SIGTERM", ended_s=WALL + at_s, **changes)


def node(number: int, one: RankStatus, at_s: float = 0.0, offset_s: float = 0.0) -> NodeStatus:
    return NodeStatus(node_rank=number, name=f"gpu{number}", time_s=WALL + at_s, ranks=(one,), clock_offset_s=offset_s)


class Agents(Struct):
    """Of two nodes with a rank each: how that is when they are asked, and what it has printed by then.

    `late`: it prints that between the first question and the second.
    """

    ranks: tuple[RankStatus, RankStatus]
    logs: tuple[str, str] = ("", "")
    late: bool = False
    is_silent: bool = False
    answers_once: bool = False
    offset_s: float = 0.0  # of node 1's clock
    asked: list[Gather] = []

    def answers(self, order: Gather) -> list[NodeEvidence]:
        logs = ("", "") if self.late and not self.asked else self.logs
        self.asked.append(order)
        if self.is_silent or (self.answers_once and len(self.asked) > 1):
            return []
        return [
            NodeEvidence(
                node_rank=n,
                number=order.number,
                time_s=WALL + 0.1,
                status=node(n, self.ranks[n], 0.1, self.offset_s * n),
                ranks=(RankEvidence(rank=n, status=self.ranks[n], log_tail=logs[n]),)
                if self.ranks[n].raised is not None
                else (),
            )
            for n in (0, 1)
        ]


def interrupted(agents: Agents, interruption: Interruption = CTRL_C, *, has_begun: bool = True) -> Report:
    """The report of a calm job at a signal; no status before it tells that a rank raised, or, if it has not begun, of
    any rank."""
    found = supervisor(Monitor(hang_after_s=None), HEALTHY)
    found._nodes = frozenset({0, 1})
    table, hub = found._table, cast("Any", found)._roll.hub
    table.begin(0, {0: (0,), 1: (1,)})
    hub.nodes, hub.roll = {0: None, 1: None}, lambda **_: None

    async def send(_node: object, kind: str, body: object) -> None:
        if kind == messages.GATHER:
            for answer in agents.answers(cast("Gather", body)):
                table._news.append(answer)

    async def take_messages(timeout_s: float) -> None:
        await asyncio.sleep(0)

    hub.send, cast("Any", found)._roll.take_messages = send, take_messages
    for status in (node(0, rank(0), -0.5), node(1, rank(1), -0.5 + agents.offset_s, agents.offset_s)):
        table.statuses[status.node_rank] = status
        table._news.append(status)
    if not has_begun:
        table.begin(0, {0: (0,), 1: (1,)})
    asyncio.run(found._interrupt(interruption))
    return found.report


def test_an_exception_from_before_the_signal_is_the_verdict_though_no_status_had_told_of_it() -> None:
    agents = Agents((rank(0), raised(1, -0.2)), ("", BATCH))
    report = interrupted(agents)
    assert report.verdict is not None
    assert (report.status, report.verdict.code, report.verdict.culprits.ranks) == (Status.FAULT, "DTH001", (1,))
    assert "ValueError: bad batch" in report.verdict.sentence
    assert all(order.only_words for order in agents.asked)  # no rank is asked for its stack


@cases(
    ("one", "other", "logs"),
    [
        pytest.param(rank(0), rank(1), ("", ""), id="no rank raised"),
        pytest.param(rank(0), raised(1, 0.05), ("", BATCH), id="after the signal"),
        pytest.param(rank(0), raised(1, -0.2, "KeyError"), ("", BATCH), id="it has not printed that one"),
        pytest.param(rank(0), raised(1, -9.0, pid=7), ("", BATCH), id="another process of the rank"),
        pytest.param(killed(0, -0.3), raised(1, -0.32, "RuntimeError"), ("", CLOSED), id="the same shutdown"),
    ],
)
def test_what_is_none_of_that_leaves_the_job_interrupted(
    one: RankStatus, other: RankStatus, logs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allready.agent.supervisor.LAST_GATHER_S", 0.3)
    agents = Agents((one, other), logs)
    report = interrupted(agents)
    assert agents.asked
    assert (report.status, report.verdict, report.findings) == (Status.INTERRUPTED, None, ())


def test_a_rank_that_has_not_printed_it_yet_is_asked_again() -> None:
    agents = Agents((rank(0), raised(1, -0.2)), ("", BATCH), late=True)
    assert interrupted(agents).status is Status.FAULT
    assert len(agents.asked) == 2


def test_while_one_rank_does_not_print_what_another_has_printed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allready.agent.supervisor.LAST_GATHER_S", 0.3)
    agents = Agents((raised(0, -0.2), raised(1, -0.2)), ("", BATCH), answers_once=True)
    report = interrupted(agents)
    assert report.verdict is not None
    assert (report.verdict.culprits.ranks, len(agents.asked)) == ((1,), 2)


def test_a_rank_that_ends_meanwhile_is_told_by_what_it_raised() -> None:
    gone = raised(1, -0.2, process_state="exited", exit_code=1, ended_s=WALL + 0.05)
    assert interrupted(Agents((rank(0), gone), ("", BATCH))).status is Status.FAULT


def test_a_rank_that_raises_at_once_needs_no_status_before() -> None:
    gone = raised(1, -0.2, process_state="exited", exit_code=1, ended_s=WALL + 0.05)
    for one, other in ((rank(0), raised(1, -0.2)), (killed(0, 0.1), gone)):
        report = interrupted(Agents((one, other), ("", BATCH)), has_begun=False)
        assert report.verdict is not None
        assert (report.verdict.code, report.verdict.culprits.ranks, len(report.findings)) == ("DTH001", (1,), 1)


def test_a_job_that_has_not_begun_is_not_waited_for() -> None:
    agents = Agents((rank(0), rank(1)), is_silent=True)
    assert interrupted(agents, has_begun=False).verdict is None
    assert len(agents.asked) == 1


@cases(("offset_s", "at_s", "status"), [(60.0, 59.8, Status.FAULT), (-60.0, -59.0, Status.INTERRUPTED)])
def test_times_are_compared_on_node_0s_clock(
    offset_s: float, at_s: float, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allready.agent.supervisor.LAST_GATHER_S", 0.3)
    agents = Agents((rank(0), raised(1, at_s)), ("", BATCH), offset_s=offset_s)
    assert interrupted(agents).status is status


@cases(
    ("interruption", "one", "until_s"),
    [
        pytest.param(TERM, rank(0), 0.0, id="no rank could have got it"),
        pytest.param(CTRL_C, rank(0, outlives=("SIGINT",)), 0.0, id="Python raises because of it"),
        pytest.param(TERM, rank(0, outlives=("SIGTERM",)), -UNSEEN_S, id="it may have got it before us"),
        pytest.param(TERM, killed(0, -0.4), -0.4 - UNSEEN_S, id="it was ended before us"),
        pytest.param(TERM, rank(0, handling="SIGTERM", handling_after_s=WALL - 2.0), -2.0, id="it is in its handler"),
        pytest.param(TERM, rank(0, handling="SIGTERM"), float("-inf"), id="it has been in it for ever"),
        pytest.param(CTRL_C, raised(0, -0.5, process_state="exited"), 0.0, id="its own end is no shutdown"),
    ],
)
def test_until_when_an_exception_is_none_of_the_shutdowns(
    interruption: Interruption, one: RankStatus, until_s: float
) -> None:
    assert raised_until_s(interruption, [node(0, one)]) == pytest.approx(WALL + until_s)


def test_who_was_gone_before_stays_gone_and_whom_the_others_went_on_without_explains_nothing() -> None:
    def found(*known: RankStatus) -> list[NodeEvidence]:
        answers = Agents((rank(0), raised(1, -9.0)), ("", BATCH)).answers(Gather(number=1))
        return raised_before(answers, {n: node(n, one) for n, one in enumerate(known)}, WALL)

    formed = (GroupMark(group="0", label=WORLD, members=(0,)),)
    assert [answer.node_rank for answer in found(rank(0), rank(1))] == [1]
    [gone] = found(rank(0), rank(1, process_state="exited", exit_code=1, ended_s=WALL - 1))
    assert gone.ranks[0].status.is_gone
    assert gone.ranks[0].log_tail == BATCH
    assert found(rank(0, epoch=2, groups=formed), rank(1, epoch=1)) == []


def test_of_a_job_that_hung_later_exceptions_are_left_out_too() -> None:
    [_, answer] = Agents((rank(0), raised(1, 0.2)), ("", BATCH)).answers(Gather(number=1))
    assert without_later(answer, WALL).ranks[0].log_tail == ""
    assert without_later(answer, WALL + 1).ranks[0].log_tail == BATCH
