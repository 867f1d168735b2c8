"""Tensor parallel and FSDP2: after a failure mesh and model are made anew, of the same ranks or of those left."""

from pathlib import Path

import pytest

from tests.runtime.job import Job

pytestmark = [pytest.mark.torch, pytest.mark.jobs, pytest.mark.newest]


@pytest.mark.slow
def test_tensor_parallel_goes_on_with_the_same_ranks_after_one_was_late(tmp_path: Path) -> None:
    """torch would answer the new mesh with the groups of the old one, which has the same ranks."""
    goes_on("tp", "late", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fault"), [("tp", "kill"), ("fsdp", "late"), ("fsdp", "kill")])
def test_so_do_the_others(kind: str, fault: str, tmp_path: Path) -> None:
    goes_on(kind, fault, tmp_path)


def goes_on(kind: str, fault: str, folder: Path) -> None:
    members = [0, 1, 3] if fault == "kill" else [0, 1, 2, 3]
    plan = {"kind": kind, "fault": fault, "victim": 2, "timeout_s": 2.0}
    with Job(folder, 4, script="sharded_rank.py", **plan) as job:
        job.wait(members, 120.0)
        for rank in members:
            found = job.last(rank, "recovered")
            assert found["members"] == members, job.events(rank)
            assert found["code"] == ("RTM001" if fault == "kill" else "RTM005")  # by what torch counted of plain calls
            assert "rocess group" in job.last(rank, "old")["text"]
            done = job.last(rank, "done")
            assert done["losses"] == [done["whole"]] * 6, job.events(rank)
