"""`allready run --rank-restarts`: a rank that dies is started again alone, and joins those that went on."""

import json
import textwrap
from typing import Any

import pytest

from tests.agent.jobs import Job, Node

pytestmark = [pytest.mark.torch, pytest.mark.newest]

SCRIPT = """
    import os, signal, time, torch, torch.distributed as dist, allready
    allready.init_process_group("gloo", timeout=20)
    me, again = int(os.environ["RANK"]), "ALLREADY_REJOIN" in os.environ
    total = torch.zeros(1)

    def step(number):
        if me == {victim} and (number == 20 and not again or again and {always} and number > 20):
            os.kill(os.getpid(), signal.SIGKILL)
        ones = torch.ones(1000)
        allready.safe_all_reduce(ones)
        total.add_(1)
        if number + 1 >= {steps} and dist.get_world_size() >= {least}:
            loop.num_steps = number + 1  # all ranks of a step decide alike
        time.sleep(0.02)

    def take_over(recovery, _):
        dist.broadcast(total, recovery.source)
        if me == 1:
            print("members", *recovery.members, flush=True)

    loop = allready.TrainLoop(10**6, on_recovery=take_over)
    assert loop.run(step).step == total.item()
    allready.destroy_process_group()
"""


def played(job: Job, *, text: str = SCRIPT, **values: Any) -> Node:
    text = textwrap.dedent(text).format(**{"victim": 0, "always": False, "least": 3, "steps": 40, **values})
    node = job.start("--standalone", "--nproc-per-node", "3", "--rank-restarts", "1", job.script(text))
    node.wait(110.0)
    return node


def outcome(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((node.report_dir / "attempts.jsonl").read_text().splitlines()[-1])
    return found


def test_a_rank_that_was_killed_comes_back_and_the_job_ends_well(job: Job) -> None:
    node = played(job)
    assert node.process.returncode == 0, node.out + node.err
    assert "members 1 2\n" in node.out
    assert "members 0 1 2\n" in node.out
    assert "rank 0 ended (SIGKILL); it is started again while the others go on" in node.err
    assert (node.report()["status"], node.report()["verdict"]) == ("healthy", None)


@pytest.mark.slow
def test_a_rank_that_comes_too_late_does_not_spoil_the_others_end(job: Job) -> None:
    node = played(job, least=2, steps=21)
    assert node.process.returncode == 0, node.out + node.err
    assert "nothing to join, this process ends" in node.out
    assert (outcome(node)["outcome"], node.report()["status"]) == ("success", "healthy")


@pytest.mark.slow
def test_a_rank_that_stays_stopped_does_not_keep_the_job_from_ending(job: Job) -> None:
    text = SCRIPT.replace("SIGKILL", "SIGSTOP").replace("timeout=20", "timeout=2")
    node = played(job, text=text, victim=1, least=2)
    assert node.process.returncode == 0, node.out + node.err
    assert "all other ranks have ended well, and rank 1 is stopped: it is continued (SIGCONT)" in node.err
    assert "nothing to join, this process ends" in node.out
    assert outcome(node)["outcome"] == "success"


@pytest.mark.slow
def test_when_no_restart_is_left_the_job_fails_as_usual(job: Job) -> None:
    node = played(job, victim=2, always=True)
    assert node.process.returncode == 137, node.out + node.err
    assert (outcome(node)["outcome"], outcome(node)["first_failed_rank"]) == ("killed", 2)
    assert node.report()["verdict"]["culprits"]["ranks"] == [2]
