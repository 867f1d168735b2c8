"""The scaffold for rules: what it writes is whole, and passes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import dev

from allready.judging.loading import load

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the scaffold and the tests of texts read."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=ignore)
    shutil.copytree(ROOT / "tests" / "rules", tmp_path / "tests" / "rules", ignore=ignore)
    shutil.copytree(ROOT / "tests" / "text", tmp_path / "tests" / "text", ignore=ignore)
    for name in ("__init__.py", "cases.py", "conftest.py", "fleets.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(checkout: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *argv], cwd=checkout, env=environ, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.jobs
def test_a_new_rule_passes_its_own_tests_and_those_of_the_texts(checkout: Path) -> None:
    made = run(checkout, "tools/dev.py", "new-rule", "net", "made_for_a_test")
    assert made.returncode == 0, made.stderr
    code = made.stdout.partition(":")[0]
    assert code == f"NET{max(int(c[3:]) for c in load() if c.startswith('NET')) + 1:03d}"
    assert (checkout / "src/allready/rules/net/made_for_a_test.py").is_file()
    tests = ["tests/rules/net/test_made_for_a_test.py", "tests/text/test_rules_text.py", "tests/text/test_pages.py"]
    done = run(checkout, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--case", code, *tests)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, "every table has a case for the new code"


def test_refuses_what_is_there_already_and_writes_nothing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = checkout / "src/allready/rules/net/mtu_differs.py"
    before = there.read_bytes()
    assert dev.main(["new-rule", "net", "mtu_differs"], root=checkout) == 2
    assert "already exists" in capsys.readouterr().err
    assert there.read_bytes() == before


@pytest.mark.parametrize(
    ("area", "name", "words"),
    [
        ("nets", "a_rule", "no area 'nets'; there are: job, "),
        ("net", "ARule", "like mtu_differs"),
        ("net", "../x", "like mtu_differs"),
    ],
)
def test_says_what_would_be_valid(
    area: str, name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(["new-rule", area, name], root=tmp_path) == 2
    assert words in capsys.readouterr().err


def test_needs_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dev.main(["new-rule", "net", "a_rule"], root=tmp_path) == 2
    assert "not a checkout" in capsys.readouterr().err


@pytest.mark.jobs
def test_a_new_rule_lacks_its_chinese_text_and_that_is_listed(checkout: Path) -> None:
    code = run(checkout, "tools/dev.py", "new-rule", "net", "made_for_a_test").stdout.partition(":")[0]
    listed = run(checkout, "tools/dev.py", "untranslated")
    assert listed.returncode == 1
    assert f"zh_CN/net.toml: {code}: title, message, page, remedy\n" in listed.stdout
    shown = run(checkout, "-m", "allready", "explain", code, "--lang", "zh")
    assert "Nodes run different kernels" in shown.stdout
