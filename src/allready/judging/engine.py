"""Run rules over a fleet: the one path from evidence to findings, live, offline and in tests."""

import logging
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.arbiter import in_order
from allready.judging.loading import load_for
from allready.judging.registry import JOB_PARTS, Applies, Rule
from allready.judging.run_signs import by_signature
from allready.judging.signs import SIGNS
from allready.judging.values import hosts_of, processes_of
from allready.model.fill import fill, fill_steps, in_english, phrases_of
from allready.text.catalog import remedy_text
from allready.text.reasons import fact_missing, not_checked, reason

log = logging.getLogger(__name__)


class RuleOutcome(Struct, frozen=True, kw_only=True):
    """What one rule answered."""

    code: str
    hits: tuple[model.Hit, ...] = ()
    not_checked: tuple[model.NotChecked, ...] = ()
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


def run(rule: Rule, fleet: model.Fleet, case: Analysis | None = None) -> RuleOutcome:
    """Ask one rule; a rule that raises is a crash of ours, never an answer.

    Args:
        case: what was derived from it for other rules of the same judgement.
    """
    case = case or Analysis(fleet)
    if not any(_asked([rule], case)):
        return RuleOutcome(code=rule.code)
    return _run(rule, fleet, case)


def _run(rule: Rule, fleet: model.Fleet, case: Analysis) -> RuleOutcome:
    arguments: dict[str, Any] = {}
    unchecked: tuple[model.NotChecked, ...] = ()
    per_node: dict[str, dict[int, Any]] = {}
    for need in rule.needs:
        if need.fact_type is Analysis:
            arguments[need.parameter] = case
            continue
        if not need.per_node:
            part = JOB_PARTS[need.fact_type]
            value = getattr(fleet, part)
            if value is None and not need.optional:
                if part in fleet.inapplicable or need.fact_type in {
                    model.RunEvidence,
                    model.Live,
                    model.Settings,
                    model.RuntimeFailure,
                }:
                    return RuleOutcome(code=rule.code)  # a job that is being checked left no evidence of a run yet
                why = fleet.why_not.get(part, reason(model.UncheckedKind.PART_MISSING))
                return RuleOutcome(code=rule.code, not_checked=(not_checked(part, why),))  # its rules say it together
            arguments[need.parameter] = value
            continue
        have, missing = fleet.per_node(need.fact_type)
        if need.optional:
            arguments[need.parameter] = model.PerNode(have)
            continue
        per_node[need.parameter] = have
        unchecked += tuple(_reported(rule.code, missing, besides={item.node for item in unchecked}))
    if per_node:
        common = set.intersection(*(set(have) for have in per_node.values()))
        arguments |= {p: model.PerNode({n: v for n, v in have.items() if n in common}) for p, have in per_node.items()}
        if not common:
            return RuleOutcome(code=rule.code, not_checked=unchecked)
    assert rule.body is not None
    try:
        hits = tuple(_with_processes(rule, hit, fleet) for hit in rule.body(**arguments))
        for hit in hits:
            fill(rule.message, hit.values), fill_steps(rule.steps, hit.values)
    except Exception:
        log.exception("rule %s crashed", rule.code)
        return RuleOutcome(code=rule.code, not_checked=unchecked, crash=traceback.format_exc(limit=-3))
    return RuleOutcome(code=rule.code, hits=hits, not_checked=unchecked)


def _with_processes(rule: Rule, hit: model.Hit, fleet: model.Fleet) -> model.Hit:
    """The hit with the processes and hosts of its culprits, where a step of the remedy is for each of them."""
    asked = {step.each for step in rule.steps}
    values: dict[str, object] = {}
    if model.PROCESSES in asked and model.PROCESSES not in hit.values:
        values[model.PROCESSES] = processes_of(fleet, hit.culprits.ranks)
    if model.HOSTS in asked:
        values[model.HOSTS] = hosts_of(fleet, hit.culprits)
    return replace(hit, values={**values, **hit.values}) if values else hit


def _asked(rules: Iterable[Rule], case: Analysis) -> Iterator[Rule]:
    """Those that apply here, where nothing shows that another rule explains more; of the hundreds that are about one
    kind of log line each, those whose line is there."""
    where = Applies.LIVE if case.live is not None else Applies.OFFLINE if case.has_run else Applies.CHECK
    logged = case.of(by_signature) if case.has_run else {}
    for rule in rules:
        is_here = (
            (not rule.signature or rule.signature in logged) and rule.applies is not None and where in rule.applies
        )
        if is_here and not any(SIGNS[sign](case) for sign in rule.unless):
            yield rule


def _reported(
    code: str, missing: dict[int, model.FactMissing], *, besides: set[int | None]
) -> Iterator[model.NotChecked]:
    for node, fact in missing.items():
        if node not in besides and not isinstance(fact, model.NotApplicable):
            yield not_checked(code, fact_missing(fact), node=node)


def judge(
    fleet: model.Fleet, rules: Iterable[Rule] | None = None
) -> tuple[tuple[model.Finding, ...], tuple[model.NotChecked, ...]]:
    """All findings of all rules, the one that explains most first, and what could not be looked at.

    A crash of a rule is reported as not checked, so that it can never pass for healthy.
    """
    chosen = {rule.code: rule for rule in (load_for(fleet).values() if rules is None else rules)}
    findings: list[model.Finding] = []
    unchecked: list[model.NotChecked] = []
    case = Analysis(fleet)
    for rule in _asked(chosen.values(), case):
        outcome = _run(rule, fleet, case)
        findings += [finding_of(rule, hit) for hit in outcome.hits]
        unchecked += outcome.not_checked
        if outcome.crash is not None:
            last_line = outcome.crash.strip().splitlines()[-1]
            unchecked.append(not_checked(rule.code, reason(model.UncheckedKind.RULE_CRASHED, error=last_line)))
    return in_order(findings, chosen), each_once(unchecked)


def each_once(unchecked: Iterable[model.NotChecked]) -> tuple[model.NotChecked, ...]:
    """What several rules could not check for lack of the same stage is reported once, under the stage's name."""
    return tuple({(item.code, item.node, item.why): item for item in unchecked}.values())


def crashed(unchecked: Iterable[model.NotChecked]) -> tuple[model.NotChecked, ...]:
    """Rules that raised: after one of these nothing may be called healthy."""
    return tuple(item for item in unchecked if item.kind is model.UncheckedKind.RULE_CRASHED)


def finding_of(rule: Rule, hit: model.Hit) -> model.Finding:
    """The hit with its rule's texts filled in."""
    remedies = fill_steps(rule.steps, hit.values)
    repeated = {step.each for step in rule.steps}
    return model.Finding(
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
        values={name: in_english(value) for name, value in hit.values.items() if name not in repeated},
        phrases=phrases_of(hit.values),
        fault_time=hit.fault_time,
    )
