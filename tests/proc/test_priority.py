"""A prompt command has the CPUs first where that is allowed, and what it waits for gives way."""

import os
import subprocess
import sys

import pytest

from allready.proc.priority import LOWER, URGENT
from tests.cases import cases


def after(call: str, *before: str) -> int:
    """The niceness of a process after a call of the module."""
    program = f"import os; from allready.proc import priority; priority.{call}(); print(os.getpriority(0, 0))"
    argv = [*before, sys.executable, "-c", program]
    return int(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may")
def test_root_is_first() -> None:
    assert after("hurry") == URGENT


@cases("call, expected", [("hurry", 0), ("give_way", LOWER)])
def test_anybody_may_give_way_and_nobody_is_hurt_by_asking(call: str, expected: int) -> None:
    assert after(call, "setpriv", "--bounding-set=-all", "--inh-caps=-all") == expected
