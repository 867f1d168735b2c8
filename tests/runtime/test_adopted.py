"""Jobs whose default group torch has made: the first call of the library takes it over, and it fails as any other."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.runtime.job import Job

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]

FAULTS = [("kill", 2, "RTM001"), ("kill", 0, "RTM001"), ("late", 1, "RTM005"), ("raise", 2, "RTM002")]


def survives(kind: str, victim: int, code: str, folder: Path, **where: str) -> None:
    with Job(folder, 3, script="adopted_rank.py", kind=kind, victim=victim, **where) as job:
        present = [r for r in range(3) if r != victim or kind != "kill"]
        job.wait(present)
        for rank in present:
            (found,) = [e for e in job.events(rank) if e["event"] == "recovered"]
            assert (found["code"], found["culprits"], found["members"]) == (code, [victim], present), job.written()
            assert not found["is_same"]  # DDP is made anew, this once
            assert job.last(rank, "started")["first"] == 6.0
            done = job.last(rank, "done")
            assert (done["steps"], done["total"]) == (12, float(len(present)))
            assert "allready.subgroups" in done["refused"]  # groups from before are not the library's
            assert done["is_whole"]
            assert done["threads"] == []
            has_lost_store = victim == 0 and kind == "kill" and not where
            assert bool(done["store"]) == has_lost_store, done  # else no other one is opened


def test_a_killed_rank_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    survives(*FAULTS[0], tmp_path)


@pytest.mark.slow
@cases("kind, victim, code", FAULTS[1:], parts=1)
def test_so_is_it_with_other_faults(kind: str, victim: int, code: str, tmp_path: Path) -> None:
    survives(kind, victim, code, tmp_path)


@pytest.mark.slow
def test_a_store_in_a_file_is_lost_with_no_rank(tmp_path: Path) -> None:
    survives("kill", 0, "RTM001", tmp_path, file=str(tmp_path / "store"))


def test_of_one_process_what_is_refused_and_what_waits_for_no_other(tmp_path: Path) -> None:
    with Job(tmp_path, 1, script="adopted_rank.py", kind="alone") as job:
        job.wait([0])
        done = job.last(0, "done")
    found: dict[str, str] = done["found"]
    assert (done["total"], done["is_there"]) == (6.0, False)
    for name, text in {
        "rank": "its rank is 0, not 3",
        "size": "its world_size is 1, not 2",
        "backend": "its backend is gloo, not nccl",
        "store": "leave out store",
        "rejoin": "in place of torch.distributed.init_process_group",
        "metrics": "after torch's, on all ranks",
        "forked": "a forked process is no rank of the job",
        "again": "called before",
        "gone": "call allready.init_process_group first",
        "fake": "only one of Gloo can be taken over",
        "phase": "only one of Gloo can be taken over",
    }.items():
        assert found[name].startswith("UsageError: "), found[name]
        assert text in found[name]
    long, short = "plain collectives: 100.0 s; safe calls: 100.0 s", "plain collectives: 7.0 s; safe calls: 7.0 s"
    assert [long in found[name] for name in ("before", "after", "second")] == [True] * 3, found
    assert [short in found[name] for name in ("in_phase", "adopted")] == [True] * 2, found
    assert found["outside"] == "False"


@pytest.mark.slow
def test_the_deadline_of_a_phase_holds_for_a_plain_collective_that_hangs(tmp_path: Path) -> None:
    with Job(tmp_path, 3, script="adopted_rank.py", kind="hang") as job:
        job.wait([0, 1, 2])
        for rank in (0, 1, 2):
            done = job.last(rank, "done")
            assert (done["total"], done["members"]) == (3.0, [0, 1, 2])
        for rank in (1, 2):
            assert 1.4 < job.last(rank, "plain")["s"] < 3.5


@pytest.mark.slow
@pytest.mark.parametrize("victim", [2, 0])
def test_a_rank_that_makes_no_call_is_named_and_torch_keeps_its_group(victim: int, tmp_path: Path) -> None:
    with Job(tmp_path, 3, script="adopted_rank.py", kind="miss", victim=victim, wait_s=4.0) as job:
        job.wait([0, 1, 2])
        for rank in range(3):
            assert job.last(rank, "done")["totals"] == [3.0]
            assert not job.last(rank, "left")["is_there"]
            if rank != victim:
                refused = job.last(rank, "refused")
                assert (refused["code"], refused["culprits"]) == ("RTM009", [victim]), refused


@pytest.mark.slow
def test_a_second_thread_is_refused_while_the_first_waits_for_the_others(tmp_path: Path) -> None:
    with Job(tmp_path, 2, script="adopted_rank.py", kind="twice") as job:
        job.wait([0, 1])
        found: list[dict[str, Any]] = [job.last(rank, "done") for rank in (0, 1)]
    assert [f["total"] for f in found] == [2.0, 2.0]
    assert "let one thread call" in found[0]["found"][0]
