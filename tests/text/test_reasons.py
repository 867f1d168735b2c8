"""Why something was not checked: every kind has its sentence, and gets the values that it needs."""

import ast
from collections.abc import Iterator

import pytest

from allready.judging.registry import placeholders
from allready.model import NotChecked, UncheckedKind
from allready.text.reasons import not_checked, reason, say_reason
from allready.text.ui import table
from tests.text.sources import nodes, trees


def reasons_given() -> Iterator[tuple[str, str, set[str]]]:
    """(place, kind, names of the values) of every `reason(UncheckedKind.KIND, ...)` in the sources."""
    for place, tree in trees().items():
        for node in nodes(tree, ast.Call):
            if (
                isinstance(node.func, ast.Name)
                and node.func.id == "reason"
                and node.args
                and isinstance(node.args[0], ast.Attribute)
            ):
                yield f"{place}:{node.lineno}", node.args[0].attr, {str(k.arg) for k in node.keywords}


def test_every_kind_has_a_sentence_and_every_sentence_a_kind() -> None:
    assert set(table("en", "unchecked")) == {str(kind) for kind in UncheckedKind}


def test_every_reason_gets_the_values_that_its_sentence_needs() -> None:
    given = list(reasons_given())
    assert len(given) > 10
    for place, kind, names in given:
        assert names == placeholders(table("en", "unchecked")[str(UncheckedKind[kind])]), place


def test_the_sentence_is_made_of_the_same_values_in_both_languages() -> None:
    item = not_checked("input", reason(UncheckedKind.ENDS_MISSING, missing=3, expected=64))
    assert item.why == say_reason(item, "en") == "3 of 64 ranks did not record how they ended"
    assert "64" in say_reason(item, "zh")
    assert "记录" in say_reason(item, "zh")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_reason_of_an_older_report_is_shown_as_it_was_written(language: str) -> None:
    older = NotChecked(code="NET001", node=1, why="the probes were interrupted")
    assert say_reason(older, language) == "the probes were interrupted"


def test_a_report_whose_values_were_lost_still_says_why() -> None:
    item = NotChecked(code="input", node=None, why="3 of 4 ranks", kind=UncheckedKind.ENDS_MISSING)
    assert say_reason(item, "zh") == "3 of 4 ranks"
