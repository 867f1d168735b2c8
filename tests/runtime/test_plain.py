"""Plain collectives, DDP's among them: ranks that block there are released, and training goes on."""

from pathlib import Path

import pytest

from tests.runtime.job import Job

pytestmark = [pytest.mark.torch, pytest.mark.jobs, pytest.mark.newest]


@pytest.mark.slow
def test_ranks_are_released_at_any_moment_of_a_collective(tmp_path: Path) -> None:
    """Where connections are ended for writing at once, a thread of Gloo's stays in its send within a few cycles."""
    with Job(tmp_path, 4, script="interrupted_rank.py", cycles=30) as job:
        job.wait(list(range(4)), 90.0)
        for rank in range(4):
            assert job.last(rank, "done")["members"] == [4] * 30, job.errors(rank)


def test_ddp_goes_on_with_equal_parameters(tmp_path: Path) -> None:
    ddp_goes_on("kill", "RTM001", [0, 1, 3], tmp_path)


@pytest.mark.slow
def test_so_does_ddp_with_the_rank_that_raised(tmp_path: Path) -> None:
    ddp_goes_on("raise", "RTM002", [0, 1, 2], tmp_path)


def ddp_goes_on(kind: str, code: str, members: list[int], folder: Path) -> None:
    """The group's own time-out is longer than this test waits, so only a release lets the ranks go on."""
    with Job(folder, max(members) + 1, script="plain_rank.py", victim=2, kind=kind) as job:
        job.wait(members, 90.0)
        for rank in members:
            found = job.last(rank, "recovered")
            assert (found["code"], found["culprits"], found["members"]) == (code, [2], members)
        totals = {job.last(rank, "done")["total"] for rank in members}
        assert len(totals) == 1
        import torch.distributed as dist

        assert job.last(members[0], "recovered")["is_same"] is hasattr(dist, "_reconfigure")


@pytest.mark.slow
def test_a_deadline_of_less_than_a_second_names_who_is_late(tmp_path: Path) -> None:
    """torch's error says itself that the deadline has passed, so no rank has to have waited for a second besides."""
    with Job(tmp_path, 3, script="plain_rank.py", victim=2, kind="late", deadline_s=0.6) as job:
        job.wait([0, 1, 2], 90.0)
        for rank in range(3):
            found = job.last(rank, "recovered")
            assert (found["code"], found["culprits"], found["members"]) == ("RTM005", [2], [0, 1, 2]), found
