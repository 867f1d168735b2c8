"""Every sentence is one also where values are not known, in both languages.

Which values may be unknown is derived: of a signature from what its patterns surely catch, of a rule from what its
module, or a helper of its area, gives as None, and of all from the optional parts that they have.
"""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

from msgspec import Struct

from allready.docs import own_steps
from allready.judging.loading import load as load_rules
from allready.judging.registry import Rule, placeholders
from allready.model import Phrase
from allready.model.fill import UNKNOWN, UNNAMED_PROCESS, fill, parts, plain, steps_of
from allready.signatures import load as load_signatures
from allready.text import catalog
from allready.text.catalog import evidence_forms, say_phrase
from allready.text.steps import NAMES, written
from allready.text.ui import entries
from tests.text.sources import ROOT, nodes, trees
from tests.text.test_evidence import FIRST_FORM, assigned, called, modules, strings

Names = frozenset[str]
RULES = load_rules()
HINTED = {"hint", "reporter"}
"""Values of a signature's finding that no pattern catches: the former is always there, the latter is a step's place."""
END = re.compile(
    r"\b(?:at|in|of|to|on|for|with|by|from|and|or|the|a|an|than|number|port)(?=$|[,;:.)])|[,;:，；：（(、]$"
)
MARKS = re.compile(
    r"[,;:，；：、]\s*[,;:，；：、]|\(\s*\)|（\s*）|\s[,;:.)），；：。]|  |^\s|\s$|^[,;:，；：]|\[\[|\]\]|\|"
)
CHINESE = "[\u4e00-\u9fff]"
BLANKS = re.compile(f"{CHINESE} (?={CHINESE})|{CHINESE}(?=[A-Za-z0-9])|[A-Za-z0-9](?={CHINESE})")
WORDS = re.compile("unknown|未知")


class Template(Struct, frozen=True):
    """A sentence in two languages; `sets`: names that may be unknown together, where that is derived."""

    place: str
    texts: tuple[str, ...]
    may_be: Names
    sets: tuple[Names, ...] = ()


def certain(source: str) -> Names:
    """The groups of a pattern that catch something, whenever it matches.

    A group is certain if the pattern asks for it: it is found by leaving out what is optional, branch for branch.
    """
    kinds, parser = import_module("re._constants"), import_module("re._parser")
    parsed = parser.parse(source)
    names = {number: name for name, number in parsed.state.groupdict.items()}

    def of(items: Any) -> set[str]:
        found: set[str] = set()
        for kind, argument in items:
            match kind, argument:
                case kinds.SUBPATTERN, (number, _, _, inner):
                    found |= of(inner) | ({names[number]} if number in names and inner.getwidth()[0] else set())
                case kinds.BRANCH, (_, branches):
                    found |= set.intersection(*map(of, branches))
                case ((kinds.MAX_REPEAT | kinds.MIN_REPEAT | kinds.POSSESSIVE_REPEAT), (least, _, inner)) if least:
                    found |= of(inner)
                case kinds.ATOMIC_GROUP, inner:
                    found |= of(inner)
                case kinds.ASSERT, (direction, inner) if direction > 0:
                    found |= of(inner)
        return found

    return frozenset(of(parsed))


def may_be_nothing(node: ast.expr) -> bool:
    """Whether an expression is None in some case."""
    match node:
        case ast.IfExp(body=one, orelse=other):
            return may_be_nothing(one) or may_be_nothing(other)
        case ast.BoolOp(op=ast.Or(), values=[*_, last]):
            return may_be_nothing(last)
        case ast.Constant(value=value):
            return value is None
        case ast.Call(func=ast.Name(id="next"), args=[_, default]):
            return may_be_nothing(default)
        case ast.Call(func=ast.Attribute(attr="get"), args=[_, *default]):
            return not default or may_be_nothing(default[0])
    return False


@cache
def unknown_of(module: str, rule: str = "") -> Names:
    """Names of values for which a module, or of it what a rule and its helpers are, may give None; not those of a form
    of evidence, which has its own."""
    tree = part_of(trees()[module], rule) if rule else trees()[module]
    rows = [(node.keys, node.values) for node in nodes(tree, ast.Dict)]
    given = [
        (key.value, value) for row in rows for key, value in zip(*row, strict=True) if isinstance(key, ast.Constant)
    ]
    calls = [node for node in nodes(tree, ast.Call) if called(node) not in FIRST_FORM]
    given += [(k.arg, k.value) for node in calls for k in node.keywords if k.arg is not None]
    return frozenset(str(name) for name, value in given if may_be_nothing(value))


