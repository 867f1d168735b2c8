"""Run rules over a fleet: the one path from evidence to findings, live, offline and in tests."""

import logging
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.registry import JOB_PARTS, LAST_RESORT, Applies, Rule, load
from allready.judging.signs import SIGNS
from allready.model import (
    FactMissing,
    Finding,
    Fleet,
    Hit,
    Live,
    NotApplicable,
    NotChecked,
    PerNode,
    RunEvidence,
    Severity,
    UncheckedKind,
)
from allready.model.fill import UNKNOWN, fill, fill_steps
from allready.text.catalog import remedy_text
from allready.text.reasons import not_checked, reason

log = logging.getLogger(__name__)


class Outcome(Struct, frozen=True, kw_only=True):
    """What one rule answered."""

    code: str
    hits: tuple[Hit, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    crash: str | None = None

    @property
    def unchecked(self) -> dict[int | None, str]:
        """Node rank (None: the whole job) -> why the rule could not check it."""
        return {item.node: item.why for item in self.not_checked}

    @property
    def state(self) -> str:
        """hit, crashed, not_checked or clear (every node that can have the fact was looked at)."""
        if self.crash is not None:
            return "crashed"
        if self.hits:
            return "hit"
        return "not_checked" if self.not_checked else "clear"


def run(rule: Rule, fleet: Fleet, case: Analysis | None = None) -> Outcome:
    """Ask one rule; a rule that raises is a crash of ours, never an answer.

    Args:
        rule: to ask.
        fleet: all evidence.
        case: what was derived from it for other rules of the same judgement.
    """
    case = case or Analysis(fleet)
    if not _is_asked(rule, case):
        return Outcome(code=rule.code)
    arguments: dict[str, Any] = {}
    unchecked: tuple[NotChecked, ...] = ()
    per_node: dict[str, dict[int, Any]] = {}
    for need in rule.needs:
        if need.fact_type is Analysis:
            arguments[need.parameter] = case
            continue
        if not need.per_node:
            value = getattr(fleet, JOB_PARTS[need.fact_type])
            if value is None and not need.optional:
                if JOB_PARTS[need.fact_type] in fleet.inapplicable or need.fact_type in {RunEvidence, Live}:
                    return Outcome(code=rule.code)  # a job that is being checked left no ruins yet
                why = fleet.why_not.get(JOB_PARTS[need.fact_type], reason(UncheckedKind.PART_MISSING))
                return Outcome(code=rule.code, not_checked=(not_checked(rule.code, why),))
            arguments[need.parameter] = value
            continue
        have, missing = fleet.per_node(need.fact_type)
        if need.optional:
            arguments[need.parameter] = PerNode(have)
            continue
        per_node[need.parameter] = have
        unchecked += tuple(_reported(rule.code, missing, besides={item.node for item in unchecked}))
    if per_node:
        common = set.intersection(*(set(have) for have in per_node.values()))
        arguments |= {p: PerNode({n: v for n, v in have.items() if n in common}) for p, have in per_node.items()}
        if not common:
            return Outcome(code=rule.code, not_checked=unchecked)
    assert rule.body is not None
    try:
        hits = tuple(rule.body(**arguments))
        for hit in hits:
            fill(rule.message, hit.values), fill_steps(rule.remedies, hit.values)
    except Exception:
        log.exception("rule %s crashed", rule.code)
        return Outcome(code=rule.code, not_checked=unchecked, crash=traceback.format_exc(limit=-3))
    return Outcome(code=rule.code, hits=hits, not_checked=unchecked)


def _is_asked(rule: Rule, case: Analysis) -> bool:
    """Whether it applies here, and nothing shows that another rule explains more."""
    where = Applies.LIVE if case.live is not None else Applies.OFFLINE if case.has_run else Applies.CHECK
    return where in rule.applies and not any(SIGNS[sign](case) for sign in rule.unless)


def _reported(code: str, missing: dict[int, FactMissing], *, besides: set[int | None]) -> Iterator[NotChecked]:
    for node, fact in missing.items():
        if node not in besides and not isinstance(fact, NotApplicable):
            yield not_checked(code, reason(UncheckedKind.FACT_MISSING, why=fact.why), node=node)


def judge(fleet: Fleet, rules: Iterable[Rule] | None = None) -> tuple[tuple[Finding, ...], tuple[NotChecked, ...]]:
    """All findings of all rules, the one that explains most first, and what could not be looked at.

    A crash of a rule is reported as not checked, so that it can never pass for healthy.
    """
    chosen = {rule.code: rule for rule in (load().values() if rules is None else rules)}
    findings: list[Finding] = []
    unchecked: list[NotChecked] = []
    case = Analysis(fleet)
    for rule in chosen.values():
        outcome = run(rule, fleet, case)
        findings += [_finding(rule, hit) for hit in outcome.hits]
        unchecked += outcome.not_checked
        if outcome.crash is not None:
            last_line = outcome.crash.strip().splitlines()[-1]
            unchecked.append(not_checked(rule.code, reason(UncheckedKind.RULE_CRASHED, error=last_line)))
    return in_order(findings, chosen), tuple(unchecked)


def crashed(unchecked: Iterable[NotChecked]) -> tuple[NotChecked, ...]:
    """Rules that raised: after one of these nothing may be called healthy."""
    return tuple(item for item in unchecked if item.kind is UncheckedKind.RULE_CRASHED)


def in_order(findings: Iterable[Finding], rules: Mapping[str, Rule]) -> tuple[Finding, ...]:
    """The one that explains most first; every finding's code is in `rules`.

    What is said for want of a cause stays out beside a cause, and a launcher's word on an end is information beside a
    finding that says more of it; where it does not say whose end, beside any.
    """
    told = list(findings)
    found = [replace(f, severity=Severity.INFO) if _is_restated(f, told, rules) else f for f in told]
    grave = [f for f in found if f.severity.weight >= Severity.ERROR.weight]
    if any(rules[f.code].area != LAST_RESORT and not _names_no_end(f, rules) for f in grave):
        found = [f for f in found if rules[f.code].area != LAST_RESORT]
    elif any(rules[f.code].area == LAST_RESORT for f in grave):
        found = [replace(f, severity=Severity.INFO) if _names_no_end(f, rules) else f for f in found]
    vague = _vague(found, rules)
    return tuple(
        sorted(
            found,
            key=lambda f: (
                -f.severity.weight,
                rules[f.code].depth,
                id(f) in vague,
                -f.confidence.weight,
                f.code,
                f.culprits.nodes,
            ),
        )
    )


def _is_restated(finding: Finding, findings: Sequence[Finding], rules: Mapping[str, Rule]) -> bool:
    """Whether another finding, at least as severe and deeper, tells the same: one of an error, or one of an end."""
    rule = rules[finding.code]
    if not rule.restates or finding.severity.weight < Severity.WARNING.weight:
        return False
    return any(
        other.severity.weight >= finding.severity.weight
        and rules[other.code].depth < rule.depth
        and not rules[other.code].restates
        and rules[other.code].area != LAST_RESORT
        and (other.severity.weight >= Severity.ERROR.weight or other.fault_class is finding.fault_class)
        for other in findings
    )


def _names_no_end(finding: Finding, rules: Mapping[str, Rule]) -> bool:
    """A launcher's word that somebody ended, without a word on who: any other clue says more."""
    return rules[finding.code].restates and not finding.culprits and not _names(finding)


OBJECTS = {"peer", "host", "address", "remote", "device", "task", "module", "library"}
"""Values by which a sentence names what it is about; not who wrote a line, which is known of nearly all."""


def _vague(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> set[int]:
    """Lines that name nothing, after one as deep and of the same class that says with whom or what it went wrong."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        if rules[finding.code].area.startswith("log_"):
            alike.setdefault((finding.severity, rules[finding.code].depth, finding.fault_class), []).append(finding)
    return {
        id(f)
        for group in alike.values()
        for f in group
        if not _names(f) and any(_names(g) and _is_before(g, f) for g in group)
    }


def _names(finding: Finding) -> bool:
    is_named = any(finding.values.get(name, UNKNOWN) not in {UNKNOWN, ""} for name in OBJECTS)
    return is_named or bool(finding.culprits)


def _is_before(one: Finding, other: Finding) -> bool:
    """By their first lines: in one file by these, else by time; not told is not before."""
    first = [(f.evidence[0].source.rpartition(":") if f.evidence else ("", "", "")) for f in (one, other)]
    if first[0][0] == first[1][0] and all(line.isdecimal() for _, _, line in first):
        return int(first[0][2]) < int(first[1][2])
    return one.fault_time is not None and other.fault_time is not None and one.fault_time < other.fault_time


def _finding(rule: Rule, hit: Hit) -> Finding:
    remedies = fill_steps(rule.remedies, hit.values)
    return Finding(
        code=rule.code,
        severity=hit.severity or rule.severity,
        fault_class=hit.fault_class or rule.fault_class,
        confidence=hit.confidence,
        culprits=hit.culprits,
        message=fill(rule.message, hit.values),
        remedy=remedy_text(remedies, "en"),
        remedies=remedies,
        evidence=hit.evidence,
        title=rule.title,
        values={name: str(value) for name, value in hit.values.items()},
        fault_time=hit.fault_time,
    )
