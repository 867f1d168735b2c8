"""Calls that one rank leaves out or makes besides, in real jobs: who it was, with both sides' call and line."""

import pytest

from tests.agent.jobs import Job
from tests.cases import cases

SCRIPT = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, kind = dist.get_rank(), os.environ["KIND"]
gradients, metric = torch.ones(1000), torch.ones(1)
pair = dist.new_group([0, 1])
def step():
    dist.all_reduce(gradients)
def log():
    dist.all_reduce(metric)
def exchange():
    if rank < 2:
        dist.all_reduce(metric, group=pair)
for i in range(60 - (kind == "short" and rank == 1) if kind == "short" else 5000):
    odd = rank == 1 and i == 40
    time.sleep(0.005)
    step()
    if not (odd and kind == "skip"):
        log()
    if kind == "pair" and not odd:
        exchange()
dist.destroy_process_group()
"""


def verdict_of(job: Job, kind: str, nproc: int) -> str:
    """The sentence of a job whose rank 1 is at fault."""
    node = job.start(
        "--grace", "2", "--on-hang", "abort", "--nproc-per-node", str(nproc), job.script(SCRIPT), env={"KIND": kind}
    )
    assert node.wait(100) != 0
    verdict = node.report()["verdict"]
    assert (verdict["fault_class"], verdict["culprits"]["ranks"]) == ("DESYNC-FLOW", [1])
    sentence = str(verdict["sentence"])
    assert "rank 1" in sentence.partition(";")[0]
    return sentence


@pytest.mark.slow
def test_of_two_ranks_the_one_that_leaves_out_a_call_of_the_loop_is_named_with_both_lines(job: Job) -> None:
    sentence = verdict_of(job, "skip", 2)
    assert sentence.index(" step)") < sentence.index(" log)")


@pytest.mark.slow
def test_a_batch_less_is_told_with_both_calls_and_iterations(job: Job) -> None:
    sentence = verdict_of(job, "short", 3)
    parts = (" log)", "in iteration 59", "iteration 60", " step)")
    assert not [part for part in parts if part not in sentence], sentence
    assert sorted(parts, key=sentence.index) == list(parts)


def test_who_leaves_out_a_call_of_a_smaller_group_is_named_in_the_circle(job: Job) -> None:
    sentence = verdict_of(job, "pair", 3)
    assert sentence.index("all_reduce [1000]") < sentence.index("all_reduce [1] ")


TURNED = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
values = torch.ones(8)
def gradients():
    dist.all_reduce(values, group=first)
def statistics():
    dist.all_reduce(values, group=second)
for call in [gradients, statistics][:: -1 if dist.get_rank() else 1]:
    call()
"""


@pytest.mark.slow
def test_one_against_one_in_groups_never_used_before_shows_both_orders_with_their_lines(job: Job) -> None:
    node = job.start("--grace", "2", "--on-hang", "abort", "--nproc-per-node", "2", job.script(TURNED))
    assert node.wait(100) != 0
    verdict = node.report()["verdict"]
    assert (verdict["code"], verdict["culprits"]["ranks"]) == ("HNG004", [0, 1])
    sentence = str(verdict["sentence"])
    assert sentence.index("rank 0 (") < sentence.index(" gradients)") < sentence.index(" statistics)")


FIRST = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
what, call, victim, at = os.environ["KIND"].split()
def small():
    dist.all_reduce(torch.ones(4))
def flag():
    dist.broadcast(torch.ones(1), 0)
def barrier():
    dist.barrier()
def gather():
    dist.all_gather([torch.zeros(3) for _ in range(size)], torch.ones(3))
def gradients():
    dist.all_reduce(torch.ones(5000))
make = {"small": small, "flag": flag, "barrier": barrier, "gather": gather}[call]
for i in range(60):
    is_odd = rank == int(victim) and i == int(at)
    if what == "drop" and is_odd:
        continue
    if is_odd == (what == "extra") or what == "drop":
        make()
    gradients()
    dist.all_reduce(torch.ones(700))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@cases("nproc", [3, 4])
@cases("at", [0, 3])
@cases("kind", ["skip small", "skip flag", "skip barrier", "skip gather", "extra small", "extra flag", "drop small"])
def test_who_leaves_out_or_adds_a_call_in_the_first_second_is_named(job: Job, kind: str, at: int, nproc: int) -> None:
    """Also its first one: a rank that is aborted by it leaves no record, and votes by the line in which it was."""
    victim = (len(kind) + at) % nproc
    node = job.start(
        "--grace",
        "2",
        "--on-hang",
        "abort",
        "--nproc-per-node",
        str(nproc),
        job.script(FIRST),
        env={"KIND": f"{kind} {victim} {at}"},
    )
    assert node.wait(100) != 0
    verdict = node.report()["verdict"]
    assert (verdict["fault_class"], verdict["culprits"]["ranks"]) == ("DESYNC-FLOW", [victim]), verdict["sentence"]


GRID = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
values = torch.ones(64)
def forward():
    dist.all_reduce(values, group=tensor)
def gradients():
    dist.all_reduce(values, group=data)
def norm():
    dist.all_reduce(values[:1])
for i in range(300):
    if not (rank == 3 and i == 1):
        forward()
    gradients()
    norm()
"""


@pytest.mark.slow
def test_who_leaves_out_a_call_of_one_of_its_groups_in_the_second_iteration_is_named_with_both_lines(job: Job) -> None:
    node = job.start("--grace", "2", "--on-hang", "abort", "--nproc-per-node", "4", job.script(GRID))
    assert node.wait(100) != 0
    verdict = node.report()["verdict"]
    assert (verdict["code"], verdict["culprits"]["ranks"]) == ("HNG010", [3])
    sentence = str(verdict["sentence"])
    assert sentence.index(" norm)") < sentence.index(" gradients)") < sentence.index(" forward)")


CAUGHT = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(8)
for i in range(30):
    try:
        if dist.get_rank() == 1 and i == 12:
            raise ValueError("bad batch")
        dist.all_reduce(x)
    except Exception:
        pass
if dist.get_rank():
    os._exit(0)  # one of those that end so is at fault, and one that does not ends as usual
"""


@pytest.mark.slow
def test_a_call_that_is_left_out_behind_a_caught_error_is_no_healthy_job(job: Job) -> None:
    node = job.start("--nproc-per-node", "3", job.script(CAUGHT))
    assert node.wait(100) == 0
    report = node.report()
    assert (report["status"], report["verdict"]["code"], report["verdict"]["culprits"]["ranks"]) == (
        "fault",
        "LIV016",
        [1],
    )


AFTER = """
import atexit, threading, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
saves = dist.new_group()
def save():
    for i in range(4):
        time.sleep(0.1 + 0.1 * rank)
        dist.all_reduce(torch.ones(4), group=saves)
threading.Thread(target=save).start()
dist.barrier()
dist.barrier() if rank else atexit.register(dist.barrier)
"""


@pytest.mark.slow
def test_collectives_of_threads_and_of_exit_handlers_after_the_last_line_are_no_difference(job: Job) -> None:
    node = job.start("--nproc-per-node", "2", job.script(AFTER))
    assert node.wait(100) == 0
    assert node.report()["status"] == "healthy"
