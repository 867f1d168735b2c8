"""Nodes for tests: real processes as ranks, watched by a real observer, all ended by their ids."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import lab2, make_lab, pytest_runtest_setup
from tests.live.node.nodes import Node

__all__ = ["lab2", "make_lab", "make_node", "pytest_runtest_setup"]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """`make_node(scripts)`: one rank for each piece of Python, see `Node`."""
    with contextlib.ExitStack() as stack:

        def make(scripts: list[str], **options: object) -> Node:
            return stack.enter_context(Node(tmp_path, scripts, **options))  # type: ignore[arg-type]

        yield make
