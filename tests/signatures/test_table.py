"""One line's expression."""

import re

import pytest
from msgspec.structs import replace

from allready.errors import TableError
from allready.judging import signature_rules
from allready.signatures import load, table
from allready.signatures.table import LinePattern
from tests.cases import cases


@cases(
    ("source", "is_blind"),
    [
        (r"rank (?P<rank>\d{1,7}) of [0-9a-f]+ ends", True), (r"[\w.]{2,} timed out .{0,60}?after \d+ s$", True),
        (r"error 4 in", False), (r"x[1-9]", False), (r"0x[0-7]+", False), (r"(a)\1", False),
        (r"(?P<a>\d)(?P=a)", False),
        (r"\x31", False), (r"a\{3\}", False), (r"[{3}]", False), (r"\\[{3}]", False), (r"\[\d{1,3}\]", True),
        (r"(?P<a>x)?(?(a)y|z)", False), ("٣", False),
    ],
)  # fmt: skip
def test_an_expression_is_blind_that_takes_one_digit_for_any_other(source: str, is_blind: bool) -> None:
    assert LinePattern(anchor="", source=source, example="").is_blind == is_blind


def test_blind_expressions_know_their_examples_with_any_digits() -> None:
    lines = [line for one in load().values() for line in one.lines]
    blind = [line for line in lines if line.is_blind]
    assert len(lines) > len(blind) > 100
    for line in blind:
        for digit in "0123456789":
            again = line.pattern.search(re.sub(r"\d", digit, line.example))
            assert again is not None
            assert again.span() == line.pattern.search(line.example).span()  # type: ignore[union-attr]


def test_a_wrong_entry_is_named() -> None:
    """Of four hundred, to whom has added one."""
    for wrong in ({"culprit": "nobody"}, {"remedies": [{"comand": "ls"}]}, {"remedies": [{"command": "ls"}]}):
        with pytest.raises(TableError, match=r"launcher\.mine: "):
            table._signature("launcher", {"name": "mine", "role": "root", **wrong})


@pytest.mark.parametrize(
    ("wrong", "valid"),
    [
        ({"end_cause": "out_of_threads"}, "end_cause is one of: .*, out_of_memory"),
        ({"culprit": "nobody"}, "culprit is one of: .*, none"),
        ({"when": [{"severity": "fatal"}]}, "severity is one of: .*, blocker"),
    ],
)
def test_the_words_that_a_key_takes_are_listed(wrong: dict[str, object], valid: str) -> None:
    with pytest.raises(TableError, match=rf"^signatures/launcher\.toml: launcher\.mine: .*; {valid}"):
        table._signature("launcher", {"name": "mine", "role": "root", "line": [], **wrong})


def test_the_layers_are_listed_where_an_entry_has_none() -> None:
    entry = replace(next(iter(load().values())), layer="enviroment", code="NLG999")
    with pytest.raises(
        TableError, match=r"^signatures/nccl\.toml: nccl\.\w+: layer is one of: machine, .*, environment"
    ):
        signature_rules._layer(entry)
