"""Every code has its English text, its page and its tests."""

import ast
import inspect
import re
from pathlib import Path

from allready.judging.loading import AREAS, load
from allready.judging.registry import HEADINGS, Rule, placeholders
from allready.model.fill import agreeing, plain
from tests.cases import cases
from tests.text.sources import TEXT

TESTS = Path(__file__).resolve().parents[1] / "rules"
RULES = list(load().values())
WRITTEN = [rule for rule in RULES if not rule.area.startswith("log_")]
"""Rules that are functions; the others are rows of the signature tables, tested in tests/signatures."""
MIN_TESTS = 4


def name_of(rule: Rule) -> str:
    return rule.code


def headings(page: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^## (.+)$", page, flags=re.MULTILINE))


def body_of(page: str, heading: str) -> str:
    return page.partition(f"## {heading}")[2].partition("\n## ")[0].strip()


@cases("rule", RULES, ids=name_of)
def test_the_english_text_has_its_form(rule: Rule) -> None:
    assert headings(rule.page) == HEADINGS
    assert all(body_of(rule.page, heading) for heading in HEADINGS)
    assert placeholders(rule.title) == set(), "a title is the same for every hit"
    steps = (text for step in rule.steps for text in (step.explanation, step.command, step.where))
    for written in (rule.message, *steps):
        template = agreeing(written, {})
        assert not re.search(r"(?<!\{)\{\w*[^\w}{][^}]*\}(?!\})", template), "values are texts, {x:.1f} breaks on them"
        template.format_map(dict.fromkeys(placeholders(template), "x"))
        parts = re.findall(r"\[\[(.*?)\]\]", template)
        assert all(placeholders(part) for part in parts), "an optional part without a value"
        assert not re.search(r"\[\[|\]\]", plain(template))


@cases("rule", WRITTEN, ids=name_of)
def test_the_rule_and_its_test_share_one_name(rule: Rule) -> None:
    assert rule.body is not None
    file = Path(inspect.getsourcefile(rule.body) or "")
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


def test_every_file_of_an_area_has_a_rule() -> None:
    files = {
        (area, path.stem)
        for area in AREAS
        for path in (TEXT.parent / "rules" / area).glob("*.py")
        if not path.stem.startswith("_")
    }
    assert files == {(r.area, r.module.rpartition(".")[2]) for r in WRITTEN}


def test_an_area_has_one_prefix() -> None:
    prefixes = {(r.area, r.code[:3]) for r in RULES}
    assert len(prefixes) == len({area for area, _ in prefixes}) == len({prefix for _, prefix in prefixes})
