"""Real jobs to watch, and a terminal to watch them on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.jobs import Job, nothing_left


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job whose agents end with the test, and that must leave nothing behind."""
    one = Job(tmp_path)
    with nothing_left(str(tmp_path), one.job_id):
        try:
            yield one
        finally:
            one.close()
