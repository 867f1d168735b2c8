"""A prompt command has the CPUs first where that is allowed, and what it waits for does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allready.proc.priority import LAST, POLITE, URGENT, hurry_session
from tests.cases import cases


def after(calls: str, *before: str) -> int:
    """The niceness of a process after calls of the module."""
    program = f"import os; from allready.proc.priority import *; {calls}; print(os.getpriority(0, 0))"
    argv = [*before, sys.executable, "-c", program]
    return int(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may")
def test_root_is_first_until_it_wants_no_more() -> None:
    assert after("hurry()") == URGENT
    assert after("hurry(); give_way()") in {POLITE, LAST}


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists() or os.geteuid() != 0, reason="no groups, or no root")
def test_a_session_of_its_own_is_first_as_a_whole() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as child:
        try:
            hurry_session(child.pid)
            assert Path(f"/proc/{child.pid}/autogroup").read_text().split()[-1] == str(URGENT)
        finally:
            child.kill()
    hurry_session(2**22)  # there is none


@cases("niceness", [0, 7])
def test_nobody_is_hurt_by_asking_and_who_gave_way_still_does(niceness: int) -> None:
    free, full = (f"os.getloadavg = lambda: ({load}, 0, 0); " for load in (0.5, 900.0))
    polite = ("nice", "-n", str(niceness), "setpriv", "--bounding-set=-all", "--inh-caps=-all")
    assert after("hurry()", *polite) == niceness
    assert after(free + "give_way()", *polite) == max(niceness, POLITE)
    assert after(full + "give_way()", *polite) == LAST
