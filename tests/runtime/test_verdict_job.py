"""Under `allready run`, without a deadline: the verdict on a hang ends the calls of all ranks, and the job goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.jobs import Job, nothing_left

SCRIPT = """
import os, signal, sys, time
import torch, allready

allready.init_process_group()
rank = int(os.environ["RANK"])
stop_at = [20, 60]

def train_step(step):
    if rank == 1 and stop_at and step >= stop_at[0] and torch.distributed.get_world_size() == 3:
        stop_at.pop(0)
        with open("stopped.part", "w") as file:
            file.write(f"{os.getpid()} {time.time()}")
        os.rename("stopped.part", "stopped")
        os.kill(os.getpid(), signal.SIGSTOP)
    x = torch.ones(64)
    allready.safe_all_reduce(x)
    assert x[0].item() == torch.distributed.get_world_size()
    time.sleep(0.02)

def take_over(recovery, step):
    if rank == 0:
        pid, since = open("stopped").read().split()
        verdict = recovery.failure.verdict
        said = [recovery.failure.failure.cause, verdict and verdict.code, verdict and verdict.culprits.ranks]
        print("RECOVERED", recovery.members, recovery.joined, time.time() - float(since), *said, flush=True)
        if len(recovery.members) == 2:
            os.kill(int(pid), signal.SIGCONT)

def after_step(step):
    if step >= 100 and torch.distributed.get_world_size() == 3:
        loop.num_steps = step

loop = allready.TrainLoop(10**6, on_recovery=take_over, after_step=after_step)
end = loop.run(train_step)
print("THROUGH", rank, flush=True)
allready.finish()
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """Its agents end with the test."""
    one = Job(tmp_path)
    with nothing_left(str(tmp_path), one.job_id):
        try:
            yield one
        finally:
            one.close()


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.jobs
def test_without_a_deadline_the_verdict_ends_the_calls(job: Job) -> None:
    """A rank stops; the others go on without it long before the 10 minutes of the phase, and it joins when it wakes.

    Then the same rank stops once more: nothing had to be well for a while in between.
    """
    node = job.start("--nproc-per-node", "3", job.script(SCRIPT))
    code = node.wait(150.0)
    said = [line.partition("RECOVERED ")[2] for line in node.out.splitlines() if "RECOVERED" in line]
    assert code == 0, node.out[-6000:] + node.err[-3000:]
    assert len(said) == 4, said
    for without, again in (said[:2], said[2:]):
        assert without.startswith("(0, 2) () "), said
        assert without.endswith("verdict RTM003 (1,)"), said
        assert again.startswith("(0, 1, 2) (1,) "), said
    notes = [note for note in node.report()["notes"] if note.endswith("then the job recovered")]
    assert len(notes) == 2, node.report()["notes"]
    assert all("rank 1 (" in note for note in notes), notes
    assert any("2 ranks waited" in note for note in notes), notes  # the first look may come before they wait
    assert node.out.count("THROUGH") == 3


ASLEEP = """
import os, time
import torch, allready

allready.init_process_group()
rank = int(os.environ["RANK"])
has_slept = []

def train_step(step):
    if rank == 1 and step == 40 and not has_slept:
        has_slept.append(step)
        while not os.path.exists("go_on"):
            time.sleep(0.1)
    torch.distributed.all_reduce(torch.ones(64))
    time.sleep(0.02)

def take_over(recovery, step):
    if rank == 0:
        verdict = recovery.failure.verdict
        said = [recovery.failure.failure.cause, verdict and verdict.code, verdict and verdict.culprits.ranks]
        print("RECOVERED", recovery.members, recovery.joined, *said, flush=True)
        open("go_on", "w").close()

def after_step(step):
    if step >= 60 and torch.distributed.get_world_size() == 3:
        loop.num_steps = step

loop = allready.TrainLoop(10**6, on_recovery=take_over, after_step=after_step)
loop.run(train_step)
allready.finish()
"""


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.jobs
@pytest.mark.slow
def test_without_a_deadline_a_rank_that_sleeps_is_left_behind_before_its_sleep_is_a_fault(job: Job) -> None:
    """The report says only that the job waits, which may end by itself; the ranks know that it lasts unusually long."""
    node = job.start("--nproc-per-node", "3", job.script(ASLEEP))
    code = node.wait(150.0)
    said = [line.partition("RECOVERED ")[2] for line in node.out.splitlines() if "RECOVERED" in line]
    assert code == 0, node.out[-6000:] + node.err[-3000:]
    assert len(said) == 2, said
    assert said[0] == "(0, 2) () verdict RTM005 (1,)", said
    assert said[1].startswith("(0, 1, 2) (1,) "), said
    assert "waiting, which may end by itself" in node.err
    assert "FAULT" not in node.err


