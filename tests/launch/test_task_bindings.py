"""Tasks that a launcher bound one by one: local rank 0 takes over what all of them may use.  Real processes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from allready.launch.task_bindings import Binding, Bindings, Tasks, collect, hand_over, share, take_over, tasks_of
from allready.text.ui import table, ui

CPUS = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")

TASK = """
import json, os, sys
from allready.text.ui import table, ui
from allready.launch.task_bindings import share, tasks_of
local_rank, nproc = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, {int(sys.argv[3])})
tasks = tasks_of(os.environ, local_rank=local_rank, number=2, node_rank=0)
cpus, notes = share(tasks, os.environ, nproc=nproc)
keys = [note.key for note in notes]
print(json.dumps([cpus, sorted(os.sched_getaffinity(0)), os.environ.get("CUDA_VISIBLE_DEVICES"), keys]))
"""


RUBBISH = """
import socket, sys, time
from allready.text.ui import table, ui
from allready.launch.task_bindings import Binding, Tasks, hand_over
tasks = Tasks(local_rank=1, number=2, job=sys.argv[1])
for body in (b"rubbish", b"{}", b"7", b"[" * 60000):
    for _ in range(500):
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(tasks.address)
                sock.sendall(body)
                break
            except OSError:
                time.sleep(0.02)
print(hand_over(tasks, Binding(cpus=(7,)), deadline_s=20))
"""


def start(local_rank: int, cpu: int, *, nproc: int = 2, **variables: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", TASK, str(local_rank), str(nproc), str(cpu)],
        env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def result(process: "subprocess.Popen[str]") -> list[object]:
    out, _ = process.communicate(timeout=60)
    found: list[object] = json.loads(out)
    return found


@pytest.mark.jobs
@two_cpus
@pytest.mark.parametrize("first", [0, 1])
def test_each_rank_gets_the_cpus_of_its_own_task_and_the_gpus_of_all(first: int, tmp_path: Path) -> None:
    job = tmp_path.name + str(first)
    tasks = {
        rank: start(rank, CPUS[rank], PMIX_NAMESPACE=job, CUDA_VISIBLE_DEVICES=str(rank)) for rank in (first, 1 - first)
    }
    cpus, own, devices, notes = result(tasks[0])
    assert (cpus, own, devices) == ([[CPUS[0]], [CPUS[1]]], CPUS[:2], "0,1")
    assert notes == ["tasks.bindings_kept"]
    assert result(tasks[1])[:2] == [[], [CPUS[1]]]


@pytest.mark.jobs
@two_cpus
def test_other_numbers_of_ranks_than_of_tasks_share_all_cpus(tmp_path: Path) -> None:
    tasks = [start(rank, CPUS[rank], nproc=4, PMIX_NAMESPACE=tmp_path.name) for rank in (0, 1)]
    assert result(tasks[0])[:2] == [[], CPUS[:2]]
    result(tasks[1])


@two_cpus
def test_tasks_of_another_job_on_this_machine_are_not_ours(tmp_path: Path) -> None:
    own = tasks_of({"PMIX_NAMESPACE": tmp_path.name}, local_rank=0, number=2, node_rank=0)
    other = tasks_of({"PMIX_NAMESPACE": tmp_path.name + "x"}, local_rank=1, number=2, node_rank=0)
    assert own.job != other.job
    assert not hand_over(other, Binding(cpus=(1,)), deadline_s=0.1)


def test_a_task_that_does_not_report_is_told_and_nothing_is_changed(tmp_path: Path) -> None:
    tasks = Tasks(local_rank=0, number=2, job=tmp_path.name)
    before, environ = os.sched_getaffinity(0), {"CUDA_VISIBLE_DEVICES": "0"}
    cpus, notes = take_over(collect(tasks, Binding(cpus=(0,)), deadline_s=0.1), environ, nproc=2)
    assert (cpus, [note.key for note in notes]) == ((), ["tasks.binding_unknown"])
    assert os.sched_getaffinity(0) == before
    assert environ == {"CUDA_VISIBLE_DEVICES": "0"}


def test_tasks_that_nothing_binds_do_not_wait_for_each_other(tmp_path: Path) -> None:
    if len(CPUS) < (os.cpu_count() or 1):
        pytest.skip("this process is bound")
    tasks = Tasks(local_rank=0, number=2, job=tmp_path.name)
    assert share(tasks, {}, nproc=2, deadline_s=3600.0) == ((), [])  # more than any test has


def both(first: Mapping[str, str], second: Mapping[str, str]) -> Bindings:
    cpus = tuple(CPUS)
    return Bindings(
        of_tasks={0: Binding(cpus=cpus, devices=dict(first)), 1: Binding(cpus=cpus, devices=dict(second))}, number=2
    )


def test_one_gpu_that_every_task_sees_under_the_same_number_is_said() -> None:
    """Control groups number each task's own GPU 0: local rank 0 cannot reach those of the others."""
    environ = {"CUDA_VISIBLE_DEVICES": "0"}
    _, notes = take_over(both(environ, environ), environ, nproc=2)
    assert [note.key for note in notes] == ["tasks.devices_of_one_task"]
    enough = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert take_over(both(enough, enough), dict(enough), nproc=2) == ((), [])
    assert take_over(both({}, {}), {}, nproc=2) == ((), [])


def test_rubbish_and_silence_at_the_socket_end_with_the_deadline(tmp_path: Path) -> None:
    """A caller that sends no report is passed over, and the right one still counts."""
    tasks = Tasks(local_rank=0, number=2, job=tmp_path.name)
    caller = subprocess.Popen([sys.executable, "-c", RUBBISH, tasks.job], stdout=subprocess.PIPE, text=True)
    found = collect(tasks, Binding(cpus=(0,)), deadline_s=30.0)
    assert caller.communicate(timeout=60)[0].strip() == "True"
    assert found.of_tasks == {0: Binding(cpus=(0,)), 1: Binding(cpus=(7,))}


def test_what_is_said_of_bindings_is_said_in_both_languages() -> None:
    values = {"cpus": "0-3", "missing": "1", "tasks": "2", "nproc": "8", "name": "CUDA_VISIBLE_DEVICES", "value": "0"}
    assert table("en", "tasks").keys() == table("zh", "tasks").keys()
    for key in table("en", "tasks"):
        assert ui(f"tasks.{key}", "en", **values) != ui(f"tasks.{key}", "zh", **values)
