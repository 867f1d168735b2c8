"""One place makes verdicts and reports, areas of rules stand alone, and metadata says where a rule applies."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.text.sources import nodes, trees


def calls_of(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Calls of `Report(...)` or `model.Report(...)`."""
    for node in nodes(tree, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in names:
            yield node.func.id
        if isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node.func.attr


def last_name(node: ast.AST) -> str:
    """`b` of the name `b` and of `a.b`; "" of what is no name."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in nodes(tree, ast.ImportFrom):
        if node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for plain in nodes(tree, ast.Import):
        yield from (alias.name for alias in plain.names)


def guards_of(tree: ast.AST) -> Iterator[int]:
    """Lines of `if live is not None: return` and the like in bodies of rules."""
    for rule in nodes(tree, ast.FunctionDef):
        parts = {a.arg for a in rule.args.args} & {"live", "run", "check"}
        if not parts or not any("Rule" in ast.unparse(d) for d in rule.decorator_list):
            continue
        for node in rule.body:
            if isinstance(node, ast.If) and [type(s) for s in node.body] == [ast.Return]:
                names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
                if names <= parts and names and isinstance(node.test, ast.Compare):
                    yield node.lineno


@pytest.mark.thorough
def test_one_call_makes_reports_and_one_makes_verdicts() -> None:
    found = sorted(
        (name, str(place)) for place, tree in trees().items() for name in calls_of(tree, {"Report", "Verdict"})
    )
    assert found == [("Report", "judging/report_builder.py"), ("Verdict", "judging/report_builder.py")]


def test_culprits_are_named_by_rules_and_the_judge_only() -> None:
    """Collectors, the monitor, the agent and the runtime library record and ask; a report puts names into words."""
    others = [
        str(place)
        for place, tree in trees().items()
        if Path(place).parts[0] not in {"judging", "rules", "model", "report"} and any(calls_of(tree, {"Culprits"}))
    ]
    assert not others


def test_another_place_would_be_found() -> None:
    tree = ast.parse("model.Report(status=1); Verdict(code=2)")
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


JUDGES = ("judging/", "rules/")
SHOWS = "report/"
"""It shows whom findings accuse."""
VOTES = {"majority", "majority_alike", "is_majority", "is_minority", "is_tie"}
OF_A_JUDGE = {"culprits", "victims", "blamed", "accused"}


@cache
def choices_in(tree: ast.AST) -> tuple[str, ...]:
    """Places where a culprit, or why a process ended, is chosen: a vote, accused ranks that are no copy of what a judge
    gave, a cause, a function that says that it chooses."""
    return tuple(_choices_in(tree))


def _choices_in(tree: ast.AST) -> Iterator[str]:
    yield from (f"imports {name}" for name in imports_of(tree) if name.rpartition(".")[2] in VOTES)
    for call in nodes(tree, ast.Call):
        for keyword in call.keywords:
            if keyword.arg in OF_A_JUDGE and not is_copy(keyword.value):
                yield f"{keyword.arg}={ast.unparse(keyword.value)}"
            if keyword.arg == "cause" and "EndCause." in ast.unparse(keyword.value):
                yield f"cause={ast.unparse(keyword.value)}"
        if last_name(call.func) == "Culprits" and (call.args or call.keywords):
            yield ast.unparse(call)
    for assignment in nodes(tree, ast.Assign):
        for target in assignment.targets:
            if last_name(target).lstrip("_") in OF_A_JUDGE and not is_copy(assignment.value):
                yield ast.unparse(assignment)
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
        *nodes(tree, ast.FunctionDef),
        *nodes(tree, ast.AsyncFunctionDef),
    ]
    for function in functions:
        if any(word in function.name for word in ("culprit", "blame", "accuse", "guilty", "victim")):
            yield f"def {function.name}"


def is_copy(value: ast.expr) -> bool:
    """Whether a value is a judge's (`verdict.culprits.ranks`, also `() if ... else` that): nothing is put together,
    compared or counted."""
    if isinstance(value, ast.IfExp):
        return is_copy(value.body) and is_copy(value.orelse)
    if isinstance(value, ast.Tuple):
        return not value.elts
    if isinstance(value, ast.Call):  # sets, sorts or joins one
        return ast.unparse(value.func) in {"set", "tuple", "sorted"} and all(map(is_copy, value.args))
    return isinstance(value, ast.Attribute) and any(
        isinstance(part, ast.Attribute) and part.attr in OF_A_JUDGE for part in ast.walk(value)
    )


def test_nothing_outside_the_judges_chooses_a_culprit() -> None:
    found = {
        (place, choice)
        for place, tree in trees().items()
        if not place.startswith((*JUDGES, SHOWS))
        for choice in choices_in(tree)
    }
    assert found == set()


def test_the_judges_themselves_choose() -> None:
    found = {place for place, tree in trees().items() if any(choices_in(tree))}
    assert {"judging/stages.py", "judging/end_causes.py"} <= found


def test_a_choice_in_another_place_would_be_found() -> None:
    source = (
        "from allready.judging.majority import Split, is_minority\n"
        "Ending(culprits=tuple(r.rank for r in failed), victims=(1, 2))\n"
        "replace(end, cause=EndCause.NETWORK)\n"
        "model.Culprits(ranks=(1,))\n"
        "self._culprits = [r for r in ranks if r not in entered]\n"
        "def _blamed_at(stage): ...\n"
    )
    copies = (
        "Alert(culprits=() if verdict is None else verdict.culprits.ranks)\n"
        "_stage(culprits=ending.culprits)\n"
        "model.Culprits()\n"
        "culprits = set(report.verdict.culprits.ranks)\n"
    )
    assert len(list(choices_in(ast.parse(source)))) == 7
    assert list(choices_in(ast.parse(copies))) == []


CODE = re.compile(r"[A-Z]{3}\d{3}")


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Codes of rules that something may be decided by: any that stands in the source but in a rule's own declaration;
    and beginnings that are taken off a code, which all codes of an area share."""
    declared = {
        id(node)
        for call in nodes(tree, ast.Call)
        if last_name(call.func) == "Rule"
        for keyword in call.keywords
        if keyword.arg in {"code", "explains"}
        for node in ast.walk(keyword.value)
    }
    for node in nodes(tree, ast.Constant):
        if isinstance(node.value, str) and CODE.fullmatch(node.value) and id(node) not in declared:
            yield node.value
    for slice_of in nodes(tree, ast.Subscript):
        is_of_a_code = last_name(slice_of.value) == "code" and isinstance(slice_of.slice, ast.Slice)
        if is_of_a_code and re.search(r"\.code\[:\d\]$", ast.unparse(slice_of)):
            yield ast.unparse(slice_of)
    for part in nodes(tree, ast.Attribute):
        if part.attr == "startswith" and isinstance(part.value, ast.Attribute) and part.value.attr == "code":
            yield ast.unparse(part)


def test_nothing_is_decided_by_the_code_of_a_rule() -> None:
    assert {(place, code) for place, tree in trees().items() for code in codes_in(tree)} == set()


def test_a_list_of_codes_would_be_found() -> None:
    source = (
        "LAST_WORDS = {'STO006': 1}\nif finding.code == 'JOB010': pass\n"
        "if finding.code[:3] in AREAS: pass\nif f.code.startswith('LNK'): pass\n"
        "@Rule(code='DSY001', explains=('CUD019',))\ndef rule(run): ...\n"
        "name = 'ABC'; code[:3]; rule.code\n"
    )
    assert list(codes_in(ast.parse(source))) == ["STO006", "JOB010", "finding.code[:3]", "f.code.startswith"]


OF_THE_STEPS = {
    "arbiter.in_order", "report_builder.verdict_of", "report_builder.verdict_from",
    "report_builder.keep_first_detection", "watched.with_live", "raised.raised", "differences.explained_by",
}  # fmt: skip
"""What `judging.conclude` does step by step."""


def test_every_path_goes_to_its_verdict_by_conclude() -> None:
    found = {
        (place, name)
        for place, tree in trees().items()
        if not place.startswith("judging/")
        for name in imports_of(tree)
        if name.removeprefix("allready.judging.") in OF_THE_STEPS
    }
    assert found == set()
    users = {place for place, tree in trees().items() for name in imports_of(tree) if ".judging.conclude." in name}
    assert users == {
        "cli/diagnose_judge.py",  # after a run
        "preflight/check/report_series.py",  # check, doctor, bench
        "live/monitor/monitor.py",  # run while it lives, and watch
        "agent/supervisor.py",  # what the nodes' facts show besides
        "agent/participant.py",  # a node that has lost node 0
        "agent/local_verdict.py",  # a node's own interface
        "runtime/judgement.py",
        "runtime/metrics/control.py",
    }
