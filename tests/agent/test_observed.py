"""The diagnosis is a guest of the job: a mistake in it ends the diagnosis alone."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from allready.agent import messages
from allready.agent.context import AgentState
from allready.agent.node_report import NodeReport
from allready.agent.nodes import NodeTable
from allready.agent.supervisor import FACTS_S, NAMELESS_S, Supervisor
from allready.judging.differences import Comparison
from allready.live.monitor.monitor import Monitor
from allready.model import Culprits, NodeFacts, NodeStatus, RankStatus, Report, Severity, Status, UncheckedKind
from tests.agent.test_interruption import CTRL_C, report
from tests.cases import cases

SHOWN = {"is_calm": False, "is_settled": True, "course": None, "last": report(Status.WAITING, Severity.WARNING)}


class Mistaken:
    """A monitor in which something is wrong, as where another release was installed over this one meanwhile."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def answer(*_: object, **__: object) -> Any:
            if name == self._where:
                raise TypeError(f"{name}: unexpected keyword argument")
            return SHOWN.get(name, object() if name == "ask" else None)

        return answer() if name in SHOWN else answer


class Hub(SimpleNamespace):
    """Keeps what it sends."""

    async def send(self, _node: object, kind: str, message: object) -> None:
        self.sent.append((kind, message))


def supervisor(monitor: object, known: Report) -> Supervisor:
    roll = SimpleNamespace(take_own_facts=lambda: None, fleet=None, hub=Hub(nodes={}, answering=frozenset(), sent=[]))
    return Supervisor(
        cast("Any", SimpleNamespace(ranks_of_nodes={0: (0, 1)}, num_nodes=1, attempt=0)),
        cast("Any", SimpleNamespace()),
        roll=cast("Any", roll),
        table=NodeTable(AgentState(reports=NodeReport(lambda _report: None)), lambda: None),
        monitor=cast("Any", monitor),
        comparison=cast("Any", SimpleNamespace(make=lambda *_: False, differences=None)),
        known=lambda: known,
    )


@cases(
    ("where", "ask"),
    [
        ("wants", lambda found: asyncio.run(found._judge(1.0))),
        ("judge", lambda found: asyncio.run(found._judge(1.0))),
        ("is_calm", Supervisor._is_calm),
        ("awaits_words", lambda found: found._awaits_words(1.0)),
        ("is_settled", lambda found: found._is_explained(1.0)),
        ("take_end", lambda found: asyncio.run(found._end(messages.StopCause.RANK_FAILED))),
        *((name, lambda found: asyncio.run(found._interrupt(CTRL_C))) for name in ("ask", "freeze", "course")),
    ],
)
def test_a_mistake_in_the_diagnosis_ends_the_diagnosis_and_not_the_job(
    where: str, ask: Callable[[Supervisor], object]
) -> None:
    found = supervisor(Mistaken(where), report(Status.HEALTHY))
    ask(found)
    for now in () if found._is_final else (2.0, 3.0):
        asyncio.run(found._judge(now))  # nothing is asked any more
    [noted] = (item for item in found.report.not_checked if item.kind is UncheckedKind.DIAGNOSIS_FAILED)
    assert f"{where}: unexpected keyword argument" in noted.why
    assert found.report.status is (Status.INTERRUPTED if found._is_final else Status.UNKNOWN)
    shown = [message for kind, message in cast("Any", found)._roll.hub.sent if kind == messages.VERDICT]
    assert noted in shown[-1].report.not_checked  # `allready watch` shows it, too


def test_the_judge_knows_whose_kernel_answers() -> None:
    """A node whose agent is stopped is silent, and its path is not broken."""
    monitor = Monitor(hang_after_s=None)
    found = supervisor(monitor, report(Status.HEALTHY))
    cast("Any", found)._roll.hub.answering = frozenset({1})
    for node in (0, 1):
        monitor.take_status(NodeStatus(node_rank=node, ranks=(RankStatus(rank=node),)), 1.0, 1.0)
    asyncio.run(found._judge(1.0))
    assert monitor.fleet is not None
    assert monitor.fleet.live is not None
    assert monitor.fleet.live.answering == {1}


def test_what_was_found_before_stays() -> None:
    found = supervisor(Mistaken("judge"), report(Status.FAULT))
    asyncio.run(found._judge(1.0))
    assert (found.report.status, len(found.report.not_checked)) == (Status.FAULT, 1)


def test_a_job_that_fails_sooner_than_the_facts_come_waits_for_them() -> None:
    found = supervisor(None, report(Status.HEALTHY))
    there = {0: NodeFacts.none("made up")}
    found._comparison = Comparison(there, started=datetime.now(UTC))
    found._roll.hub.nodes = (0, 1)  # type: ignore[misc]
    assert not found._awaits_facts(10.0)  # it has not failed
    found._table.ended[0] = messages.Ended(attempt=0, ends=(), problem="no such program")
    assert found._awaits_facts(10.0 + FACTS_S / 2)
    assert not found._awaits_facts(10.0 + FACTS_S)  # they may never come
    assert found._awaits_facts(10.0)
    there[1] = NodeFacts.none("made up")
    assert not found._awaits_facts(10.0)


def test_a_job_that_hangs_because_of_nobody_known_stands_until_the_answers_have_been_judged() -> None:
    """Seen: one node of two had answered, the call of the third rank was not known, and the job was ended."""
    hung = report(Status.FAULT, Severity.BLOCKER)
    assert hung.verdict is not None
    nameless = replace(hung, verdict=replace(hung.verdict, culprits=Culprits()))
    monitor = SimpleNamespace(last=hung, is_settled=False)

    def ends(shown: Report, *answered: int, at_s: float, is_settled: bool = False) -> bool:
        monitor.last, monitor.is_settled = shown, is_settled
        found._table.answered.clear()
        found._table.answered.update(answered)
        return found._hangs_and_must_end(at_s)

    found = supervisor(monitor, hung)
    found._job = cast("Any", SimpleNamespace(on_hang="abort"))
    assert not ends(hung, at_s=10.0)
    assert ends(hung, 0, at_s=10.0)
    assert not ends(nameless, 0, at_s=10.0)
    assert not ends(nameless, at_s=10.0, is_settled=True)
    assert ends(nameless, 0, at_s=10.0, is_settled=True)
    assert ends(nameless, at_s=10.1 + NAMELESS_S)  # a node may never answer
