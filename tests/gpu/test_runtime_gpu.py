"""The runtime library over NCCL: four ranks that share one GPU."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.runtime.job import Job
from tests.runtime.random_faults import run, run_rejoining

pytestmark = [pytest.mark.gpu, pytest.mark.torch]


def test_when_calls_return_and_what_their_deadline_covers(tmp_path: Path) -> None:
    with Job(tmp_path, 4, script="gpu_rank.py", device="cuda") as job:
        job.wait([0, 1, 2, 3])
        for rank in range(4):
            healthy = job.last(rank, "healthy")
            assert (healthy["on_cpu"], healthy["total"], healthy["rows"]) == (10.0, 10.0, [0.0, 1.0, 2.0, 3.0])
            assert (healthy["column"], healthy["beside"]) == ([1.0] * 4, float(rank))
            assert healthy["part"] == [4.0 * 2 * rank + 6, 4.0 * (2 * rank + 1) + 6]
            assert (healthy["got"], healthy["parts"]) == ([0.0, 1.0, 2.0, 3.0], [10.0])
            in_flight = job.last(rank, "in_flight")
            assert (in_flight["sums"], in_flight["part"]) == ([6.0, 10.0, 14.0, 18.0], [4.0, 4.0])
            assert job.last(rank, "returns") == {
                "event": "returns", "is_done": True, "is_busy_beside": True, "total": 10.0,
            }  # fmt: skip
            ahead = job.last(rank, "ahead")
            assert (ahead["is_busy"], ahead["is_done"], ahead["added"]) == (True, True, [1500.0]), ahead
            names = ("device_is_late", "plain_hangs", "restores", "ahead_hangs")
            found = {k: job.last(rank, k) for k in names}
            assert found["device_is_late"]["code"] == "RTM006"
            assert (found["plain_hangs"]["code"], found["plain_hangs"]["culprits"]) == ("RTM005", [2])
            assert (found["restores"]["code"], found["restores"]["culprits"]) == ("RTM005", [0])
            assert found["restores"]["is_restored"]
            assert (found["ahead_hangs"]["code"], found["ahead_hangs"]["culprits"]) == ("RTM005", [2])
            assert rank == 2 or job.last(rank, "released")["took_s"] < 3.5  # its deadline, and not the other's return
            assert job.last(rank, "content")["values"] == [float(rank)]
            assert all(f["total"] == 10.0 for f in found.values()), found
            assert job.has(rank, "done")


@cases(
    "kind, code",
    [("kill", "RTM001"), ("stop", "RTM003"), ("crash", "RTM002"), ("sleep", "RTM005"), ("raise", "RTM002")],
)
def test_survivors_agree_and_go_on(kind: str, code: str, tmp_path: Path) -> None:
    fault: dict[str, Any] = {"rank": 2, "kind": kind, "step": 8, "s": 5.0}
    with Job(tmp_path, 4, faults=[fault], steps=15, device="cuda") as job:
        others = [0, 1, 3] if kind in {"kill", "stop", "crash"} else [0, 1, 2, 3]
        job.wait(others)
        for rank in others:
            found = job.last(rank, "recovered")
            assert (found["code"], found["culprits"], found["members"]) == (code, [2], others)
            assert job.last(rank, "done")["steps"] == 15


@cases("more", [{}, {"mesh": True}, {"in_flight": True}, {"differ": True}, {"differ": True, "in_flight": True}])
def test_random_faults(more: dict[str, bool], tmp_path: Path) -> None:
    """In the default group, in the rows and columns of a mesh, with two calls in flight, with calls that differ."""
    struck, problems = run(tmp_path, 3, num_soft=4, device="cuda", **more)
    assert not problems, "\n".join(problems)
    assert struck >= 4


@cases("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_ranks_that_wait_while_groups_are_made_are_released(backend: str, tmp_path: Path) -> None:
    with Job(tmp_path, 3, script="making_rank.py", device="cuda", backend=backend, limit_s=3.0) as job:
        job.wait([0, 1, 2])
        for rank in range(3):
            for name in ("inside", "before"):
                found = job.last(rank, name)
                assert (found["code"], found["culprits"], found["members"]) == ("RTM002", [1], [0, 1, 2]), found
            assert job.last(rank, "late")["members"] == [0, 1, 2]
            assert job.last(rank, "made")["total"] == 3.0


def test_ranks_come_back(tmp_path: Path) -> None:
    """Those that were stopped and woken, and those that were killed and started again."""
    struck, problems = run_rejoining(tmp_path, 3, num_soft=2, device="cuda")
    assert not problems, "\n".join(problems)
    assert struck >= 4
