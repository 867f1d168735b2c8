"""Random faults in real jobs, a few of them; benchmarks/runtime_faults.py runs as many as one likes."""

from pathlib import Path

import pytest

from tests.cases import cases
from tests.runtime.random_faults import run

pytestmark = [pytest.mark.torch, pytest.mark.newest, pytest.mark.jobs]


@cases("seed, mesh", [(2, False), (3, True)], parts=2)
def test_no_split_no_wrong_sum_and_no_rank_that_is_blocked_beyond_its_bound(
    seed: int, mesh: bool, tmp_path: Path
) -> None:
    struck, problems = run(tmp_path, seed, num_soft=5, mesh=mesh)
    assert not problems, "\n".join(problems)
    assert struck >= 5
