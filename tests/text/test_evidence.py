"""Sentences of evidence: every one that a rule can make has its Chinese, with the same values."""

import ast
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache

import msgspec
import pytest

from allready.judging.engine import finding_of
from allready.judging.loading import load
from allready.judging.stated import said, stated
from allready.model import Evidence, Hit, Phrase
from allready.model.fill import placeholders
from allready.text.catalog import evidence_forms, say, say_evidence, say_source
from tests.text.sources import nodes, trees, walked

FOLDERS = ("judging/", "rules/", "text/choices.py")
REASONS = (
    "bundle/", "messaging/", "facts/", "agent/", "launch/ranks.py", "cli/", "evidence/", "jax/", "lab/", "live/",
    "model/facts.py", "model/fleet.py", "preflight/", "report/facts_table.py", "report/matrix.py",
)  # fmt: skip
"""Where it is said why a fact is not known, or a source could not be read."""
OWN_LETTERS = re.compile(r"[A-Za-z]")
OWN_WORDS = re.compile(r"[A-Za-z]{4,}")
TERMS = frozenset({"rank"})
"""Terms that Chinese texts keep."""
FIRST_FORM = {"stated": 1, "said": 0, "Phrase": 0}
"""Where their calls have the form."""
FIRST_REASON = {
    "said": 0, "Phrase": 0, "FactUnavailable": 0, "FactMissing": 0, "NotApplicable": 0, "none": 0, "DamagedError": 0,
    "TooMuchError": 0, "RefusedError": 0, "BundleError": 0, "LeftOutError": 0, "LabError": 0, "StatedError": 0,
    "RanksError": 0,
}  # fmt: skip
PASSED_ON = frozenset({"form", "why", "template", "CUT", "WRONG"})
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
    if isinstance(node, ast.Subscript):
        return strings(node.value, known)
    return known.get(node.id, set()) if isinstance(node, ast.Name) else set()


@cache
def assigned(tree: ast.Module) -> dict[str, set[str]]:
    """Names of constant texts in one module, and what they can be."""
    known: dict[str, set[str]] = {}
    for node in walked(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Name):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
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


@cache
def forms() -> tuple[tuple[str, set[str]], ...]:
    """Where evidence is stated, and its possible forms."""
    found = [form for name, tree in modules() for form in forms_of(name, tree, FIRST_FORM)]
    others = ((name, tree) for name, tree in trees().items() if name.startswith(REASONS))
    return (*found, *(form for name, tree in others for form in forms_of(name, tree, FIRST_REASON)))


def forms_of(name: str, tree: ast.Module, first: Mapping[str, int]) -> Iterator[tuple[str, set[str]]]:
    """Those of one module, by the calls that have a form and where they have it."""
    known = assigned(tree)
    for node in nodes(tree, ast.Call):
        given = [k.value for k in node.keywords if k.arg == "form" and (first is FIRST_FORM or called(node) in first)]
        if (at := first.get(called(node))) is not None:
            given = given or node.args[at : at + 1]
        found = strings(given[0], known) if given else set()
        if found or (given and not is_passed_on(given[0])):
            yield f"{name}:{node.lineno}", found


def is_passed_on(node: ast.expr) -> bool:
    """Whether a form was given elsewhere, where it is found."""
    return getattr(node, "id", getattr(node, "attr", "")) in PASSED_ON or called(node) == "said"


def test_the_chinese_of_evidence_and_reasons_has_the_same_values() -> None:
    chinese = evidence_forms("zh")
    found = forms()
    texts = {text for _, some in found for text in some}
    assert len(texts) > 50
    wrong = [f"{where}: its form is not found" for where, some in found if not some]
    wrong += [f"no rule says: {text}" for text in chinese if text not in texts]
    wrong += [f"other values: {a}" for a, b in chinese.items() if placeholders(a) != placeholders(b)]
    assert not wrong, "\n".join(wrong)


def test_forms_without_chinese_are_listed_and_a_release_has_none() -> None:
    """Such a sentence is shown in English: a contribution needs no Chinese."""
    chinese = evidence_forms("zh")
    said = ((place, form) for place, some in forms() for form in sorted(some))
    missing = [
        f"{place}: {form}"
        for place, form in said
        if form not in chinese and OWN_LETTERS.search(re.sub(r"\{\w+\}", "", form))
    ]
    if os.environ.get("ALLREADY_RELEASE") == "1":
        assert not missing, "\n".join(["text/zh_CN/rules/evidence.toml, a release needs the Chinese of:", *missing])
    elif missing:
        pytest.skip(f"shown in English until a release, {len(missing)}: {'; '.join(missing[:10])}")


