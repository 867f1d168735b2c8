"""Every rule of `doctor` and `env lint` is proven both ways: a case that it finds, a look-alike that it leaves alone.

The tests of each rule are run once more with a recorder in the place where they ask it.  A look-alike is a fleet that
differs from healthy nodes in a fact that the rule reads, with every fact known, and that gives no hit.
"""

import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from msgspec import Struct

from allready.judging.engine import RuleOutcome, run
from allready.judging.loading import load
from allready.judging.registry import JOB_PARTS, Applies, Rule
from allready.model import NODE_FACTS, Collectives, Fleet, Reachability, RollCall
from tests import fleets

AREAS = frozenset({"env", "gpu", "limit", "name", "net", "port", "variables"})
OF_SEVERAL = {RollCall, Reachability, Collectives}
"""Parts of a job that one machine does not have."""
FEWEST = 60
LONG = {"thorough", "slow"}
"""Marks of tests about time or any text, which show nothing more of what a rule says."""


class Proof(Struct):
    """What the tests of one rule have shown."""

    found: int = 0
    left_alone: int = 0


def rules() -> list[Rule]:
    """Those that facts of a machine, or settings, are enough for."""
    return [
        rule
        for rule in load().values()
        if rule.area in AREAS
        and rule.applies is not None
        and Applies.CHECK in rule.applies
        and not any(need.fact_type in OF_SEVERAL and not need.optional for need in rule.needs)
    ]


def calls_of(module: ModuleType) -> Iterator[Callable[[], Any]]:
    """The tests of a module with every row of theirs, without those that need fixtures or measure something."""
    for name, test in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith("test_") or test.__module__ != module.__name__ or hasattr(test, "hypothesis"):
            continue
        all_marks = getattr(test, "pytestmark", ())
        if LONG & {mark.name for mark in all_marks}:
            continue
        marks = [mark for mark in all_marks if mark.name == "parametrize"]
        tables = [[dict(zip(names, values, strict=True)) for values in rows] for names, rows in map(_table, marks)]
        given = {name for table in tables for row in table for name in row}
        if set(inspect.signature(test).parameters) <= given:
            for rows in itertools.product(*tables):
                arguments = {name: value for row in rows for name, value in row.items()}
                yield functools.partial(test, **arguments)


def _table(mark: pytest.Mark) -> tuple[list[str], list[tuple[Any, ...]]]:
    names = mark.args[0]
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    plain = [getattr(row, "values", row) if hasattr(row, "marks") else row for row in mark.args[1]]
    return names, [tuple(row) if len(names) > 1 else _one(row) for row in plain]


def _one(row: Any) -> tuple[Any, ...]:
    return row if isinstance(row, tuple) and len(row) == 1 else (row,)


def differs(rule: Rule, made: Fleet) -> bool:
    """Whether a fact that the rule reads is another one than on healthy nodes."""
    healthy = fleets.fleet(max(1, len(made.nodes)))
    names = {type_: name for name, type_ in NODE_FACTS.items()}
    for need in rule.needs:
        if need.fact_type in JOB_PARTS:
            part = JOB_PARTS[need.fact_type]
            if getattr(made, part) != getattr(healthy, part):
                return True
        elif need.fact_type in names and any(
            getattr(facts, names[need.fact_type]) != getattr(healthy.nodes.get(node), names[need.fact_type], None)
            for node, facts in made.nodes.items()
        ):
            return True
    return False


def test_every_rule_has_a_case_that_it_finds_and_a_look_alike_that_it_leaves_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proofs = {rule.code: Proof() for rule in rules()}

    def recorded(rule: Rule, made: Fleet) -> RuleOutcome:
        outcome = run(rule, made)
        proof = proofs.get(rule.code)
        if proof is not None and outcome.hits:
            proof.found += 1
        elif proof is not None and outcome.state == "clear" and differs(rule, made):
            proof.left_alone += 1
        return outcome

    monkeypatch.setattr(fleets, "run", recorded)
    for rule in rules():
        for call in calls_of(importlib.import_module(f"tests.rules.{rule.area}.test_{rule.name}")):
            call()
    assert len(proofs) >= FEWEST
    unproven = {
        "without a case": [code for code, proof in proofs.items() if not proof.found],
        "without a look-alike": [code for code, proof in proofs.items() if not proof.left_alone],
    }
    assert unproven == {"without a case": [], "without a look-alike": []}
