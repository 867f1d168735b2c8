"""A node that has no place in the job loads nothing for it: what it says of the reason comes sooner."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from allready.agent.coordinator import JobCoordinator, PortIsHeld
from allready.model import LaunchFacts, PortHolder
from allready.preflight.check.joining import Joiner
from tests.agent.test_node import context_of
from tests.messaging.test_hub import at_loopback, hello, join, open_hub, stopped

pytestmark = pytest.mark.thorough


class Prepared(Exception):  # noqa: N818 - a state
    """What a job needs is being loaded."""


def context(port: int, node_rank: int) -> Any:
    """What both sides of a roll call work with, as far as it is looked at before nodes have met."""
    return SimpleNamespace(
        hello=hello(node_rank, instance="second", pid=7),
        launch=LaunchFacts(
            num_nodes=3, nproc_per_node=2, node_rank=node_rank, master_addr="127.0.0.1", master_port=port
        ),
        request=SimpleNamespace(wait_s=5.0),
        report_series=SimpleNamespace(started=datetime.now(UTC)),
        resolve=at_loopback,
        token=None,
    )


async def test_only_a_node_that_is_not_refused_prepares_for_the_job() -> None:
    told: list[str] = []
    async with open_hub() as (hub, port):
        first, _ = await join(port, 1)
        hub.close_roll(PortHolder(pid=100, command="allready run train.py"))
        refused = await Joiner(context(port, 1)).find_node_0(on_meeting=lambda: told.append("refused"))
        assert (refused, told) == (None, [])
        second = await Joiner(context(port, 2)).find_node_0(on_meeting=lambda: told.append("joined"))
        assert told == ["joined"]
        await stopped(first)
        await stopped(second)


async def test_node_0_prepares_for_the_job_once_it_has_its_port(tmp_path: Path) -> None:
    def prepare() -> None:
        raise Prepared

    agent = replace(context_of(tmp_path), on_meeting=prepare)
    async with open_hub() as (_, port):
        with pytest.raises(PortIsHeld):
            await JobCoordinator(context(port, 0), agent, yields=True).run_job()
    with pytest.raises(Prepared):
        await JobCoordinator(context(port, 0), agent, yields=True).run_job()


def test_a_job_begins_without_what_only_a_sweep_or_a_log_needs() -> None:
    code = (
        "import sys, allready.agent.entry\n"
        "unused = 'allready.preflight.collectives', 'allready.evidence.log', 'torch', 'jinja2'\n"
        "print(*(name for name in sys.modules if name.startswith(unused)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
