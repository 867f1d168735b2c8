"""Workers: they are forked or spawned, die, are interrupted, and never stay behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from allready.evidence.inputs.workers import LostTask, Workers
from allready.model.fill import in_english
from tests.clock import Deadline, Stopwatch

pytestmark = pytest.mark.jobs


def square(task: int, took: Callable[[int], None]) -> Iterator[tuple[int, bool]]:
    took(task)
    yield task * task, True


def several(task: int, _took: Callable[[int], None]) -> Iterator[tuple[int, bool]]:
    """The one with an odd number does not know that it is at its end."""
    for n in range(task):
        yield n, n == task - 1 and task % 2 == 0


def dying(task: int, _took: Callable[[int], None]) -> Iterator[tuple[int, bool]]:
    yield task, False
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 5:
        os._exit(7)
    yield -task, task % 2 == 0


def raising(task: int, _took: Callable[[int], None]) -> Iterator[tuple[int, bool]]:
    yield task, False
    raise ZeroDivisionError


def workers_left() -> list[psutil.Process]:
    """Children of this process, but for the helper of multiprocessing that ends with it."""
    return [c for c in psutil.Process().children() if "resource_tracker" not in " ".join(c.cmdline())]


@pytest.mark.parametrize("spawn", [False, True])
def test_every_task_is_done_once(spawn: bool) -> None:
    taken = 0

    def took(num_bytes: int) -> None:
        nonlocal taken
        taken += num_bytes

    with Workers(2, square, spawn=spawn) as workers:
        assert sorted(workers.run(range(30), took), key=int) == [n * n for n in range(30)]  # type: ignore[arg-type]
    assert taken == sum(range(30))
    assert not workers_left()


def test_a_task_may_give_several_results_or_none() -> None:
    with Workers(2, several) as workers:
        assert sorted(workers.run([0, 3, 2])) == [0, 0, 1, 1, 2]  # type: ignore[type-var]


def test_the_tasks_are_taken_as_workers_become_free() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for n in range(100):
            taken.append(n)
            yield n

    with Workers(2, square) as workers:
        next(iter(workers.run(tasks())))
        assert len(taken) < 20


def test_a_worker_that_dies_is_noticed_and_replaced() -> None:
    with Workers(2, dying) as workers:
        answers = list(workers.run(range(8)))
    lost = {answer.task: in_english(answer.why) for answer in answers if isinstance(answer, LostTask)}
    assert set(lost) == {3, 5}
    assert "SIGKILL" in lost[3]
    assert "out of memory" in lost[3]
    assert "exit code 7" in lost[5]
    assert {n for n in answers if not isinstance(n, LostTask)} >= {0, 1, 2, 3, 4, 5, 6, 7, -1, -2, -4, -6, -7}


def test_small_tasks_that_wait_for_a_worker_that_dies_are_done_by_another() -> None:
    with Workers(2, dying, is_small=lambda _: True) as workers:
        answers = list(workers.run([3, 5, *range(6, 40)]))
    assert sorted(answer.task for answer in answers if isinstance(answer, LostTask)) == [3, 5]
    done = [n for n in answers if not isinstance(n, LostTask)]
    assert sorted(done) == sorted([3, 5, *range(6, 40), *(-n for n in range(6, 40))])


def test_large_tasks_are_not_sent_before_the_worker_is_free() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for n in range(20):
            taken.append(n)
            yield n

    with Workers(2, square, is_small=lambda task: task < 4) as workers:
        answers = workers.run(tasks())
        for _ in range(6):
            next(answers)
        assert len(taken) <= 6 + 2 + 1
        assert len(list(answers)) == 14


@pytest.mark.filterwarnings("default")
def test_a_worker_whose_work_raises_is_lost_like_one_that_dies(capfd: pytest.CaptureFixture[str]) -> None:
    with Workers(1, raising) as workers:
        answers = list(workers.run([1, 2]))
    assert [a.task for a in answers if isinstance(a, LostTask)] == [1, 2]
    assert "ZeroDivisionError" in capfd.readouterr().err


def sleeping(_task: int, _took: Callable[[int], None]) -> Iterator[tuple[int, bool]]:
    time.sleep(600)
    yield 1, True


def test_leaving_ends_workers_that_are_busy() -> None:
    begun = Stopwatch()
    with Workers(2, sleeping) as workers:
        run = workers.run([1, 2, 3])
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                next(run)
        finally:
            timer.join()
            signal.signal(signal.SIGINT, before)
    assert begun.s < 5
    assert not workers_left()


def telling(task: str, _took: Callable[[int], None]) -> Iterator[tuple[str, bool]]:
    Path(task).touch()
    yield task, True


def test_workers_begin_before_anybody_asks_for_answers(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with Workers(1, telling) as workers:
        answers = workers.run([str(begun)])
        deadline = Deadline(30)
        while not begun.exists():
            assert not deadline.passed()
            time.sleep(0.01)
        assert list(answers) == [str(begun)]


def test_workers_are_ended_before_they_are_left() -> None:
    with Workers(2, sleeping) as workers:
        workers.run([1, 2])
        busy = workers_left()
        workers.end()
        deadline = Deadline(30)
        while any(worker.status() != psutil.STATUS_ZOMBIE for worker in busy):
            assert not deadline.passed()
            time.sleep(0.01)
    assert not workers_left()


def test_a_worker_that_died_with_nothing_to_do_costs_no_more_than_the_next_task() -> None:
    with Workers(1, square) as workers:
        assert list(workers.run([3])) == [9]
        workers_left()[0].kill()
        answers = list(workers.run([4, 5]))
    assert 25 in answers
    assert [a.task for a in answers if isinstance(a, LostTask)] in ([], [4])


ORPHANS = """
import os, sys, time
from allready.evidence.inputs.workers import Workers
from tests.evidence.inputs.test_workers import sleeping
from allready.model.fill import in_english
with Workers(2, sleeping) as workers:
    import psutil
    print(*[child.pid for child in psutil.Process().children()], flush=True)
    next(workers.run([1, 2]))
"""


def test_workers_do_not_outlive_a_parent_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.3)
        parent.kill()
    deadline = Deadline(10)
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
        assert not deadline.passed(), "workers stayed behind"
        time.sleep(0.1)
