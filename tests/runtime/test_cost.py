"""A call that succeeds at once costs little more than torch's: counted, since times depend on the machine.

In microseconds: benchmarks/runtime_cost.py.
"""

from pathlib import Path

import pytest

from tests.runtime.job import Job

pytestmark = [pytest.mark.torch, pytest.mark.jobs, pytest.mark.newest]


def test_a_safe_sum_calls_no_more_than_the_plain_one_waits_once_and_tells_nobody(tmp_path: Path) -> None:
    with Job(tmp_path, 1, script="cost_rank.py") as job:
        job.wait([0])
        found = job.last(0, "cost")
    plain = found["plain"]
    for way in ("safe", "limited"):
        safe = found[way]
        assert safe["functions"] <= plain["functions"], found
        assert safe["c_functions"] <= plain["c_functions"] + 10, found
        # The worker of Gloo's is waited for, and no other process; now and then another thread has Python.
        assert safe["waits"] <= 1.3, found
        assert (safe["messages"], safe["threads"]) == (0, 0), found
    other = found["broadcast"]
    assert other["functions"] <= found["plain broadcast"]["functions"] + 55, found
    assert other["waits"] <= 1.3, found
    assert (other["messages"], other["threads"]) == (0, 0), found
    assert found["confirmed"]["messages"] == 1, found  # so they are counted
    assert found["confirmed"]["waits"] >= 0.9, found  # and so are waits
