"""The runner of the fast tests: every test has its result, also where its process dies."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
import pytest
from tests import forked

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    forked.run(session, 2, lambda file: file)
    return True
"""
ONE = """
import os, pathlib, signal, pytest

@pytest.fixture(scope="module")
def once(tmp_path_factory):
    yield os.getpid()
    pathlib.Path("cleaned").write_text("yes")

def test_first(once): assert once == os.getpid()
def test_prints_and_fails(once):
    print("what it wrote")
    assert once == 0, "no such process"
def test_skipped(once): pytest.skip("not here")
"""
OTHER = """
import os, signal, warnings

def test_before(tmp_path): (tmp_path / "x").touch()
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_exits(): os._exit(3)
def test_behind(): print("not shown")
"""


def run(folder: Path, *options: str) -> str:
    """The output of pytest with three processes' worth of tests."""
    for name, text in (("conftest.py", CONFTEST), ("test_one.py", ONE), ("test_other.py", OTHER)):
        (folder / name).write_text(text, encoding="utf-8")
    plugins = [word for name in ("xdist", "asyncio", "timeout", "cacheprovider") for word in ("-p", f"no:{name}")]
    words = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), *plugins, *options]
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_every_test_has_its_result(tmp_path: Path) -> None:
    output = run(tmp_path, "-q", "-ra", "--basetemp", str(tmp_path / "base"))
    assert "3 failed, 3 passed, 1 skipped" in output
    for name, why in (
        ("one.py::test_prints_and_fails", "AssertionError: no such process"),
        ("other.py::test_dies", "the process of this test ended: SIGKILL"),
        ("other.py::test_exits", "the process of this test ended: exit code 3"),
    ):
        assert re.search(rf"FAILED test_{name} - {why}", output), output
    assert "what it wrote" in output
    assert "not shown" not in output
    assert (tmp_path / "cleaned").read_text() == "yes"


@pytest.mark.thorough
def test_the_first_failure_ends_the_run(tmp_path: Path) -> None:
    output = run(tmp_path, "-q", "-x", "--basetemp", str(tmp_path / "base"))
    assert "stopping after 1 failures" in output
    assert "1 failed" in output
