"""The second environment of CI: made beside the other tests, left out with a reason, never in silence."""

import sys
from pathlib import Path

import pytest
from tools import newest


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(newest, "PLACE", tmp_path)
    monkeypatch.setattr(newest, "READY", tmp_path / ".ready")
    monkeypatch.delenv("NEWEST_TORCH", raising=False)
    return tmp_path


def test_is_left_out_where_it_is_not_wanted_or_has_no_room(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(newest, "NEEDED_BYTES", 1 << 60)
    (place / ".ready").write_text("of another release")
    assert newest.main(["setup"]) == 0
    assert not (place / ".ready").exists()
    monkeypatch.setenv("NEWEST_TORCH", "")
    assert newest.main(["setup"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("newest torch: left out: it needs 1073741824 GB of disk")
    assert second == "newest torch: left out: NEWEST_TORCH is empty"


@pytest.mark.parametrize("said", ["ERROR: No matching distribution found for torch==9", "No space left on device"])
def test_what_pip_cannot_install_is_left_out_with_its_reason(
    said: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], *, may_fail: bool = False) -> str:
        asked.append(command)
        return f"Collecting\n{said}\n" if may_fail else ""

    monkeypatch.setattr(newest, "_run", run)
    monkeypatch.setenv("NEWEST_TORCH", "torch==9 --index-url https://example.org")
    assert newest.setup().endswith(said)
    assert asked[-1][-3:] == ["torch==9", "--index-url", "https://example.org"]
    assert not (place / ".ready").exists()


def test_is_made_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> str:
        asked.append(command)
        return ""

    monkeypatch.setattr(newest, "_run", run)
    assert newest.setup() == ""
    assert any("--no-deps" in command for command in asked)
    before = len(asked)
    assert newest.setup() == ""
    assert len(asked) == before


@pytest.mark.parametrize("is_there", [True, False])
def test_the_worst_exit_code_of_both_counts(
    is_there: bool, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEWEST_TORCH", "")
    (place / "bin").mkdir()
    python = place / "bin" / "python"
    python.write_text('#!/bin/sh\necho "ran $*"\nexit 5\n')
    python.chmod(0o700)
    if is_there:
        (place / ".ready").write_text("yes")
    ends = [sys.executable, "-c", "import sys; sys.exit(0)"]
    assert newest.main(["beside", *ends]) == (5 if is_there else 0)
    assert newest.main(["beside", *ends[:-1], "import sys; sys.exit(3)"]) == 3
    said = capfd.readouterr().out
    assert "newest torch: left out: NEWEST_TORCH is empty" in said
    assert said.count("ran -m pytest -m newest and not slow and not gpu") == (2 if is_there else 0)


def test_what_takes_too_long_is_ended_and_left_out(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(newest, "__file__", str(tmp_path / "slow.py"))
    monkeypatch.setattr(newest, "WAIT_S", 0.2)
    assert newest.main(["beside", sys.executable, "-c", "pass"]) == 0
    assert "left out: it could not be installed" in capfd.readouterr().out
