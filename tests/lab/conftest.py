"""Labs for tests, and the loud skip where this machine cannot have one.

Tests that need namespaces carry the marker `lab`.  Where namespaces are impossible they are skipped and counted in the
terminal summary (tests/conftest.py); with ALLREADY_REQUIRE_LAB=1 they fail instead.
"""

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allready.lab import Lab, probe
from tests.conftest import NO_LAB

_numbers = itertools.count()


@functools.cache
def why_no_lab() -> str | None:
    return probe(packet_filters=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("lab") is None or (reason := why_no_lab()) is None:
        return
    if os.environ.get("ALLREADY_REQUIRE_LAB") == "1":
        pytest.fail(f"ALLREADY_REQUIRE_LAB=1, but this machine cannot have a lab: {reason}", pytrace=False)
    pytest.skip(f"{NO_LAB}: {reason}")


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """`make_lab(num_nodes, ...)`: as `Lab.up`, with a name and records of its own, taken down after the test.

    A user's `allready lab down --all` meanwhile does not know of it.
    """
    with contextlib.ExitStack() as stack:

        def make(num_nodes: int, **options: object) -> Lab:
            name = f"test-{os.getpid()}-{next(_numbers)}"
            own = {"state_dir": tmp_path / "labs", **options}
            return stack.enter_context(Lab.up(num_nodes, name=name, **own))  # type: ignore[arg-type]

        yield make


@pytest.fixture
def lab2(make_lab: Callable[..., Lab]) -> Lab:
    """Two healthy nodes."""
    return make_lab(2)


@pytest.fixture
def lab3(make_lab: Callable[..., Lab]) -> Lab:
    """Three healthy nodes."""
    return make_lab(3)
