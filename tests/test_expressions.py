"""Expressions that are compiled late are those that `re` compiles."""

import copy
import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import allready
from allready import expressions
from allready.expressions import expression
from tests.cases import cases


def constants() -> Iterator[tuple[str, Any]]:
    """Every late expression of the package."""
    for part in ("evidence", "rules", "report", "model", "signatures", "cli", "text"):
        package = importlib.import_module(f"{allready.__name__}.{part}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(found.name)).items():
                if isinstance(value, expressions._Later):
                    yield f"{found.name}.{name}", value


def test_every_expression_of_the_package_can_be_compiled() -> None:
    found = dict(constants())
    assert len(found) > 300
    for name, one in found.items():
        assert re.compile(one.pattern, one.flags).groups == one.groups, name


@cases(
    ("source", "flags", "text"),
    [(r"(?P<a>\d+)-(\w)", 0, "x 12-a 3-b"), (r"^b", re.MULTILINE, "a\nb"), (rb"\s+", 0, b"a  b c"), ("no", 0, "x")],
)
def test_it_answers_as_the_compiled_one_does(source: Any, flags: int, text: Any) -> None:
    for again in range(2):
        late: Any = expression(source, flags)
        plain: Any = re.compile(source, flags)
        for late_again in (late, copy.copy(late), pickle.loads(pickle.dumps(late))) if again else (late,):
            for method in ("search", "match", "fullmatch"):
                one, other = getattr(late_again, method)(text), getattr(plain, method)(text)
                assert (one and (one.span(), one.groups())) == (other and (other.span(), other.groups()))
            assert [m.span() for m in late_again.finditer(text)] == [m.span() for m in plain.finditer(text)]
            assert late_again.findall(text) == plain.findall(text)
            assert late_again.split(text) == plain.split(text)
            assert late_again.sub(text[:1], text, count=1) == plain.sub(text[:1], text, count=1)
            assert late_again.subn(text[:1], text) == plain.subn(text[:1], text)
            assert (late_again.pattern, late_again.groups) == (plain.pattern, plain.groups)
            assert late_again.groupindex == plain.groupindex


def test_it_is_compiled_once_and_not_before() -> None:
    late: Any = expression(r"never seen \d+")
    assert "search" not in vars(late)
    assert late.search("never seen 5")
    assert vars(late)["search"] == re.compile(r"never seen \d+").search
    assert repr(late) == "expression('never seen \\\\d+')"


def test_an_error_shows_at_the_first_use() -> None:
    wrong: Any = expression("(")
    with pytest.raises(re.error):
        wrong.search("x")
    with pytest.raises(AttributeError):
        expression("x").no_such_method  # type: ignore[attr-defined]  # noqa: B018
