"""The order of findings, the reason for every place in it, and the page that explains it."""

from pathlib import Path

import pytest

from allready.cli.main import main
from allready.judging.arbiter import explain_order, in_order
from allready.judging.layers import Layer
from allready.judging.loading import load
from allready.model import Confidence, Culprits, FaultClass, Finding, Severity
from allready.report.json_report import decode
from tests.cases import cases

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "tests" / "fixtures" / "runs"
WHY = {
    "exception": "DTH001 before TCH002: it is graver: blocker before error",
    "sigkill": "DTH002 before ELA015: it is graver: blocker before error",
    "sigstop": "HNG002 before TCH002: it is graver: blocker before error",
    "shm_tiny": "NLG026 before NLG111: it is graver: blocker before warning",
    "wrong_ifname": "NLG001 before TCH013: it is graver: blocker before error",
}
"""Recorded run -> why its verdict stands before the next finding."""


def found(code: str, severity: Severity = Severity.ERROR, confidence: Confidence = Confidence.LIKELY) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        fault_class=FaultClass.DEAD,
        confidence=confidence,
        culprits=Culprits(),
        message="",
        remedy="",
    )


@pytest.mark.thorough
@cases("name", sorted(WHY))
def test_recorded_runs_say_why_the_verdict_stands_first(name: str, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    main(["diagnose", "-q", "--json", str(target), str(RUNS / f"{name}.tar.xz")])
    findings = decode(target.read_bytes()).findings
    why = explain_order(findings, load())
    assert len(why) == len(findings) - 1
    assert all(f"{a.code} before {b.code}: " in w for w, a, b in zip(why, findings, findings[1:], strict=False))
    assert tuple(in_order(findings, load())) == findings
    assert why[0] == WHY[name]


def test_every_step_has_its_reason() -> None:
    rules = load()
    order = (
        found("DTH001", Severity.BLOCKER),
        found("DSY001"),
        found("HNG001", confidence=Confidence.CERTAIN),
        found("HNG002"),
        found("LIV006"),
    )
    assert in_order(reversed(order), rules) == order
    assert explain_order(order, rules) == (
        "DTH001 before DSY001: it is graver: blocker before error",
        "DSY001 before HNG001: its layer explains the other: desync before stall",
        "HNG001 before HNG002: it is surer: certain before likely",
        "HNG002 before LIV006: nothing but their codes tells them apart",
    )
    mixed = in_order((found("SLW006", confidence=Confidence.CERTAIN), found("SLW009")), rules)
    assert explain_order(mixed, rules) == (
        "SLW009 before SLW006: its rule explains what another of the same layer found",
    )


def rows() -> dict[str, tuple[str, str]]:
    """Layer -> codes of rules and number of signatures, as the pages have them."""
    table: dict[str, tuple[str, str]] = {}
    for layer in Layer:
        here = [rule for rule in load().values() if rule.layer is layer]
        codes = ", ".join(rule.code for rule in here if not rule.area.startswith("log_"))
        table[layer.value] = (codes or "-", str(sum(rule.area.startswith("log_") for rule in here) or "-"))
    return table


@pytest.mark.parametrize("page", ["docs/verdict-order.md", "docs/zh/verdict-order.md"])
def test_the_page_lists_the_layers_in_their_order_with_their_codes(page: str) -> None:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    shown = {row[0].strip("`"): (row[2], row[3]) for row in cells if row[0].strip("`") in set(Layer)}
    assert list(shown) == [layer.value for layer in Layer]
    other = [name for name, row in rows().items() if shown[name] != row]
    assert not other, f"{page} does not have the codes of today in {', '.join(other)}; run: make docs"


def test_what_a_rule_explains_lies_in_its_own_layer() -> None:
    rules = load()
    pairs = [(rule.code, other) for rule in rules.values() for other in rule.explains]
    assert pairs
    assert {(a, b) for a, b in pairs if rules[a].layer is not rules[b].layer} == set()
