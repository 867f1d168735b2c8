import subprocess
import sys
from pathlib import Path

import pytest

from allready.proc.command import run_command
from allready.proc.kill import end_child
from allready.proc.process import identify, is_running
from tests.clock import until

STARTS_A_SLEEPER = """
import pathlib, subprocess, sys
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(str(sleeper.pid))
"""


def sleeper_of(path: Path) -> int:
    return until(lambda: int(path.read_text() or 0) if path.exists() else 0)


def test_gives_what_the_program_wrote_and_how_it_ended() -> None:
    code = "import sys; print(sys.stdin.read()[::-1]); print('no', file=sys.stderr); sys.exit(3)"
    done = run_command([sys.executable, "-c", code], timeout_s=60.0, given=b"abc", cwd="/")
    assert (done.stdout, done.stderr, done.returncode) == (b"cba\n", b"no\n", 3)
    assert run_command([sys.executable, "-c", "input()"], timeout_s=60.0).returncode == 1, "its standard input is empty"


@pytest.mark.jobs
def test_at_the_deadline_nothing_is_left_of_the_program_nor_of_what_holds_its_output(tmp_path: Path) -> None:
    """The program ends at once; the process that it started would hold its output for ten minutes."""
    path = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        run_command([sys.executable, "-c", STARTS_A_SLEEPER, str(path)], timeout_s=3.0)
    sleeper = identify(sleeper_of(path))
    until(lambda: sleeper is None or not is_running(sleeper))


def test_a_child_that_ended_leaves_nothing_behind_that_holds_its_pipes(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    child = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_SLEEPER, str(path)], stdout=subprocess.PIPE, start_new_session=True
    )
    sleeper = identify(sleeper_of(path))
    until(lambda: child.poll() is not None)
    end_child(child)
    until(lambda: sleeper is None or not is_running(sleeper))
    assert child.stdout is not None
    assert child.stdout.closed
