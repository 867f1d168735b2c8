"""The generated pages of the codes: `python -m allready.docs`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allready.docs import compare, main, page, pages, write
from allready.judging.registry import load

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All pages, fresh."""
    write(tmp_path / "codes")
    return tmp_path / "codes"


def test_the_pages_in_the_repository_are_fresh() -> None:
    stale = [f"{d.what}: {d.path.relative_to(REPOSITORY)}" for d in compare(REPOSITORY / "docs" / "codes")]
    assert not stale, "run: python -m allready.docs docs/codes\n" + "\n".join(stale)


def test_there_is_a_page_for_every_code_in_both_languages() -> None:
    names = set(pages())
    for language in ("en", "zh"):
        assert {f"{language}/{code}.md" for code in load()} <= names
        assert f"{language}/README.md" in names


def test_what_was_written_is_fresh_and_writing_again_changes_nothing(folder: Path) -> None:
    assert compare(folder) == []
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}
    assert write(folder) == []
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")} == before


def test_check_names_stale_missing_and_orphaned_pages_and_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "en" / "JOB001.md").write_text("old", encoding="utf-8")
    (folder / "zh" / "JOB001.md").unlink()
    (folder / "en" / "OLD999.md").write_text("a code that is gone", encoding="utf-8")
    assert main([str(folder), "--check"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert f"stale: {folder}/en/JOB001.md" in said
    assert f"missing: {folder}/zh/JOB001.md" in said
    assert f"orphaned: {folder}/en/OLD999.md" in said
    assert (folder / "en" / "JOB001.md").read_text(encoding="utf-8") == "old"
    assert main([str(folder)]) == 0
    assert main([str(folder), "--check"]) == 0
    assert not (folder / "en" / "OLD999.md").exists()


def test_a_page_has_the_fields_and_the_text_of_the_rule() -> None:
    rule = load()["JOB001"]
    english, chinese = page(rule, "en"), page(rule, "zh")
    assert english.startswith("# JOB001: Nodes never reported to node 0\n")
    assert "`START-ABSENT`" in english
    assert "## What it checks" in english
    assert "## 检查内容" in chinese
    assert "| 严重程度 | `blocker` |" in chinese


def test_a_bar_in_a_command_does_not_break_the_table() -> None:
    for rule in load().values():
        for language in ("en", "zh"):
            table = [line for line in page(rule, language).splitlines() if line.startswith("| ")]
            assert all(line.replace("\\|", "").count("|") == 3 for line in table), rule.code


def test_links_lead_to_files_that_exist(folder: Path) -> None:
    import re

    for path in folder.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text(encoding="utf-8")):
            if "glossary" not in target:
                assert (path.parent / target).is_file(), f"{path}: {target}"
    for target in ("docs/glossary.md", "docs/zh/glossary.md"):
        assert (REPOSITORY / target).is_file()


def test_runs_as_a_module(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "allready.docs", str(folder), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
