"""The pages of the codes: what `allready explain` prints and `make docs` writes."""

import re
from pathlib import Path

import pytest

from allready import __version__
from allready.docs import index, main, markdown, page_of
from allready.judging.loading import load
from allready.judging.registry import Rule
from tests.cases import cases

RULES = load()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


@cases("rule", RULES.values(), ids=lambda rule: rule.code)
def test_every_code_has_a_whole_page_in_both_languages(rule: Rule) -> None:
    for language in ("en", "zh"):
        page = page_of(rule, language)
        assert len(page.sections) == 4
        assert all(heading and body and "\n" not in body for heading, body in page.sections)
        assert page.title
        assert page.message
        assert page.remedy
        assert re.fullmatch(r"\d+\.\d+", page.since), "since is a version: MAJOR.MINOR"
        assert _version(page.since) <= _version(__version__), f"{rule.code} is newer than this version"
        assert "[[" not in page.message + page.remedy, "marks of optional parts are for the program"
        table = [line for line in markdown(page, language).splitlines() if line.startswith("| ")]
        assert all(line.replace("\\|", "").count("|") == 3 for line in table), "a bar breaks the table"


def test_names_are_unique_within_an_area() -> None:
    names = [(rule.area, rule.name) for rule in RULES.values()]
    assert len(set(names)) == len(names)


def test_a_page_has_the_fields_and_the_text_of_the_rule() -> None:
    rule = RULES["JOB001"]
    english, chinese = (markdown(page_of(rule, language), language) for language in ("en", "zh"))
    assert english.startswith(f"# JOB001: {rule.title}\n")
    assert "`START-ABSENT`" in english
    assert "## What it checks" in english
    assert "## 检查内容" in chinese
    assert "| 严重程度 | `blocker` |" in chinese


def test_a_broken_line_is_a_blank_in_english_and_none_in_chinese() -> None:
    sections = dict(page_of(RULES["NET003"], "zh").sections)
    assert not re.search(r"[\u4e00-\u9fff，。；] +[\u4e00-\u9fff]", sections["检查内容"])
    assert "datagrams larger than the smaller MTU" in dict(page_of(RULES["NET003"], "en").sections)["What it checks"]


def test_the_page_of_a_signature_shows_the_lines_that_it_knows() -> None:
    page = page_of(RULES["NLG001"], "en")
    assert any("no socket interface found" in line for line in page.examples)
    assert page.examples[0] in markdown(page, "en")


def test_all_pages_are_written_and_their_links_resolve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "codes"
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: {2 * len(RULES)} pages\n"
    broken = [
        f"{path}: {target}"
        for path in folder.rglob("*.md")
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8").partition("```")[0])
        if not (path.parent / target).is_file()
    ]
    assert not broken
    for language in ("en", "zh"):
        assert {path.stem for path in (folder / language).glob("*.md")} == {*RULES, "README"}
        listed = index(RULES.values(), language)
        assert all(f"[{code}]({code}.md)" in listed for code in RULES)
