"""Sentences of evidence: every one that a rule can make has its Chinese, with the same values."""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping

from allready.judging.stated import stated
from allready.model.fill import placeholders
from allready.text.catalog import evidence_forms, say_evidence
from tests.text.sources import nodes, trees

FOLDERS = ("judging/", "rules/")
OWN_WORDS = re.compile(r"[A-Za-z]{4,}")
TERMS = frozenset({"rank"})
"""Terms that Chinese texts keep."""
PASSED_ON = frozenset({"form"})
"""Functions hand on what their caller says."""


def strings(node: ast.expr, known: Mapping[str, set[str]]) -> set[str]:
    """Every text that an expression of constants can be."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.BinOp):
        pairs = itertools.product(strings(node.left, known), strings(node.right, known))
        return {a + b for a, b in pairs}
    if isinstance(node, ast.IfExp):
        return strings(node.body, known) | strings(node.orelse, known)
    if isinstance(node, ast.Dict):
        return {text for value in node.values for text in strings(value, known)}
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and len(node.args) == 2
    ):
        return strings(node.func.value, known) | strings(node.args[1], known)
    return known.get(node.id, set()) if isinstance(node, ast.Name) else set()


def assigned(tree: ast.Module) -> dict[str, set[str]]:
    """Names of constant texts in one module, and what they can be."""
    known: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Name):
            continue
        if isinstance(node, ast.Assign):
            known[target.id] = known.get(target.id, set()) | strings(node.value, known)
        elif isinstance(node, ast.AugAssign):
            both = itertools.product(known.get(target.id, set()), strings(node.value, known))
            known[target.id] = known.get(target.id, set()) | {a + b for a, b in both}
    return known


def called(node: ast.AST) -> str:
    """The name of what is called."""
    return getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Those that make evidence."""
    yield from ((place, tree) for place, tree in trees().items() if place.startswith(FOLDERS))


def forms() -> Iterator[tuple[str, set[str]]]:
    """Where evidence is stated, and its possible forms."""
    for name, tree in modules():
        known = assigned(tree)
        for node in nodes(tree, ast.Call):
            given = [k.value for k in node.keywords if k.arg == "form"]
            if called(node) == "stated":
                given = given or node.args[1:2]
            found = strings(given[0], known) if given else set()
            if found or (given and getattr(given[0], "id", "") not in PASSED_ON):
                yield f"{name}:{node.lineno}", found


def test_every_sentence_of_evidence_has_its_chinese_with_the_same_values() -> None:
    chinese = evidence_forms("zh")
    found = list(forms())
    texts = {text for _, some in found for text in some}
    assert len(texts) > 50
    wrong = [f"{where}: no Chinese: {text}" for where, some in found for text in sorted(some) if text not in chinese]
    wrong += [f"{where}: its form is not found" for where, some in found if not some]
    wrong += [f"no rule says: {text}" for text in chinese if text not in texts]
    wrong += [f"other values: {a}" for a, b in chinese.items() if placeholders(a) != placeholders(b)]
    assert not wrong, "\n".join(wrong)


def words_of(call: ast.Call) -> set[str]:
    """Words of ours in the text of an `Evidence(...)` or an `evidence(origin, text)`."""
    texts = [k.value for k in call.keywords if k.arg == "text"] + call.args[1:2]
    formatted = [j for text in texts for j in ast.walk(text) if isinstance(j, ast.JoinedStr)]
    parts = [str(part.value) for joined in formatted for part in joined.values if isinstance(part, ast.Constant)]
    return {word for part in parts for word in OWN_WORDS.findall(part)} - TERMS


_YET = (
    "env/jax_plugin_differs gpu/acs_redirects gpu/cpus_far_from_gpu gpu/gpu_count_differs gpu/p2p_switched_off "
    "gpu/same_gpu_twice gpu/zombie_holds_gpu job/script_missing name/own_name_is_loopback net/bond_degraded "
    "net/link_speed_differs port/few_local_ports port/port_refused"
)
YET = frozenset(f"rules/{name}.py" for name in _YET.split())
"""Rules whose evidence is a list in English, not `stated` yet; only fewer."""


def test_no_rule_makes_a_sentence_of_evidence_that_cannot_be_translated() -> None:
    calls = [(name, node) for name, tree in modules() for node in nodes(tree, ast.Call)]
    made = [(name, call) for name, call in calls if called(call) in {"Evidence", "evidence", "seen"}]
    assert len(made) > 20
    wrong = [f"{name}:{call.lineno}: {sorted(words)}" for name, call in made if (words := words_of(call))]
    assert not [row for row in wrong if row.partition(":")[0] not in YET], "\n".join(wrong)
    assert {row.partition(":")[0] for row in wrong} == YET, "these are done: leave them out"


def test_a_sentence_is_said_in_the_reader_s_language_and_a_quoted_line_as_it_is() -> None:
    form = "process {pid}: {state}, phase {phase}[[, {cpu} of a processor]][[, beacon {age} s ago]][[, at {site}]]"
    item = stated("rank 3", form, pid=77, state="stopped", phase="computing", cpu=None, age="4.0", site="train.py:9")
    assert item.text == "process 77: stopped, phase computing, beacon 4.0 s ago, at train.py:9"
    chinese = say_evidence(item, "zh")
    assert "进程 77" in chinese
    assert "train.py:9" in chinese
    assert not set("{[") & set(chinese)
    assert say_evidence(item, "en") == item.text
