"""Every code speaks both languages, has its page, its file and its tests."""

import ast
import inspect
import re
import tomllib
from pathlib import Path

from allready.judging.registry import AREAS, HEADINGS, Rule, load, placeholders
from allready.model import Remedy
from allready.model.fill import steps_of
from allready.text import catalog
from tests.cases import cases
from tests.text.sources import TEXT

TESTS = Path(__file__).resolve().parents[1] / "rules"
CHINESE_HEADINGS = ("检查内容", "影响", "手工确认", "何时无害")
SLOTS = {"title", "message", "page"}
REMEDIES = {"remedy", "remedies"}
RULES = list(load().values())
WRITTEN = [rule for rule in RULES if not rule.area.startswith("log_")]
"""Rules with a file of their own; the others are rows of the signature tables, tested in tests/signatures."""
MIN_TESTS = 4


def name_of(rule: Rule) -> str:
    return rule.code


def texts_of(message: str, steps: tuple[Remedy, ...]) -> list[str]:
    return [message, *(text for step in steps for text in (step.explanation, step.command, step.where))]


def headings(page: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^## (.+)$", page, flags=re.MULTILINE))


def body_of(page: str, heading: str) -> str:
    return page.partition(f"## {heading}")[2].partition("\n## ")[0].strip()


@cases("rule", RULES, ids=name_of)
def test_both_languages_have_all_texts_alike(rule: Rule) -> None:
    assert_the_english_page_has_the_four_parts(rule)
    assert_the_chinese_text_is_complete(rule)
    assert_both_languages_need_the_same_values(rule)
    assert_text_has_no_format_that_only_some_values_bear(rule)
    assert_commands_and_codes_are_not_translated(rule)


def assert_the_english_page_has_the_four_parts(rule: Rule) -> None:
    assert headings(rule.page) == HEADINGS
    assert all(body_of(rule.page, heading) for heading in HEADINGS)


def assert_the_chinese_text_is_complete(rule: Rule) -> None:
    entry = catalog.entries("zh", rule.area).get(rule.code, {})
    assert {slot for slot in SLOTS if str(entry.get(slot, "")).strip()} == SLOTS
    assert len(steps_of(entry)) == len(rule.remedies)
    assert headings(entry["page"]) == CHINESE_HEADINGS
    assert all(body_of(entry["page"], heading) for heading in CHINESE_HEADINGS)
    assert all(re.search(r"[\u4e00-\u9fff]", entry[slot]) for slot in SLOTS), "not translated"


def assert_both_languages_need_the_same_values(rule: Rule) -> None:
    entry = catalog.entries("zh", rule.area)[rule.code]
    assert placeholders(entry["message"]) == placeholders(rule.message)
    for step, translated in zip(rule.remedies, steps_of(entry), strict=True):
        assert placeholders(translated.explanation) == placeholders(step.explanation)
        assert placeholders(translated.where) == placeholders(step.where)
        assert bool(translated.where) == bool(step.where)
        assert not translated.command, "a command is the same in every language"
    assert placeholders(rule.title) == placeholders(entry["title"]) == set(), "a title is the same for every hit"


def assert_text_has_no_format_that_only_some_values_bear(rule: Rule) -> None:
    """Values are written as text; `{x:.1f}` would break on them."""
    entry = catalog.entries("zh", rule.area)[rule.code]
    for template in (*texts_of(rule.message, rule.remedies), *texts_of(entry["message"], steps_of(entry))):
        assert not re.search(r"(?<!\{)\{\w*[^\w}{][^}]*\}(?!\})", template), template
        template.format_map(dict.fromkeys(placeholders(template), "x"))


def assert_commands_and_codes_are_not_translated(rule: Rule) -> None:
    """Options and variables of the English remedy stand in the Chinese one as well."""
    entry = catalog.entries("zh", rule.area)[rule.code]
    literal = re.compile(r"--[a-z][a-z-]+|\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b")
    for step, translated in zip(rule.remedies, steps_of(entry), strict=True):
        assert set(literal.findall(step.explanation)) <= set(literal.findall(translated.explanation))


@cases("rule", WRITTEN, ids=name_of)
def test_the_rule_its_file_and_its_test_share_one_name(rule: Rule) -> None:
    assert rule.body is not None
    file = Path(inspect.getsourcefile(rule.body) or "")
    assert file.stem == rule.name
    assert file.parent.name == rule.area
    test_file = TESTS / rule.area / f"test_{rule.name}.py"
    assert test_file.is_file(), f"{test_file} is missing"
    tests = [
        node.name
        for node in ast.walk(ast.parse(test_file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert len(set(tests)) >= MIN_TESTS, tests
    assert rule.code in test_file.read_text(encoding="utf-8")


def test_every_file_of_an_area_is_a_rule() -> None:
    files = {
        (area, path.stem)
        for area in AREAS
        for path in (TEXT.parent / "rules" / area).glob("*.py")
        if not path.stem.startswith("_")
    }
    assert files == {(r.area, r.name) for r in WRITTEN}


def test_an_area_has_one_prefix() -> None:
    prefixes = {(r.area, r.code[:3]) for r in RULES}
    assert len(prefixes) == len({area for area, _ in prefixes}) == len({prefix for _, prefix in prefixes})


def test_no_translation_is_orphaned() -> None:
    codes = {r.code: r.area for r in RULES}
    for path in (TEXT / "zh_CN").glob("*.toml"):
        if path.stem.startswith("ui"):
            continue
        for code, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            assert codes.get(code) == path.stem, f"{path.name}: {code}"
            assert set(entry) <= SLOTS | REMEDIES, f"{path.name}: {code}: {set(entry) - SLOTS}"
