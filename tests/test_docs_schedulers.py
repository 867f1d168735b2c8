"""The schedulers' page says what the tables say, and every command on it is one that our parser takes."""

import importlib.util
from pathlib import Path

import pytest

from allready.launch.schedulers import SCHEDULERS

ROOT = Path(__file__).resolve().parents[1]
_spec = importlib.util.spec_from_file_location("schedulers_pages", ROOT / "docs/schedulers_pages.py")
assert _spec is not None
assert _spec.loader is not None
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)


@pytest.mark.parametrize("language", pages.FILES)
def test_the_page_in_the_repository_is_not_stale(language: str) -> None:
    path = ROOT / "docs" / pages.FILES[language]
    assert path.read_text(encoding="utf-8") == pages.page(language), "run: python docs/schedulers_pages.py"


@pytest.mark.parametrize("language", pages.FILES)
def test_every_scheduler_and_every_variable_is_named(language: str) -> None:
    text = pages.page(language)
    for scheduler in SCHEDULERS:
        section = text.split(f"\n## {scheduler.name}\n")[1].split("\n## ")[0]
        variables = [v for vs in (*scheduler.fields.values(), scheduler.hosts) for v in vs]
        wanted = {*scheduler.detect, *scheduler.absent, *(v.name for v in variables)}
        assert {name for name in wanted if f"`{name}`" not in section} == set()


def test_every_scheduler_has_a_command() -> None:
    assert set(pages.COMMANDS) == {scheduler.name for scheduler in SCHEDULERS}


def test_writes_what_is_stale_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pages.main([str(tmp_path), "--check"]) == 1
    assert not list(tmp_path.iterdir())
    assert pages.main([str(tmp_path)]) == 0
    assert pages.main([str(tmp_path), "--check"]) == 0
    (tmp_path / "schedulers.md").write_text("old", encoding="utf-8")
    capsys.readouterr()
    assert pages.main([str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().out == f"stale: {tmp_path / 'schedulers.md'}\n"
    assert (tmp_path / "schedulers.md").read_text(encoding="utf-8") == "old"
