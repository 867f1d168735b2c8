"""`make test` plays what failed once more, alone: real pytest on a project of one file."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools import again

TESTS = """
import pytest

def test_good():
    pass

def test_disturbed(request):
    assert request.config.getoption("numprocesses") == 0

@pytest.mark.parametrize("number", range({bad}))
def test_bad(number):
    assert number == -1
"""


@pytest.mark.jobs
@pytest.mark.parametrize(
    ("bad", "code", "said"),
    [
        (0, 0, ["PASSED ALONE", "test_disturbed"]),
        pytest.param(1, 1, ["Once more"], marks=pytest.mark.slow),
        pytest.param(again.MAX_DISTURBED, 1, [], marks=pytest.mark.slow),
    ],
)
def test_a_test_that_fails_twice_has_failed(tmp_path: Path, bad: int, code: int, said: list[str]) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/again.py").write_text(Path(again.__file__).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_them.py").write_text(TESTS.format(bad=bad))
    words = [sys.executable, "tools/again.py", "-q", "--numprocesses", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert done.returncode == code, done.stdout
    assert all(word in done.stdout for word in said), done.stdout
    assert ("Once more" in done.stdout) == (bad < again.MAX_DISTURBED), done.stdout
    assert ("PASSED ALONE" in done.stdout) == (code == 0), done.stdout


@pytest.mark.jobs
def test_a_run_that_does_not_begin_is_not_played_again(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/again.py").write_text(Path(again.__file__).read_text())
    done = subprocess.run(
        [sys.executable, "tools/again.py", "--no-such-option"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4
    assert "Once more" not in done.stdout