def part_of(tree: ast.Module, rule: str) -> ast.Module:
    """The function of a rule, and what of its file it uses: the other rules of the file say other sentences."""
    named = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    waiting, used = [rule], set()
    while waiting:
        name = waiting.pop()
        used.add(name)
        words = {n.id for n in ast.walk(named[name]) if isinstance(n, ast.Name)}
        waiting += (words & named.keys()) - used
    return ast.Module(
        body=[n for n in tree.body if getattr(n, "name", None) not in named.keys() - used], type_ignores=[]
    )


def own_module(rule: Rule) -> str:
    assert rule.body is not None
    return Path(inspect.getsourcefile(rule.body) or "").relative_to(ROOT).as_posix()


def modules_of(rule: Rule) -> Iterator[str]:
    """The rule's own module and the helpers that it imports: of its area, and those that fill in a whole hit."""
    waiting, seen = [own_module(rule)], set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        yield module
        for node in nodes(trees()[module], ast.ImportFrom):
            other = f"{(node.module or '').removeprefix('allready.').replace('.', '/')}.py"
            is_helper = "/_" in other or other == "judging/mismatch.py"
            if is_helper and other in trees() and other not in seen:
                waiting.append(other)


def optional(texts: Iterable[str]) -> Names:
    """Names that only optional parts have."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for alternatives in (some for text in texts for some in parts(text)):
        names[len(alternatives) > 1] |= {name for one in alternatives for name in placeholders(one)}
    return frozenset(names[True] - names[False])


def template(place: str, texts: Iterable[str], may_be: Names, sets: Iterable[Names] = ()) -> Template:
    every = tuple(text for text in texts if text)
    here = frozenset().union(*map(placeholders, every))
    return Template(place, every, (may_be & here) | optional(every), tuple({some & here for some in sets}))


@cache
def templates() -> tuple[Template, ...]:
    """Every message, every explanation of a remedy, every form of evidence; a command is no sentence."""
    caught = {
        s.code: tuple(frozenset().union(*(line.groups for line in s.lines)) - certain(line.source) for line in s.lines)
        for s in load_signatures().values()
        if s.code is not None
    }
    found: list[Template] = []
    for code, rule in RULES.items():
        chinese = entries("zh", rule.area).get(code, {})
        texts = [(code, (rule.message, str(chinese.get("message", ""))))]
        others = iter(steps_of(chinese))
        texts += [
            (f"{code} step", (s.explanation, getattr(next(others, None), "explanation", ""))) for s in own_steps(rule)
        ]
        sets = caught.get(code, ())
        needed = frozenset(n for _, both in texts for text in both for n in placeholders(text)) - {"who", *HINTED}
        groups = frozenset(
            n for s in load_signatures().values() if s.code == code for line in s.lines for n in line.groups
        )
        sets = tuple(some | (needed - groups) for some in sets)
        may_be = (
            frozenset().union(*sets)
            if sets
            else frozenset().union(
                *(unknown_of(m, rule.name if m == own_module(rule) else "") for m in modules_of(rule))
            )
        )
        found += [template(place, both, may_be, sets) for place, both in texts]
    found += [
        template(name, (written(name).explanation, written(name, "zh").explanation), Names(("rank",))) for name in NAMES
    ]
    found += [template("evidence", both, frozenset()) for both in evidence_forms("zh").items()]
    return tuple(found)


def subsets(one: Template) -> Iterator[Names]:
    """Names that may be unknown together: alone, in pairs, and all that one line leaves open."""
    pairs = (map(frozenset, combinations(sorted(one.may_be), num)) for num in (1, 2))
    return iter({*(some for sets in pairs for some in sets), *one.sets} - {frozenset()})


def values_of(texts: Iterable[str], unknown: Names) -> dict[str, str]:
    names = frozenset().union(*map(placeholders, texts))
    return {name: UNKNOWN if name in unknown else f"{name}7" for name in names}


def in_chinese(text: str) -> Callable[[dict[str, str]], str]:
    """The text as Chinese reports have it."""
    return lambda values: catalog._fill(text, values, "zh")


def problems(text: str, whole: str, asks: int) -> list[str]:
    """What is wrong with a sentence that is right where everything is known (`whole`)."""
    found = [f"brackets: {a}{b}" for a, b in ("()", "（）", "“”") if text.count(a) != text.count(b)]
    if text.count("?") + text.count("？") > asks:
        found.append("a question mark")
    for name, pattern in (("marks", MARKS), ("end", END), ("blanks", BLANKS), ("unknown", WORDS)):
        more = Counter(pattern.findall(text)) - Counter(pattern.findall(whole))
        found += [f"{name}: {what!r}" for what in more]
    return found


def test_every_sentence_is_one_whatever_is_not_known() -> None:
    wrong, num = [], 0
    for one in templates():
        for text in one.texts:
            say = in_chinese(text) if re.search(CHINESE, text) else lambda values, text=text: fill(text, values)
            whole = say(values_of([text], frozenset()))
            asks = plain(text).count("?") + plain(text).count("？")
            for unknown in subsets(one):
                num += 1
                said = say(values_of([text], unknown))
                wrong += [f"{one.place}: {sorted(unknown)}: {what}: {said}" for what in problems(said, whole, asks)]
    assert num > 2_000
    assert not wrong, "what may be unknown stands in [[ ]]:\n" + "\n".join(wrong)


def test_a_sentence_without_its_writer_is_one() -> None:
    wrong = []
    for one in templates():
        for text in one.texts:
            if "who" not in placeholders(text):
                continue
            is_chinese = re.search(CHINESE, text) is not None
            say = in_chinese(text) if is_chinese else lambda values, text=text: fill(text, values)
            values = values_of([text], frozenset())
            said, whole = say(values | {"who": UNKNOWN}), say(values)
            whole = whole.replace("who7", "某个进程" if is_chinese else UNNAMED_PROCESS)
            asks = whole.count("?") + whole.count("？")
            wrong += [f"{one.place}: {what}: {said}" for what in problems(said, whole, asks)]
    assert not wrong, "\n".join(wrong)


def test_what_is_wrong_with_a_sentence_is_found() -> None:
    whole = "rank 1 failed on port 80 (pid 7); see gpu1, GPU 0"
    for text in (
        "rank 1 failed on port", "rank 1 failed ()", "rank 1 failed (pid 7", "rank 1 failed on ; see gpu1",
        "rank 1  failed",
        "rank 1 failed on port ?", "rank 1 failed on an unknown port", "rank 1 failed, ; see gpu1", "; see gpu1",
        "rank 1 failed,", "rank 1 failed[[ x]]",
    ):  # fmt: skip
        assert problems(text, whole, 0), text
    assert not problems("rank 1 failed; see gpu1", whole, 0)


def test_code_says_which_values_a_rule_may_not_know() -> None:
    assert {"addresses", "family"} <= unknown_of("rules/name/family_mismatch.py", "family_mismatch")
    source = "f(a=g or None, b=1 if g else None, c=next(g, None), d=g.get(0), e=g.get(0, 1), f=g, g=g or 1)"
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call)
    assert [k.arg for k in call.keywords if may_be_nothing(k.value)] == ["a", "b", "c", "d"]


def test_patterns_say_which_values_are_certain() -> None:
    assert certain(r"(?P<a>\d{1,3})(?: (?P<b>x))?(?:(?P<c>y) 1|(?P<c2>z)|w)(?P<d>q?)") == {"a"}
    assert certain(r"(?:(?P<a>x) 1|(?=(?P<a2>y)))(?P<e>z){1,2}") == {"e"}


def test_a_value_of_evidence_that_may_be_unknown_is_optional() -> None:
    """Where a call may give None, the form has the value in an optional part only."""
    wrong, num = [], 0
    for name, tree in modules():
        known = assigned(tree)
        for node in nodes(tree, ast.Call):
            at = FIRST_FORM.get(called(node))
            if at is None or len(node.args) <= at:
                continue
            for keyword in node.keywords:
                if not may_be_nothing(keyword.value):
                    continue
                for form in strings(node.args[at], known):
                    always = "".join(alternatives[0] for alternatives in parts(form) if len(alternatives) == 1)
                    num += 1
                    if keyword.arg in placeholders(always):
                        wrong.append(f"{name}:{node.lineno}: {keyword.arg} in “{form}”")
    assert num > 10
    assert not wrong, "\n".join(wrong)


def test_a_phrase_with_a_chinese_value_has_no_blank_beside_it() -> None:
    phrase = Phrase(
        "rank {rank}: {phase}[[ at {site}]], pid {pid}", {"rank": "1", "phase": "running", "site": "?", "pid": "7"}
    )
    assert "  " not in say_phrase(phrase, "zh")
