"""Which of several findings is the verdict: one total order, with a reason for every place in it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import grouped
from allready.model import Confidence, FaultClass, Finding, Severity
from allready.model.fill import UNKNOWN

Rules = Mapping[str, Rule]


def in_order(findings: Iterable[Finding], rules: Rules) -> tuple[Finding, ...]:
    """The one that explains most first; every finding's code is in `rules`.

    Two relations come before the order.  A launcher's summary of an end is information beside a finding that explains
    it.  Findings of the layer FALLBACK are left out where another layer has an error.
    """
    every = list(findings)
    found = [replace(f, severity=Severity.INFO) if _is_explained(f, every, rules) else f for f in every]
    errors = [f for f in found if is_error(f)]
    is_fallback = [f for f in errors if rules[f.code].layer is Layer.FALLBACK]
    if any(rules[f.code].layer is not Layer.FALLBACK and not _is_empty_summary(f, rules) for f in errors):
        found = [f for f in found if rules[f.code].layer is not Layer.FALLBACK]
    elif is_fallback:
        found = [replace(f, severity=Severity.INFO) if _is_empty_summary(f, rules) else f for f in found]
    places = [tuple(c.place(entry) for c in CRITERIA) for entry in _entries(found, rules)]
    return tuple(found[at] for at in sorted(range(len(found)), key=places.__getitem__))


def is_error(finding: Finding) -> bool:
    """Whether it says that something is wrong, so that it can be the verdict."""
    return finding.severity.is_fault


def likely_end(findings: Iterable[Finding]) -> Finding | None:
    """What explains that a run ended, where no finding is an error: a job that was cancelled."""
    ends = (f for f in findings if f.fault_class is FaultClass.DEAD)
    return next((f for f in ends if f.confidence is not Confidence.POSSIBLE), None)


class Change(Struct, frozen=True):
    """What a step of `judging.conclude` did to a finding besides the order, and why."""

    step: str
    code: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.step}: {self.code} {self.what}: {self.why}"


class RankedFinding(Struct, frozen=True):
    """A finding and what the comparison needs of it."""

    finding: Finding
    layer: Layer
    is_explained: bool
    is_vague: bool


class Criterion(Struct, frozen=True):
    """One step of the comparison of two findings: the smaller place comes first.

    `reason`: why one comes before the other where this step decides; {a} and {b} are what `shown` gives of them.
    """

    place: Callable[[RankedFinding], Any]
    reason: str
    shown: Callable[[RankedFinding], object] = lambda _: ""


CRITERIA = (
    Criterion(lambda e: -e.finding.severity.weight, "it is graver: {a} before {b}", lambda e: e.finding.severity),
    Criterion(lambda e: e.layer.position, "its layer explains the other: {a} before {b}", lambda e: e.layer),
    Criterion(lambda e: e.is_explained, "its rule explains what another of the same layer found"),
    Criterion(lambda e: e.is_vague, "it says with whom or what it failed, a later line of its kind does not"),
    Criterion(lambda e: -e.finding.confidence.weight, "it is surer: {a} before {b}", lambda e: e.finding.confidence),
    Criterion(lambda e: e.finding.code, "nothing but their codes tells them apart"),
    Criterion(lambda e: e.finding.culprits.nodes, "its nodes have lower numbers"),
)
"""The steps of the comparison, the weightiest first."""


def explain_order(findings: Sequence[Finding], rules: Rules) -> tuple[str, ...]:
    """For each finding but the last, in their order, why it stands before the next one; without those of a report by
    another release, whose rules this one does not have.

    Args:
        findings: as `in_order` gives them.
        rules: by code.
    """
    sentences = []
    for a, b in pairwise(_entries([f for f in findings if f.code in rules], rules)):
        step = next((c for c in CRITERIA if c.place(a) != c.place(b)), None)
        if step is None:
            why = "they differ in nothing that is compared"
        elif step.place(a) < step.place(b):
            why = step.reason.format(a=step.shown(a), b=step.shown(b))
        else:
            why = "a later step moved it there"
        sentences.append(f"{a.finding.code} before {b.finding.code}: {why}")
    return tuple(sentences)


def _entries(findings: Sequence[Finding], rules: Rules) -> list[RankedFinding]:
    vague = _vague(findings, rules)
    explained = {code for f in findings if is_error(f) for code in rules[f.code].explains}
    return [RankedFinding(f, rules[f.code].layer, f.code in explained, at in vague) for at, f in enumerate(findings)]


def _is_explained(finding: Finding, findings: Sequence[Finding], rules: Rules) -> bool:
    """A launcher's summary beside a finding, at least as severe and deeper: of an error, or of an end."""
    rule = rules[finding.code]
    if not rule.is_launcher_summary or finding.severity.weight < Severity.WARNING.weight:
        return False
    return any(
        other.severity.weight >= finding.severity.weight
        and rules[other.code].layer.explains(rule.layer)
        and not rules[other.code].is_launcher_summary
        and (is_error(other) or other.fault_class is finding.fault_class)
        for other in findings
    )


def _is_empty_summary(finding: Finding, rules: Rules) -> bool:
    """A launcher's summary that does not say whose end: any other clue says more."""
    return rules[finding.code].is_launcher_summary and not finding.culprits and not _names(finding)


OBJECTS = {"peer", "host", "address", "remote", "device", "task", "module", "library"}
"""Values by which a sentence names what it is about; not who wrote a line, which is known of nearly all."""


def _vague(findings: Sequence[Finding], rules: Rules) -> set[int]:
    """Places of lines that name nothing, after one of the same layer and class that says with whom it failed."""
    of_logs = [(at, f) for at, f in enumerate(findings) if rules[f.code].area.startswith("log_")]
    alike = grouped(((f.severity, rules[f.code].layer, f.fault_class), at) for at, f in of_logs)
    vague = set()
    for group in alike.values():
        named = [findings[at] for at in group if _names(findings[at])]
        nameless = (at for at in group if not _names(findings[at]))
        vague |= {at for at in nameless if any(_is_before(one, findings[at]) for one in named)}
    return vague


def _names(finding: Finding) -> bool:
    is_named = any(finding.values.get(name, UNKNOWN) not in {UNKNOWN, ""} for name in OBJECTS)
    return is_named or bool(finding.culprits)


def _is_before(one: Finding, other: Finding) -> bool:
    """By their first lines: in one file by these, else by time; unknown is not before."""
    if one.evidence and other.evidence:
        first, second = one.evidence[0], other.evidence[0]
        if first.file == second.file and first.line is not None and second.line is not None:
            return first.line < second.line
    return one.fault_time is not None and other.fault_time is not None and one.fault_time < other.fault_time
