"""What a node reports that has lost node 0."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from allready.agent.node_report import NodeReport
from allready.agent.participant import JobParticipant
from allready.model import EndCause, Loss, LossReason, Report, Severity, Status
from allready.model.fill import in_english
from tests.agent.test_interruption import report

BROKEN = Loss(reason=LossReason.BROKEN, text="Broken pipe")


async def none(*_: object) -> None:
    return


def end_of(loss: Loss, before: Report) -> Any:
    """The end of a job whose report was `before`; `judge_loss` blames node 0."""
    reports = NodeReport(lambda _report: None)
    reports.publish(before)
    participant = cast("Any", JobParticipant.__new__(JobParticipant))
    participant._context = SimpleNamespace(state=SimpleNamespace(reports=reports, attempt=0))
    participant._check = SimpleNamespace(report_series=SimpleNamespace(last=before))
    participant._interruption = None

    async def judge_loss(_loss: Loss) -> Report:
        return report(Status.FAULT)

    participant._joiner = SimpleNamespace(judge_loss=judge_loss)
    agent, link = SimpleNamespace(gather_now=none, end_ranks=none), SimpleNamespace(silent_s=0.0)
    view = SimpleNamespace(judge=lambda *_, **__: None)
    return asyncio.run(participant._without_node_0(agent, view, link, loss))


@pytest.mark.parametrize("pause_s", [None, 15.2])
def test_a_node_that_was_stopped_so_long_that_node_0_gave_it_up_does_not_blame_node_0(pause_s: float | None) -> None:
    before = report(Status.WAITING, Severity.WARNING)
    end = end_of(Loss(reason=BROKEN.reason, text=BROKEN.text, pause_s=pause_s), before)
    assert end.job.outcome is EndCause.NODE_LOST
    if pause_s is None:
        assert end.report.status is Status.FAULT
    else:
        assert (end.report.status, end.report.verdict) == (Status.UNKNOWN, before.verdict)
        assert "did not run for 15 s" in in_english(end.why)