def words_of(call: ast.Call) -> set[str]:
    """Words of ours in the text of an `Evidence(...)` or an `evidence(origin, text)`."""
    texts = [k.value for k in call.keywords if k.arg == "text"] + call.args[1:2]
    formatted = [j for text in texts for j in ast.walk(text) if isinstance(j, ast.JoinedStr)]
    parts = [str(part.value) for joined in formatted for part in joined.values if isinstance(part, ast.Constant)]
    return {word for part in parts for word in OWN_WORDS.findall(part)} - TERMS


def test_no_rule_makes_a_sentence_of_evidence_that_cannot_be_translated() -> None:
    calls = [(name, node) for name, tree in modules() for node in nodes(tree, ast.Call)]
    made = [(name, call) for name, call in calls if called(call) in {"Evidence", "evidence", "seen"}]
    assert len(made) > 20
    wrong = [f"{name}:{call.lineno}: {sorted(words)}" for name, call in made if (words := words_of(call))]
    assert not wrong, "\n".join(wrong)


def test_a_sentence_is_said_in_the_reader_s_language_and_a_quoted_line_as_it_is() -> None:
    form = "process {pid}: {state}, phase {phase}[[, {cpu} of a processor]][[, beacon {age} s ago]][[, at {site}]]"
    item = stated("rank 3", form, pid=77, state="stopped", phase="computing", cpu=None, age="4.0", site="train.py:9")
    assert item.text == "process 77: stopped, phase computing, beacon 4.0 s ago, at train.py:9"
    chinese = say_evidence(item, "zh")
    assert "进程 77" in chinese
    assert "train.py:9" in chinese
    assert not set("{[") & set(chinese)
    assert say_evidence(item, "en") == item.text


def test_phrases_inside_values_and_sources_are_said_in_the_readers_language_also_after_json() -> None:
    how_often = said("{num} of {all} times[[, {where}]]", num=2, all=3, where=said("round {round}", round=1))
    link = said("rank {a} and rank {b}[[ ({how_often})]]", a=4, b=5, how_often=how_often)
    item = stated(link, "{variable}={value}: {why}", variable="V", value="x", why=(link, said("{num} more", num=7)))
    again = msgspec.json.decode(msgspec.json.encode(item), type=Evidence)
    assert again == item
    assert item.source == "rank 4 and rank 5 (2 of 3 times, round 1)"
    assert item.text == f"V=x: {item.source}; 7 more"
    source = "rank 4 与 rank 5（3 次中的 2 次，第 1 轮）"
    assert say_source(again, "zh") == source
    assert say_evidence(again, "zh") == f"V=x: {source}；另有 7 个"
    assert (say_source(again, "en"), say_evidence(again, "en")) == (item.source, item.text)


def test_a_finding_says_its_phrases_in_message_and_remedy() -> None:
    rule = load()["BEN005"]
    links = (said("rank {rank} and all others[[ ({rail})]]", rank=4, rail="eth0"),)
    found = finding_of(rule, Hit(values={"links": links, "num_good": 3}))
    assert "rank 4 and all others (eth0)" in found.message
    assert found.values["links"] == "rank 4 and all others (eth0)"
    assert "rank 4 与其他所有 rank（eth0）" in say(found, "message", "zh")


def test_a_template_of_a_report_from_elsewhere_is_never_filled() -> None:
    hostile = Phrase("{a:>999999999}", {"a": "x"})
    item = Evidence(source="s", text="t", form=hostile.form, values={"a": "x"}, phrases={"source": (hostile,)})
    for language in ("en", "zh"):
        assert (say_source(item, language), say_evidence(item, language)) == ("s", "t")


def test_a_report_from_elsewhere_cannot_make_a_text_grow() -> None:
    twice: Phrase | str = "x"
    deep: Phrase | str = "x"
    for _ in range(60):
        twice, deep = Phrase("{a}{b}{a}", {"a": twice, "b": "y"}), Phrase("{a}", {"a": deep})
    assert isinstance(twice, Phrase)
    assert isinstance(deep, Phrase)
    for phrase in (twice, deep):
        item = Evidence(
            source="s", text="t", form="{a}", values={"a": "x"}, phrases={"source": (phrase,), "a": (phrase,)}
        )
        assert (say_source(item, "zh"), say_evidence(item, "zh")) == ("s", "x")
