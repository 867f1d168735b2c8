"""Fixtures that tests/preflight/check uses as well."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Job


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """Two nodes to be; at the end nothing of them may be left."""
    with Job(tmp_path) as made:
        yield made


@pytest.fixture
def job3(tmp_path: Path) -> Iterator[Job]:
    """Three nodes to be."""
    with Job(tmp_path, num_nodes=3) as made:
        yield made
