"""The diagnosis is a guest of the job: a mistake in it ends the diagnosis alone."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from allready.agent.context import AgentState
from allready.agent.node_report import NodeReport
from allready.agent.nodes import NodeTable
from allready.agent.supervisor import Supervisor
from allready.model import Report, Status, UncheckedKind
from tests.agent.test_interruption import report
from tests.cases import cases


class Mistaken:
    """A monitor in which something is wrong, as where another release was installed over this one meanwhile."""

    is_calm = True

    def __init__(self, where: str) -> None:
        self._where = where

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def answer(*_: object) -> None:
            if name == self._where:
                raise TypeError(f"{name}: unexpected keyword argument")

        return answer


def supervisor(monitor: object, known: Report) -> Supervisor:
    roll = SimpleNamespace(take_own_facts=lambda: None, fleet=None, hub=SimpleNamespace(nodes={}))
    return Supervisor(
        cast("Any", SimpleNamespace(ranks_of_nodes={0: (0, 1)}, num_nodes=1, attempt=0)),
        cast("Any", SimpleNamespace()),
        roll=cast("Any", roll),
        table=NodeTable(AgentState(reports=NodeReport(lambda _report: None)), lambda: None),
        monitor=cast("Any", monitor),
        comparison=cast("Any", SimpleNamespace(make=lambda *_: False)),
        known=lambda: known,
    )


@cases("where", ["wants", "judge"])
def test_a_mistake_in_the_diagnosis_ends_the_diagnosis_and_not_the_job(where: str) -> None:
    found = supervisor(Mistaken(where), report(Status.HEALTHY))
    asyncio.run(found._judge(1.0))
    told = found.report.not_checked[0]
    assert (found.report.status, told.kind) == (Status.UNKNOWN, UncheckedKind.DIAGNOSIS_FAILED)
    assert f"{where}: unexpected keyword argument" in told.why
    asyncio.run(found._judge(2.0))  # nothing is asked any more
    assert len(found.report.not_checked) == 1


def test_what_was_found_before_stays() -> None:
    found = supervisor(Mistaken("judge"), report(Status.FAULT))
    asyncio.run(found._judge(1.0))
    assert (found.report.status, len(found.report.not_checked)) == (Status.FAULT, 1)
