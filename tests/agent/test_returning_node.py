"""A node whose connection breaks after the roll call and before the ranks start: the job waits for it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allready.agent import messages
from allready.messaging.link import Link
from tests.agent.jobs import PRINT_WHO, Job
from tests.clock import until
from tests.messaging.test_hub import join

AWAY_S, COMES_S = 0.6, 60.0


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.close()


async def joined(job: Job) -> Link:
    async with asyncio.timeout(COMES_S):
        while True:
            link, _ = await join(job.port, 1, num_nodes=2, nproc_per_node=1, job_id=job.job_id)
            if link is not None:
                return link
            await asyncio.sleep(0.05)


async def roll_is_over(job: Job) -> None:
    """From then on node 0 names itself to a node of another job."""
    async with asyncio.timeout(COMES_S):
        while True:
            _, contact = await join(job.port, 1, num_nodes=2, job_id="another", instance="other")
            if contact.refusal is not None and contact.refusal.holder is not None:
                return
            await asyncio.sleep(0.05)


async def plan_for_one_that_returns(job: Job) -> dict[str, Any]:
    link = await joined(job)
    await roll_is_over(job)
    await link.close()
    await asyncio.sleep(AWAY_S)
    link = await joined(job)
    try:
        await link.send(messages.OFFER, messages.Offer(nproc_per_node=1, name="node1"))
        kind = ""
        while kind != messages.PLAN:
            kind, body = await link.receive(timeout_s=COMES_S)
        return dict(body)
    finally:
        await link.close("the test is over")


def test_the_job_does_not_begin_without_a_node_that_is_back_at_once(job: Job) -> None:
    node0 = job.node(0, "--wait", "30", "--no-diagnosis", "--grace", "1", job.script(PRINT_WHO))
    plan = asyncio.run(plan_for_one_that_returns(job))
    assert plan["world_size"] == 2
    node0.wait(COMES_S)
    assert "of 1 " not in node0.out


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--no-diagnosis",)])
def test_that_a_node_was_awaited_is_no_verdict_on_a_job_that_ended_well(job: Job, options: tuple[str, ...]) -> None:
    script = job.script(PRINT_WHO)
    node0 = job.node(0, "--wait", "60", *options, script)
    report = node0.report_dir / "report.json"
    until(lambda: report.exists() and "JOB001" in report.read_text(), COMES_S)
    node1 = job.node(1, "--wait", "60", *options, script)
    assert (node0.wait(COMES_S), node1.wait(COMES_S)) == (0, 0)
    assert (node0.report()["verdict"], node1.report()["verdict"]) == (None, None)
