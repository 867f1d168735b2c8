"""Every signature of every family: its anchor, its patterns, its example, its decoys and its English text."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from allready.judging.loading import load as load_rules
from allready.judging.registry import HEADINGS, placeholders
from allready.model import Event, FaultClass, Origin, RemedyStep, Role, Severity
from allready.model.fill import agreeing, placeholders_of
from allready.signatures import load, of_line
from allready.signatures.case import Case
from allready.signatures.conditions import hint_of
from allready.signatures.table import FAMILIES, LinePattern, Signature, anchors
from allready.text.steps import resolved
from tests.cases import cases
from tests.clock import cpu_s

SIGNATURES = list(load().values())
FINDINGS = [signature for signature in SIGNATURES if signature.code is not None]
LAUNCHER_PREFIXES = ("", "[default0]:", "0: ", "[1,0]<stdout>:", "worker-3 | ")
"""What launchers put before a line; readers take it off, and the patterns do not depend on that."""

TEXT_SIZE = 20_000
MAX_CPU_S = 0.01
MAX_TIMES_OF_A_QUARTER = 8
LINE_SIZE = 4_000
MAX_LINE_S = 0.006
"""Four times the text takes four times as long, or sixteen times where the time is quadratic."""
SHORTEST_HEADING_TEXT = 6
ANCHORS = frozenset(anchors())


def name_of(signature: Signature) -> str:
    return signature.id


def caught(text: str, wanted: Signature) -> dict[str, str] | None:
    for signature, match in of_line(text):
        if signature.id == wanted.id:
            return values_of(match)
    return None


def values_of(match: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in match.groupdict().items() if value is not None}


def groups(signature: Signature) -> set[str]:
    return {name for line in signature.lines for name in line.pattern.groupindex}


def headings(page: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^## (.+)$", page, flags=re.MULTILINE))


def text_below(page: str, heading: str) -> str:
    return page.partition(f"## {heading}")[2].partition("\n## ")[0].strip()


def test_there_is_a_table_for_each_family() -> None:
    assert {signature.family for signature in SIGNATURES} == set(FAMILIES)


@cases("signature", SIGNATURES, ids=name_of)
def test_examples_anchors_and_decoys_are_known_for_what_they_are(signature: Signature) -> None:
    assert_examples_are_known(signature)
    assert_each_pattern_matches_its_own_example(signature)
    assert_anchors_are_in_the_examples(signature)
    assert_no_line_without_its_anchor_is_meant(signature)
    for decoy in signature.decoys:
        assert caught(decoy, signature) is None, decoy
    assert signature.decoys or signature.code is None, "every finding has a decoy"


def assert_examples_are_known(signature: Signature) -> None:
    for line in signature.lines:
        for prefix in LAUNCHER_PREFIXES:
            first = next(of_line(prefix + line.example), None)
            assert first is not None, (prefix, line.example)
            assert first[0].id == signature.id, (prefix, line.example)
            assert values_of(first[1]) == dict(line.values), (prefix, line.example)


def assert_each_pattern_matches_its_own_example(signature: Signature) -> None:
    """Not only another pattern of the same signature."""
    for line in signature.lines:
        match = line.pattern.search(line.example)
        assert match is not None, line.example
        assert values_of(match) == dict(line.values), line.example


def assert_anchors_are_in_the_examples(signature: Signature) -> None:
    for line in signature.lines:
        assert line.anchor in line.example
        assert not re.search(r"\d", line.anchor)
        assert line.anchor in ANCHORS


def assert_no_line_without_its_anchor_is_meant(signature: Signature) -> None:
    """The anchor is really in every matching line: a pattern that matches without it would be found by chance only."""
    for line in signature.lines:
        without = line.example.replace(line.anchor, "#" * len(line.anchor))
        assert line.pattern.search(without) is None, without


@pytest.mark.thorough
@cases("signature", SIGNATURES, ids=name_of)
def test_patterns_need_linear_time(signature: Signature) -> None:
    for line in signature.lines:
        assert_linear(line)


def assert_linear(line: LinePattern) -> None:
    """Lines come from any rank: letters, digits and spaces, the anchor again and again, the example again and again."""
    repeated = ("a", "1", " ", line.anchor, line.anchor + " ", line.example, line.example[: len(line.example) * 2 // 3])
    for part in repeated:
        text = (part * (TEXT_SIZE // len(part) + 1))[:TEXT_SIZE]
        # Compared with itself where it took long: another machine, or a busy one, needs a multiple of the time.
        took_s = cpu_s(lambda: line.pattern.search(text), enough_s=MAX_CPU_S)  # noqa: B023 - called at once
        if took_s >= MAX_CPU_S:
            quarter = text[: TEXT_SIZE // 4]
            assert took_s < MAX_TIMES_OF_A_QUARTER * cpu_s(lambda: line.pattern.search(quarter)), part[:60]  # noqa: B023


@pytest.mark.thorough
@cases("signature", SIGNATURES, ids=name_of)
def test_no_line_as_long_as_one_may_be_takes_long(signature: Signature) -> None:
    """A bounded repeat before what an expression is known by costs its bound at every letter: hundreds of times as much
    as reading them, in every line of a log that a rank made for it."""
    for line in signature.lines:
        for text in hostile(line):
            took_s = cpu_s(lambda: line.pattern.search(text), enough_s=MAX_LINE_S)  # noqa: B023 - called at once
            assert took_s < MAX_LINE_S, text[:60]


def hostile(line: LinePattern) -> Iterator[str]:
    """Lines of 4 kB in which the expression begins everywhere and ends nowhere: runs of what names, numbers and lists
    are made of, and of prefixes of the example, around the anchor."""
    before, anchor, _ = line.example.partition(line.anchor)
    prefixes = (line.example[: len(line.example) // 2], before, line.anchor, line.example)
    units = ("a", "_", "1", " ", "a.", "a ", "a-", "1 ", "a:", "a/", "[a", "(a", "0x1", '"a', "'a", "a,", "a=")
    for unit in (*units, *prefixes):
        if unit:
            run = (unit * (LINE_SIZE // len(unit) + 1))[:LINE_SIZE]
            yield f"{run}{anchor} {anchor} {run}"
            yield before + anchor + run
            yield run + line.example[len(before) :] + run


@cases("signature", FINDINGS, ids=name_of)
def test_a_finding_has_its_form_and_accuses_whom_it_may(signature: Signature) -> None:
    assert_the_text_uses_what_the_patterns_catch(signature)
    assert_title_message_and_remedy_have_their_form(signature)
    assert_the_english_page_has_the_four_parts(signature)
    assert_consequences_are_never_a_fault(signature)
    assert_whoever_is_blamed_is_named_by_a_pattern(signature)
    assert_records_of_those_who_waited_accuse_nobody(signature)


def assert_the_text_uses_what_the_patterns_catch(signature: Signature) -> None:
    wanted = placeholders(signature.message) | placeholders_of(signature.steps)
    assert wanted <= groups(signature) | {"who", "reporter"} | set(hint_of(signature.id, ""))
    assert placeholders(signature.title) == set()
    for template in (signature.message, *texts_of(signature.steps)):
        agreeing(template, {}).format_map(dict.fromkeys(wanted, "x"))


def assert_title_message_and_remedy_have_their_form(signature: Signature) -> None:
    assert not signature.title.endswith(".")
    assert not signature.message.endswith(".")
    assert "\n" not in signature.title + signature.message + "".join(texts_of(signature.steps))
    first = re.sub(r"^\W+", "", signature.message)[:1]
    assert first.islower() or not re.match(r"[A-Z][a-z]+ ", signature.message) or _starts_with_a_name(signature.message)
    assert signature.steps
    assert all(step.explanation for step in resolved(signature.steps))


def texts_of(steps: Sequence[RemedyStep]) -> list[str]:
    return [text for step in steps for text in (step.explanation, step.command, step.where)]


def _starts_with_a_name(text: str) -> bool:
    return bool(re.match(r"(Slurm|Kubernetes|Ray|Lightning|Accelerate|DistributedDataParallel|NCCL|XLA|JAX)\b", text))


def assert_the_english_page_has_the_four_parts(signature: Signature) -> None:
    assert headings(signature.page) == HEADINGS
    assert all(len(text_below(signature.page, heading)) >= SHORTEST_HEADING_TEXT for heading in HEADINGS)


def test_no_two_findings_share_a_code() -> None:
    codes = Counter(signature.code for signature in FINDINGS)
    assert {code for code, number in codes.items() if number > 1} == set()


def test_no_code_belongs_to_a_rule_of_another_area() -> None:
    taken = {code for code, rule in load_rules().items() if not rule.area.startswith("log_")}
    assert taken & {signature.code for signature in FINDINGS} == set()


def test_one_prefix_of_codes_is_one_family() -> None:
    families: dict[str, set[str]] = {}
    for signature in FINDINGS:
        families.setdefault(str(signature.code)[:3], set()).add(signature.family)
    assert {prefix: names for prefix, names in families.items() if len(names) > 1} == {}


def assert_consequences_are_never_a_fault(signature: Signature) -> None:
    if signature.role in {Role.CASCADE, Role.TEARDOWN, Role.HARMLESS}:
        assert signature.severity is Severity.INFO
        assert signature.culprit not in {"node", "ranks"}, "whoever writes it is a victim"
        assert not signature.variables


def assert_whoever_is_blamed_is_named_by_a_pattern(signature: Signature) -> None:
    if signature.culprit in {"peer", "ranks"}:
        assert signature.culprit in groups(signature)


@cases("signature", [s for s in SIGNATURES if s.cases], ids=name_of)
def test_cases_ask_for_what_the_patterns_catch_and_change_something(signature: Signature) -> None:
    for case in signature.cases:
        assert set(case.values) <= groups(signature)
        assert case.severity is not signature.severity
        assert case.fault_class is not signature.fault_class
        assert case.role is not signature.role
        others = {case.beside, case.without} - {""}
        assert case.text or case.front or case.values or case.progress or others
        assert others <= {s.id for s in SIGNATURES}
        for source in (case.text, case.front, *case.values.values()):
            re.compile(source)


def test_all_conditions_of_a_case_must_hold() -> None:
    case = Case(text="IPv6", values={"id": "a.*"}, severity=Severity.WARNING)
    assert case.holds("on IPv6", {"id": "abc"})
    assert not case.holds("on IPv4", {"id": "abc"})
    assert not case.holds("on IPv6", {"id": "bc"})
    assert not case.holds("on IPv6", {})


def test_a_line_that_the_process_got_over_is_what_the_case_says() -> None:
    told = replace(FINDINGS[0], role=Role.ROOT, cases=(Case(progress=True, role=Role.HARMLESS),))
    assert told.role_of("x", {}, "", has_progress=True) is Role.HARMLESS
    assert told.role_of("x", {}, "") is Role.ROOT


def test_a_case_may_ask_for_other_lines_of_the_same_host_and_for_none_elsewhere() -> None:
    def line(host: str) -> Event:
        return Event(signature="a.b", origin=Origin(source="log", host=host), text="x", role=Role.ROOT)

    case = Case(beside="a.c", without="a.d", severity=Severity.WARNING)
    told = replace(FINDINGS[0], cases=(case,))
    assert told.case_of([line("n1")], {"a.c": [line("n1")]}) is case
    assert told.case_of([line("n1"), line("n2")], {"a.c": [line("n1")]}).severity is None
    assert told.case_of([line("n1")], {"a.c": [line("n1")], "a.d": [line("n2")]}).severity is None
    assert told.case_of([line("n1")]).severity is None


def test_what_a_finding_is_must_hold_for_all_its_lines_and_the_first_case_counts() -> None:
    one, two = Case(text="b", severity=Severity.INFO), Case(text="a", fault_class=FaultClass.DEAD)
    told = replace(FINDINGS[0], cases=(one, two))

    def said(*texts: str) -> Case:
        return told.case_of(Event(signature="x", origin=Origin(source="s"), text=text) for text in texts)

    assert (said("ab"), said("ab", "a"), said("ab", "b"), said("ab", "c"), said()) == (one, two, one, Case(), Case())


def test_what_one_line_may_be_is_settled_by_what_stands_before_it() -> None:
    told = load()["cuda.out_of_memory"]
    assert told.role_of("CUDA out of memory", {}, "2026-11-06 | WARNING | ") is Role.HARMLESS
    assert told.role_of("CUDA out of memory; WARNING", {}, "RuntimeError: ") is told.role


def assert_records_of_those_who_waited_accuse_nobody(signature: Signature) -> None:
    if signature.role is Role.RECORD and signature.family in {"torch", "store", "gloo", "jax", "elastic"}:
        assert signature.culprit == "none"
