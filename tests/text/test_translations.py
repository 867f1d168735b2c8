"""Chinese texts: what there is fits the English text; what there is not falls back to it, and is listed.

A contribution needs no Chinese.  Where an English text got other values, its Chinese one goes until someone writes it
anew: `allready` then shows the English text, and `python tools/dev.py untranslated` lists it.  Only a release
needs all of it: `make release-check`.
"""

import os
import re
import tomllib
from pathlib import Path

import pytest

from allready.docs import own_steps, page_of, untranslated
from allready.judging.loading import load
from allready.judging.registry import Rule, placeholders
from allready.model.fill import parts, plain, steps_of
from allready.text import catalog
from allready.text.ui import entries, table, ui
from tests.cases import cases
from tests.text.sources import TEXT

RULES = load()
SLOTS = ("title", "message", "page")
HEADINGS = ("检查内容", "影响", "手工确认", "何时无害")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH_SENTENCE = re.compile(r"(?:\b[a-z]{2,}[ ,]+){7,}")
LITERAL = re.compile(r"--[a-z][a-z-]+|\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b")
FORMAT = re.compile(r"(?<!\{)\{\w*[^\w}{][^}]*\}(?!\})")
UI_AREAS = sorted(path.stem.removeprefix("ui_") for path in (TEXT / "en").glob("ui_*.toml"))


def chinese(rule: Rule) -> dict[str, str]:
    """The slots that are there."""
    texts = {slot: catalog.translated("zh", rule.area, rule.code, slot) for slot in SLOTS}
    return {slot: text for slot, text in texts.items() if text is not None}


def prose(text: str) -> str:
    """Without quoted lines of logs and commands."""
    return re.sub(r"`[^`]*`|\"[^\"]*\"|'[^']*'", "", text)


def optional_parts(text: str) -> list[list[list[str]]]:
    """The values of each alternative of each optional part; but who wrote a line, for which both have a word."""
    found = ([sorted(placeholders(one)) for one in some if placeholders(one)] for some in parts(text) if len(some) > 1)
    return sorted(names for names in found if names != [["who"]])


def assert_it_fits(english: str, text: str) -> None:
    """A template in Chinese beside the English one."""
    assert placeholders(text) == placeholders(english), "other values; write it anew or remove it"
    assert text == text.strip()
    assert not FORMAT.search(text), "values are texts, {x:.1f} breaks on them"
    assert optional_parts(text) == optional_parts(english), "other optional parts"
    assert not re.search(r"\[\[|\]\]", plain(text))
    assert not ENGLISH_SENTENCE.search(prose(text)), "not translated"


@cases("rule", RULES.values(), ids=lambda rule: rule.code)
def test_a_chinese_text_fits_the_english_one(rule: Rule) -> None:
    texts = chinese(rule)
    for slot in {"title", "message"} & set(texts):
        assert_it_fits(str(getattr(rule, slot)), texts[slot])
    steps = steps_of(entries("zh", rule.area).get(rule.code, {}))
    assert len(steps) <= len(own_steps(rule)), "steps that the English text lacks"
    for english, step in zip(own_steps(rule), steps, strict=False):
        assert_it_fits(english.explanation, step.explanation)
        assert_it_fits(english.where, step.where)
        assert not step.command, "a command is the same in every language"
        lost = set(LITERAL.findall(english.explanation)) - set(LITERAL.findall(step.explanation))
        assert not lost, f"the remedy lacks {sorted(lost)}"
    if "page" in texts:
        assert tuple(re.findall(r"^## (.+)$", texts["page"], flags=re.MULTILINE)) == HEADINGS
        assert all(body for _, body in page_of(rule, "zh").sections)
    assert all(CHINESE.search(text) for text in texts.values()), "not translated"


@cases("area", UI_AREAS)
def test_a_label_in_chinese_needs_the_same_values(area: str) -> None:
    english, other = table("en", area), table("zh", area)
    assert set(other) <= set(english), "these belong to no English text"
    for name, text in other.items():
        assert placeholders(text) == placeholders(english[name]), f"{area}.{name}: write it anew or remove it"


@cases("path", sorted((TEXT / "zh_CN").glob("*.toml")), ids=lambda path: path.name)
def test_no_chinese_text_is_orphaned(path: Path) -> None:
    if path.stem.startswith("ui_"):
        assert path.stem.removeprefix("ui_") in UI_AREAS
        return
    codes = {rule.code for rule in RULES.values() if rule.area == path.stem}
    entries = tomllib.loads(path.read_text(encoding="utf-8"))
    assert set(entries) <= codes, "there is no such code in this area"
    assert all(set(entry) <= {*SLOTS, "remedy", "remedies"} for entry in entries.values())


def test_what_lacks_a_chinese_text_is_shown_in_english_slot_by_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = entries("zh", "net")
    partial = {**whole, "NET003": {"title": whole["NET003"]["title"]}}
    for module in ("allready.docs", "allready.text.catalog"):
        monkeypatch.setattr(f"{module}.entries", lambda language, area: partial if language == "zh" else {})
    page = page_of(RULES["NET003"], "zh")
    assert page.title == whole["NET003"]["title"]
    assert RULES["NET003"].steps[0].explanation.split("{")[0] in page.remedy
    assert page.sections[0][0] == "What it checks"
    assert "zh_CN/net.toml: NET003: message, page, remedy" in list(untranslated())


def test_a_label_without_chinese_is_english(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(language: str, area: str) -> dict[str, str]:
        return {k: v for k, v in table(language, area).items() if language == "en" or k != "remedy"}

    monkeypatch.setattr("allready.text.ui.table", without)
    assert ui("explain.remedy", "zh") == table("en", "explain")["remedy"]
    assert ui("explain.severity", "zh") == table("zh", "explain")["severity"]


def test_texts_without_chinese_are_listed_and_a_release_has_none() -> None:
    missing = list(untranslated())
    if os.environ.get("ALLREADY_RELEASE") == "1":
        assert not missing, "\n".join(["a release needs the Chinese of these:", *missing])
    elif missing:
        shown = "; ".join(missing[:10]) + ("; ..." if len(missing) > 10 else "")
        pytest.skip(f"shown in English until a release, {len(missing)}: {shown}")
