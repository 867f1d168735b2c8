"""One place makes verdicts and reports, areas of rules stand alone, and metadata says where a rule applies."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.text.sources import nodes, trees


def calls_of(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Calls of `Report(...)` or `model.Report(...)`; `messages.Verdict` is what nodes send each other."""
    for node in nodes(tree, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in names:
            yield node.func.id
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in names
            and ast.unparse(node.func.value) != "messages"
        ):
            yield node.func.attr


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in nodes(tree, ast.ImportFrom):
        if node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for plain in nodes(tree, ast.Import):
        yield from (alias.name for alias in plain.names)


def guards_of(tree: ast.AST) -> Iterator[int]:
    """Lines of `if live is not None: return` and the like in bodies of rules."""
    for rule in nodes(tree, ast.FunctionDef):
        if not any("Rule" in ast.unparse(d) for d in rule.decorator_list):
            continue
        parts = {a.arg for a in rule.args.args} & {"live", "run", "check"}
        for node in rule.body:
            if isinstance(node, ast.If) and [type(s) for s in node.body] == [ast.Return]:
                names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
                if names <= parts and names and isinstance(node.test, ast.Compare):
                    yield node.lineno


def test_one_call_makes_reports_and_one_makes_verdicts() -> None:
    found = sorted(
        (name, str(place)) for place, tree in trees().items() for name in calls_of(tree, {"Report", "Verdict"})
    )
    assert found == [("Report", "judging/report_builder.py"), ("Verdict", "judging/report_builder.py")]


def test_another_place_would_be_found() -> None:
    tree = ast.parse("model.Report(status=1); Verdict(code=2); messages.Verdict(report=3)")
    assert list(calls_of(tree, {"Report", "Verdict"})) == ["Report", "Verdict"]


def test_no_area_of_rules_imports_another() -> None:
    wrong = set()
    for place, tree in trees().items():
        parts = Path(place).with_suffix("").parts
        if parts[0] != "rules" or len(parts) < 3:
            continue
        for name in imports_of(tree):
            target = name.split(".")
            if target[:2] == ["allready", "rules"] and len(target) > 2 and target[2] != parts[1]:
                wrong.add((parts[1], target[2]))
    assert wrong == set()


def test_rules_say_where_they_apply_in_their_metadata() -> None:
    wrong = [f"{place}:{line}" for place, tree in trees().items() for line in guards_of(tree)]
    assert not [place for place in wrong if place.startswith("rules/")]


def test_a_guard_in_a_body_would_be_found() -> None:
    rule = "@Rule(code='X')\ndef rule(run, live=None):\n    if live is not None:\n        return\n    yield 1\n"
    assert list(guards_of(ast.parse(rule))) == [3]
