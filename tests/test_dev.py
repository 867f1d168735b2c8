"""The scaffold for rules: what it writes is whole, and passes."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
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
    there = checkout / "tests/rules/net/test_mtu_differs.py"
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


LINE = "libfoo: Warning: it couldn't load the driver 'libbar-rdma34.so' of port 1: No such file"


@pytest.mark.jobs
@pytest.mark.slow
def test_a_new_signature_knows_its_line_and_any_other_number_in_it(checkout: Path) -> None:
    shutil.copytree(ROOT / "tests" / "signatures", checkout / "tests" / "signatures")
    shutil.copytree(ROOT / "tests" / "fixtures" / "signatures", checkout / "tests" / "fixtures" / "signatures")
    shutil.copy(ROOT / "tests" / "clock.py", checkout / "tests")
    made = run(checkout, "tools/dev.py", "new-signature", "store", "driver_not_loaded", f"[rank0]: {LINE}")
    assert made.returncode == 0, made.stderr
    code = made.stdout.partition(":")[0]
    assert code == f"STO{max(int(c[3:]) for c in load() if c.startswith('STO')) + 1:03d}"
    known = run(checkout, "-m", "allready", "diagnose", "--explain-line", LINE.replace("34", "56"))
    assert code in known.stdout
    done = run(checkout, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/signatures/test_tables.py")
    assert done.returncode == 0, done.stdout
    done = run(checkout, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/signatures/test_rows.py")
    assert "store.driver_not_loaded" in done.stdout, "a row with a true line is asked for"
    again = run(checkout, "tools/dev.py", "new-signature", "store", "other_name", LINE)
    assert again.returncode == 2
    assert f"store.driver_not_loaded ({code}) knows this line" in again.stderr


@pytest.mark.jobs
def test_a_table_that_cannot_be_read_is_one_error_with_its_file(checkout: Path) -> None:
    shutil.copytree(ROOT / "tests" / "signatures", checkout / "tests" / "signatures")
    with (checkout / "src/allready/signatures/store.toml").open("a", encoding="utf-8") as file:
        file.write('pattern = "\\w"\n')
    done = run(checkout, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/signatures")
    assert done.returncode == 4
    assert done.stderr.count("ERROR") == 1, done.stderr
    assert "signatures/store.toml: " in done.stderr


@pytest.mark.parametrize(
    ("family", "name", "line", "words"),
    [
        ("stores", "a_name", LINE, "no family 'stores'; there are: nccl, "),
        ("store", "ARule", LINE, "like connection_lost"),
        ("store", "connection_lost", LINE, "signatures/store.toml has a signature connection_lost already"),
        ("store", "a_name", "1 2 3", "no words that tell it from others"),
        ("store", "a_name", "foobarbaz quux went away\nand so on", r"'\n' cannot stand in it"),
        ("store", "a_name", "foobarbaz \x07 quux went away", r"'\x07' cannot stand in it"),
        ("store", "a_name", "foobarbaz \x85 quux went away", r"'\x85' cannot stand in it"),
        ("store", "a_name", "foobarbaz \udcff quux went away", "'\ufffd' cannot stand in it"),
    ],
)
def test_says_what_a_signature_needs(
    family: str, name: str, line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "src" / "allready" / "signatures" / "store.toml"
    table.parent.mkdir(parents=True)
    before = (ROOT / table.relative_to(tmp_path)).read_bytes()
    table.write_bytes(before)
    assert dev.main(["new-signature", family, name, line], root=tmp_path) == 2
    assert words in capsys.readouterr().err
    assert table.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("\x1b[31mfoobarbaz quux went away\x1b[0m\n", "foobarbaz quux went away"),
        ("\x1b[1;31m[rank0]: \x1b[0mfoobarbaz went\taway", "foobarbaz went\taway"),
        ("'quoted' foobarbaz \\d 'went'", "'quoted' foobarbaz \\d 'went'"),
    ],
)
def test_a_signature_of_a_line_with_colours_can_be_read(line: str, example: str, tmp_path: Path) -> None:
    table = tmp_path / "src" / "allready" / "signatures" / "store.toml"
    table.parent.mkdir(parents=True)
    shutil.copy(ROOT / table.relative_to(tmp_path), table)
    assert dev.main(["new-signature", "store", "foobarbaz_gone", line], root=tmp_path) == 0
    entry = tomllib.loads(table.read_text(encoding="utf-8"))["finding"][-1]
    [shape] = entry["line"]
    assert (entry["name"], shape["example"], shape["anchor"]) == ("foobarbaz_gone", example, example)
    assert re.search(shape["pattern"], example)


def test_a_table_that_could_not_be_read_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "src" / "allready" / "signatures" / "store.toml"
    table.parent.mkdir(parents=True)
    table.write_text("half an entry\n", encoding="utf-8")
    assert dev.main(["new-signature", "store", "a_name", LINE], root=tmp_path) == 2
    assert "could not be read" in capsys.readouterr().err
    assert table.read_text(encoding="utf-8") == "half an entry\n"


@pytest.mark.jobs
@pytest.mark.slow
def test_a_new_rule_lacks_its_chinese_text_and_that_is_listed(checkout: Path) -> None:
    code = run(checkout, "tools/dev.py", "new-rule", "net", "made_for_a_test").stdout.partition(":")[0]
    listed = run(checkout, "tools/dev.py", "untranslated")
    assert listed.returncode == 1
    assert f"zh_CN/net.toml: {code}: title, message, page, remedy\n" in listed.stdout
    shown = run(checkout, "-m", "allready", "explain", code, "--lang", "zh")
    assert "Nodes run different kernels" in shown.stdout
