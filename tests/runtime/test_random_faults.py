"""Random faults in real jobs, a few of them; benchmarks/runtime_faults.py runs as many as one likes."""

from pathlib import Path

import pytest

from tests.runtime.random_faults import run, run_large

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]


@pytest.mark.parametrize(
    ("seed", "mesh", "in_flight"), [(2, False, False), pytest.param(3, True, True, marks=pytest.mark.slow)]
)
def test_no_split_no_wrong_sum_and_no_rank_that_is_blocked_beyond_its_bound(
    seed: int, mesh: bool, in_flight: bool, tmp_path: Path
) -> None:
    struck, problems = run(tmp_path, seed, num_soft=5, mesh=mesh, in_flight=in_flight)
    assert not problems, "\n".join(problems)
    assert struck >= 5


@pytest.mark.parametrize(
    ("seed", "mesh", "in_flight"), [pytest.param(2, False, False, marks=pytest.mark.slow), (3, True, True)]
)
def test_nor_when_ranks_call_something_else(seed: int, mesh: bool, in_flight: bool, tmp_path: Path) -> None:
    struck, problems = run(tmp_path, seed, num_soft=8, mesh=mesh, in_flight=in_flight, differ=True)
    assert not problems, "\n".join(problems)
    assert struck >= 8


def test_nor_when_ranks_are_lost_in_the_middle_of_large_transfers(tmp_path: Path) -> None:
    struck, problems = run_large(tmp_path, 7, num_faults=3, mib=4)
    assert not problems, "\n".join(problems)
    assert struck >= 2
