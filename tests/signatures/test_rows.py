"""Lines in their true shape, from many releases: each has its signature; scary lines of healthy runs accuse no rank."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.log import read_lines
from allready.model import Role, Severity
from allready.signatures import load, of_line
from allready.signatures.table import FAMILIES
from tests.cases import cases

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures" / "signatures"


def lines_of(file: str) -> list[str]:
    text = (FIXTURES / file).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


ROWS = [
    (f"{family}: {meaning}", expected, line)
    for family, rows in tomllib.loads((HERE / "rows.toml").read_text(encoding="utf-8")).items()
    for meaning, (expected, line) in rows.items()
]
HEALTHY = lines_of("healthy.log")
"""What recorded runs that ended well printed, each shape once."""


WORKING = lines_of("working.log")
"""Scary lines that stand in runs that ended well."""

VICTIMS = lines_of("victims.log")
"""Lines of those who waited or were ended."""

ALL_LINES = [line for _, _, line in ROWS]

JOINED = tomllib.loads((HERE / "joined.toml").read_text(encoding="utf-8"))
"""Messages of several lines, put together by a reader."""


@cases(("expected", "line"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_line_has_its_signature(expected: str, line: str) -> None:
    events = read_lines([line], mtime_s=0.0).events
    [found] = [event.signature for event in events if fnmatch(event.signature, expected)]
    assert load()[found].code is not None or not expected.endswith("*")


@pytest.mark.thorough  # each alone: test_tables.py
def test_an_example_of_the_tables_has_its_signature_in_a_log() -> None:
    """The prefix is off then, unless it is a part of what the line says."""
    examples = [(signature.id, line.example) for signature in load().values() for line in signature.lines]
    for expected, example in examples:
        assert expected in [event.signature for event in read_lines([example], mtime_s=0.0).events], example


WITHOUT_ROW = {"nccl": 93, "python": 20, "kernel": 19, "cuda": 15}
"""Findings of former times that have no true line besides their examples, by family: no new one may be like that."""


@cases("family", FAMILIES)
def test_every_finding_has_a_row(family: str) -> None:
    proven = {expected for _, expected, _ in ROWS}
    codes = {s.id: s.code for s in load().values() if s.family == family and s.code is not None and s.id not in proven}
    num_new = max(0, len(codes) - WITHOUT_ROW.get(family, 0))
    new = sorted(codes, key=lambda name: codes[name] or "")[len(codes) - num_new :]
    assert not new, f"no row in tests/signatures/rows.toml, table [{family}]: {', '.join(new)}"


def test_few_rows_are_the_examples_of_the_tables() -> None:
    """Where a line has one shape only, the two are the same."""
    examples = {line.example for signature in load().values() for line in signature.lines}
    copies = {meaning for meaning, _, line in ROWS if line in examples}
    assert len(copies) <= len(ROWS) // 10, sorted(copies)


@cases("line", HEALTHY + WORKING)
def test_a_line_of_a_healthy_run_accuses_nobody(line: str) -> None:
    for signature, _ in of_line(line):
        assert signature.role is not Role.ROOT or signature.severity.weight < Severity.ERROR.weight, signature.id
        assert signature.severity.weight < Severity.ERROR.weight, signature.id


def test_the_healthy_lines_are_scary_enough() -> None:
    """The fixture would prove little if no signature knew its lines."""
    known = {signature.id for line in HEALTHY for signature, _ in of_line(line)}
    assert {"store.hostname_unresolved", "torch.deprecated_variable", "jax.watch_ended"} <= known


@cases("expected", JOINED)
def test_names_the_absent_when_the_lines_below_are_given(expected: str) -> None:
    signature, match = next(of_line(JOINED[expected]["text"]))
    assert signature.id == expected
    assert {name: value for name, value in match.groupdict().items() if value is not None} == JOINED[expected]["values"]


def test_the_number_of_missing_is_not_taken_for_the_number_that_came() -> None:
    [(_, match)] = of_line("I0926 coordination_service.cc:480] Waiting for 3/128 tasks to connect.")
    assert match["pending"] == "3"


@cases("line", VICTIMS)
def test_victims_never_accuse_themselves(line: str) -> None:
    signature, _ = next(of_line(line))
    assert signature.culprit not in {"rank", "node"}
    assert signature.role is not Role.ROOT


@given(st.sampled_from(ALL_LINES), st.integers(0, 400), st.integers(0, 400), st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_damaged_lines_are_read_without_a_crash(line: str, start: int, length: int, junk: str) -> None:
    for signature, match in of_line(line[:start] + junk + line[start + length :]):
        assert signature.id in load()
        assert all(value is None or value in match.string for value in match.groupdict().values())
