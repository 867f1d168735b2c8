"""What the safe calls do with tensors: values, views, and the old content after a failure."""

from pathlib import Path

import pytest

from tests.runtime.job import Job

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]


@pytest.mark.parametrize("strided", [False, True])
def test_dtypes_views_and_the_content_after_a_failure(strided: bool, tmp_path: Path) -> None:
    with Job(tmp_path, 3, script="tensors_rank.py", strided=strided) as job:
        job.wait([0, 1, 2])
        for rank in range(3):
            sums = job.last(rank, "dtypes")["sums"]
            assert len(sums) == 6
            assert all(values == [6] for values in sums.values())
            views = job.last(rank, "views")
            assert (views["column"], views["beside"]) == ([2.0] * 4, [float(rank)] * 4)
            assert (views["said"], views["rows"]) == ([1.0], [[0.0], [1.0], [2.0]])
            late = job.last(rank, "late")
            assert (late["code"], late["culprits"]) == ("RTM005", [2])
            assert (late["is_restored"], late["content"]) == (True, [float(rank)])
            again = job.last(rank, "again")
            assert (again["members"], again["total"]) == ([0, 1, 2], 3.0)
