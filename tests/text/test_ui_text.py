"""Every short text that the sources ask for exists, in both languages, with the values that the call gives."""

import re

import pytest

from allready.judging.registry import placeholders
from allready.text.ui import table, ui
from tests.cases import cases
from tests.text.sources import KEY, TEXT, Asked, asked, texts

AREAS = sorted(path.stem.removeprefix("ui_") for path in (TEXT / "en").glob("ui_*.toml"))


def test_sources_are_found() -> None:
    assert len(asked()) > 10
    assert AREAS


def test_a_key_that_is_asked_for_exists_and_gets_its_values() -> None:
    for call in asked():
        assert_it_exists_and_gets_its_values(call)


def assert_it_exists_and_gets_its_values(call: Asked) -> None:
    area, name = call.key.split(".")
    assert name in table("en", area), f"{call.place}: no such text: {call.key}"
    if call.values is not None:
        missing = placeholders(table("en", area)[name]) - call.values
        assert not missing, f"{call.place}: {call.key} needs {sorted(missing)}"


@cases("area", AREAS)
def test_a_name_can_be_asked_for(area: str) -> None:
    assert all(KEY.fullmatch(f"{area}.{name}") for name in table("en", area))


@cases("area", AREAS)
def test_no_text_is_orphaned(area: str) -> None:
    literal, patterns = texts()
    unused = [
        name
        for name in table("en", area)
        if f"{area}.{name}" not in literal
        and name not in literal
        and not any(p.fullmatch(f"{area}.{name}") or p.fullmatch(name) for p in patterns)
    ]
    assert unused == []


@cases("language", ["en", "zh"])
@cases("area", AREAS)
def test_every_text_can_be_filled_in(area: str, language: str) -> None:
    for name, template in table(language, area).items():
        values = {value: f"<{value}>" for value in placeholders(template)}
        filled = ui(f"{area}.{name}", language, **values)
        assert all(value in filled for value in values.values())
        assert not re.search(r"(?<!\{)\{\w+\}", filled)


def test_an_unknown_key_is_our_own_mistake() -> None:
    with pytest.raises(KeyError):
        ui("report.no_such_text")
    with pytest.raises(KeyError):
        ui("no_such_area.text", "zh")


def test_values_are_not_read_as_templates() -> None:
    area = next(a for a in AREAS if any(placeholders(t) for t in table("en", a).values()))
    name, template = next((n, t) for n, t in table("en", area).items() if placeholders(t))
    filled = ui(f"{area}.{name}", **dict.fromkeys(placeholders(template), "{boom} {0}"))
    assert "{boom} {0}" in filled


@pytest.mark.parametrize(
    ("num_pairs", "num_rounds", "words"),
    [(1, 1, "all 1 pair of nodes in 1 round, about 9 s"), (3, 21, "all 3 pairs of nodes in 21 rounds, about 9 s")],
)
def test_one_thing_is_not_in_the_plural(num_pairs: int, num_rounds: int, words: str) -> None:
    assert ui("reach.plan", num_pairs=num_pairs, num_rounds=num_rounds, estimate_s=9) == f"reachability: {words}"
    assert "{" not in ui("reach.plan", "zh", num_pairs=num_pairs, num_rounds=num_rounds, estimate_s=9)