POLLS = """
import os, sys, time
import torch, allready
from allready.live.beacon import names
from allready.runtime.hang_watch import ASLEEP_S

allready.init_process_group()
rank = int(os.environ["RANK"])
mark = os.path.join(os.path.dirname(names.RANK_FOLDER[0]), names.HUNG)

def marked_s():
    try:
        return time.time() - os.stat(mark).st_mtime
    except OSError:
        return 0.0

def train_step(step):
    if rank == 0 and step == 40:
        while marked_s() < 3 * ASLEEP_S:
            time.sleep(0.1)
        print("POLLED", flush=True)
    allready.safe_all_reduce(torch.ones(64))
    time.sleep(0.02)

def take_over(recovery, step):
    print("RECOVERED", flush=True)

if sys.argv[1] == "loop":
    allready.TrainLoop(60, on_recovery=take_over).run(train_step)
else:
    for step in range(60):
        train_step(step)
print("THROUGH", flush=True)
allready.finish()
"""


def sleep_ends_no_call(job: Job, *options: str, how: str) -> None:
    """All wait for a rank that sleeps in order, longer than ranks that recover wait for one."""
    node = job.start(*options, "--nproc-per-node", "2", job.script(POLLS), how)
    code = node.wait(150.0)
    assert code == 0, node.out[-6000:] + node.err[-3000:]
    assert "POLLED" in node.out
    assert "RECOVERED" not in node.out
    assert node.out.count("THROUGH") == 2
    assert "waiting, which may end by itself" in node.err


@pytest.mark.torch
@pytest.mark.jobs
@pytest.mark.slow
def test_a_sleep_ends_no_call_of_a_script_that_a_failure_would_end(job: Job) -> None:
    sleep_ends_no_call(job, how="plain")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.jobs
@pytest.mark.slow
def test_a_sleep_ends_no_call_before_the_time_that_the_user_has_set(job: Job) -> None:
    sleep_ends_no_call(job, "--hang-after", "600", how="loop")


UNCAUGHT = """
import os, sys, time
import torch, allready

allready.init_process_group()
rank = int(os.environ["RANK"])
for step in range(60):
    if rank == 0 and step == 30:
        time.sleep(600)
    allready.safe_all_reduce(torch.ones(64), timeout=3)
    time.sleep(0.02)
"""


@pytest.mark.torch
@pytest.mark.newest
@pytest.mark.jobs
def test_a_failure_that_nothing_catches_is_the_verdict_of_the_run(job: Job) -> None:
    """The rank that raised it is a victim; a connection that the library cut is no network fault."""
    node = job.start("--nproc-per-node", "2", job.script(UNCAUGHT))
    assert node.wait(150.0) == 1
    verdict = node.report()["verdict"]
    assert verdict is not None, node.err[-3000:]
    assert (verdict["code"], verdict["culprits"]["ranks"]) == ("RTM005", [0]), verdict
    assert "(RTM005 " in node.err
    assert "/runtime/" not in verdict["sentence"]
