"""The fixtures of tests/cli."""

from tests.cli.conftest import job, job3

__all__ = ["job", "job3"]
