"""The Chinese text of every signature: complete, with the same values and literals as the English one."""

import re

from allready.judging.registry import placeholders
from allready.model.fill import steps_of
from allready.signatures import load
from allready.signatures.table import FAMILIES, Signature
from allready.text import catalog
from tests.cases import cases

FINDINGS = [signature for signature in load().values() if signature.code is not None]
HEADINGS = ("检查内容", "影响", "手工确认", "何时无害")
SLOTS = {"title", "message", "page"}
LITERAL = re.compile(r"--[a-z][a-z-]+|\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH_SENTENCE = re.compile(r"(?:\b[a-z]{2,}[ ,]+){7,}")


def name_of(signature: Signature) -> str:
    return signature.id


def entry_of(signature: Signature) -> dict[str, str]:
    return catalog.entries("zh", f"log_{signature.family}").get(str(signature.code), {})


def text_below(page: str, heading: str) -> str:
    return page.partition(f"## {heading}")[2].partition("\n## ")[0].strip()


def without_quotes(text: str) -> str:
    """What is prose: without quoted log lines and commands."""
    return re.sub(r"`[^`]*`|\"[^\"]*\"|'[^']*'", "", text)


@cases("family", FAMILIES)
def test_the_file_has_the_codes_of_the_table(family: str) -> None:
    assert set(catalog.entries("zh", f"log_{family}")) == {s.code for s in FINDINGS if s.family == family}


@cases("signature", FINDINGS, ids=name_of)
def test_it_is_the_english_text_in_chinese(signature: Signature) -> None:
    assert_all_four_texts_are_there(signature)
    assert_it_is_chinese(signature)
    assert_it_needs_the_same_values(signature)
    assert_commands_and_variables_are_not_translated(signature)


def assert_all_four_texts_are_there(signature: Signature) -> None:
    entry = entry_of(signature)
    assert {slot for slot in SLOTS if entry.get(slot, "").strip()} == SLOTS
    assert set(entry) - SLOTS in ({"remedy"}, {"remedies"})
    assert len(steps_of(entry)) == len(signature.remedies)
    assert tuple(re.findall(r"^## (.+)$", entry["page"], flags=re.MULTILINE)) == HEADINGS
    assert all(text_below(entry["page"], heading) for heading in HEADINGS)


def assert_it_is_chinese(signature: Signature) -> None:
    entry = entry_of(signature)
    for text in (*(entry[slot] for slot in SLOTS), *(step.explanation for step in steps_of(entry))):
        assert CHINESE.search(text), text
        assert not ENGLISH_SENTENCE.search(without_quotes(text)), text
    for heading in HEADINGS[1::2]:
        assert CHINESE.search(text_below(entry["page"], heading)), heading


def assert_it_needs_the_same_values(signature: Signature) -> None:
    entry = entry_of(signature)
    assert placeholders(entry["message"]) == placeholders(signature.message)
    for step, translated in zip(signature.remedies, steps_of(entry), strict=True):
        assert placeholders(translated.explanation) == placeholders(step.explanation)
        assert placeholders(translated.where) == placeholders(step.where)
        assert not translated.command, "a command is the same in every language"
    assert placeholders(entry["title"]) == set()
    for text in (entry["message"], *(step.explanation for step in steps_of(entry))):
        text.format_map(dict.fromkeys(placeholders(text), "x"))


def assert_commands_and_variables_are_not_translated(signature: Signature) -> None:
    for step, translated in zip(signature.remedies, steps_of(entry_of(signature)), strict=True):
        assert set(LITERAL.findall(step.explanation)) <= set(LITERAL.findall(translated.explanation))
