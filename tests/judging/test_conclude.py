"""The steps from findings to the verdict, the reason that each gives, and the page that explains them."""

import io
import logging
import re
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allready.cli.diagnose_judge import Question, judge_readings
from allready.cli.main import main
from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.judging.conclude import STEPS, Conclusion, Known, Running, conclude, concluded, explain
from allready.judging.differences import Differences
from allready.judging.latch import VerdictLatch
from allready.judging.loading import load
from allready.judging.raised import ROUNDS, SITUATIONS
from allready.judging.registry import Applies
from allready.judging.report_builder import ReportBuilder, verdict_of
from allready.model import (
    Closing,
    ClosingKind,
    Confidence,
    Culprits,
    Event,
    FaultClass,
    Finding,
    Origin,
    Report,
    Role,
    RunEvidence,
    Severity,
    Situation,
    SourceRecord,
    Status,
    World,
)
from allready.model.run_evidence import CommRecord, ProcessRecord
from tests.cases import cases

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


NOT_OVER = "the files show that the wait was not over when the job was ended"
FROM_OUTSIDE = "no finding is an error, and the run was ended from outside, and nothing else is wrong with it"


def found(code: str, severity: Severity = Severity.ERROR, ranks: tuple[int, ...] = (), **changes: Any) -> Finding:
    known: dict[str, Any] = {
        "code": code,
        "severity": severity,
        "fault_class": FaultClass.CPU_STUCK,
        "confidence": Confidence.LIKELY,
        "culprits": Culprits(ranks=ranks),
        "message": code,
        "remedy": "",
    }
    return Finding(**(known | changes))


def reported(*findings: Finding, status: Status = Status.FAULT) -> Report:
    return ReportBuilder(command="run", started=NOW).build(
        now=NOW,
        world=World(num_nodes=2, world_size=4),
        status=status,
        verdict=verdict_of(findings, now=NOW, visible_since=None),
        findings=findings,
    )


def known(**parts: Any) -> Known:
    return Known(rules=load(), now=NOW, **parts)


def why(done: Conclusion) -> tuple[str, ...]:
    return explain(done, load())


def test_without_more_the_first_error_is_the_verdict() -> None:
    done = conclude([found("HNG001"), found("LIV006", Severity.WARNING)], known())
    assert done.verdict is not None
    assert (done.verdict.code, done.changes) == ("HNG001", ())
    assert why(done) == ("HNG001 before LIV006: it is graver: error before warning",)


def test_the_connections_of_a_check_take_their_places() -> None:
    done = conclude([found("COL009")], known(traffic=(found("LNK003"),)))
    assert [f.code for f in done.findings] == ["LNK003", "COL009"]


def test_what_run_watched_stands_for_a_standstill_in_the_files() -> None:
    late = found("LIV006", Severity.WARNING, (3,))
    run = replace(reported(found("LIV006", ranks=(3,))), findings=(late,))
    done = conclude([found("HNG001", ranks=(3,)), found("HNG001", ranks=(1,))], known(watched=(run,)))
    assert [(f.code, f.severity, f.culprits.ranks) for f in done.findings] == [
        ("HNG001", "error", (1,)),
        ("LIV006", "error", (3,)),
    ]
    assert why(done)[:2] == (
        "watched: HNG001 left out: `allready run` watched the ranks and reported LIV006",
        "watched: LIV006 raised from warning to error: " + NOT_OVER,
    )


def test_two_findings_of_the_files_stay_two_where_a_report_lies_beside_them() -> None:
    both = [found("HNG007", Severity.INFO, message="group 0"), found("HNG007", Severity.INFO, message="group 1")]
    done = conclude(both, known(watched=(reported(both[0], found("LIV001", ranks=(2,))),)))
    assert [f.message for f in done.findings] == ["LIV001", "group 0", "group 1"]


def test_who_only_lost_node_0_stays_out_beside_a_node_that_names_a_fault() -> None:
    lost, stopped = reported(found("JOB010")), reported(found("LIV001", ranks=(2,)))
    done = conclude([], known(watched=(lost, stopped)))
    assert [f.code for f in done.findings] == ["LIV001"]
    assert why(done)[0] == "watched: JOB010 left out: a node that lost node 0 knows less than one that reports LIV001"
    alone = conclude([], known(watched=(lost,)))
    assert (alone.verdict is not None and alone.verdict.code, alone.changes) == ("JOB010", ())


CANCELLED = found("LCH008", Severity.INFO, values={"what": "JOB"})


def test_a_warning_is_raised_in_the_situation_that_its_rule_names_and_says_why() -> None:
    done = conclude([CANCELLED], known(run=RunEvidence()))
    assert done.verdict is not None
    assert (done.verdict.code, done.verdict.confidence) == ("LCH008", "possible")
    assert why(done) == ("raised: LCH008 from info to error: " + FROM_OUTSIDE,)


def test_nothing_is_raised_beside_an_error_of_a_job_that_runs_or_after_a_good_end() -> None:
    well = RunEvidence(closing=Closing(origin=Origin(source="out"), kind=ClosingKind.WORDS, text="done"))
    for findings, parts in (
        ([found("DTH001"), CANCELLED], {"run": RunEvidence()}),
        ([CANCELLED], {}),
        ([CANCELLED], {"run": well}),
        ([replace(CANCELLED, values={"what": "?"})], {"run": RunEvidence()}),
    ):
        assert conclude(findings, known(**parts)).changes == ()


def _left(code: str, at: int, num_lines: int) -> RunEvidence:
    """A job of which one line tells a first cause, at this place of its log."""
    signature = load()[code].signature
    line = Event(signature=signature, origin=Origin(source="out", line=at), text=code, role=Role.ROOT)
    return RunEvidence(events=(line,), sources=(SourceRecord(path="out", kind="log", num_lines=num_lines),))


def test_a_warning_of_a_first_cause_is_raised_where_it_is_all_that_is_left() -> None:
    unknown_name = found("STO007", Severity.WARNING)
    done = conclude([unknown_name], known(run=_left("STO007", 7, 9)))
    assert done.verdict is not None
    assert (done.verdict.code, done.verdict.confidence) == ("STO007", "possible")
    for finding, run in (
        (unknown_name, _left("STO007", 5, 9)),  # the job went on
        (found("STO007", Severity.INFO), _left("STO007", 9, 9)),  # an echo
        (found("NLG060", Severity.WARNING), _left("NLG060", 9, 9)),  # makes a job slow
    ):
        assert conclude([finding], known(run=run)).verdict is None


def test_a_limit_that_a_program_met_explains_a_wait_that_accuses_no_rank() -> None:
    limit, run = found("PYL051", Severity.WARNING), _left("PYL051", 8, 9)
    wait = found("HNG009", confidence=Confidence.POSSIBLE)
    assert conclude([wait, limit], known(run=run)).findings[0].code == "PYL051"
    accused = replace(wait, code="HNG001", confidence=Confidence.LIKELY, culprits=Culprits(ranks=(1,)))
    assert conclude([accused, limit], known(run=run)).findings[0].code == "HNG001"


def test_of_what_hinders_a_start_the_finding_that_stands_first_is_raised() -> None:
    comm = CommRecord(comm="0x1", rank=0, nranks=2, init_started=True)
    process = ProcessRecord(rank=0, num_nodes=2, comms=(comm,))
    run = RunEvidence(expected_ranks=2, processes=(process,), node_of_rank={0: 0, 1: 1})
    both = [found("FAB004", Severity.WARNING), found("NLG004", Severity.WARNING)]
    for findings in (both, both[::-1]):
        done = conclude([CANCELLED, *findings], known(run=run))
        assert [change.code for change in done.changes] == [findings[0].code]


def test_findings_of_another_release_are_explained_as_far_as_they_are_known() -> None:
    done = conclude([found("LIV001")], known())
    newer = replace(done, findings=(found("ZZZ999"), *done.findings, found("LIV006", Severity.WARNING)))
    assert why(newer) == ("LIV001 before LIV006: it is graver: error before warning",)


def test_every_situation_is_known_and_named_by_a_rule() -> None:
    assert list(SITUATIONS) == list(Situation)
    assert [s for situations in ROUNDS for s in situations] == list(Situation)
    rules = [rule for rule in load().values() if rule.raised is not None]
    assert {rule.raised.where for rule in rules if rule.raised is not None} == set(Situation)
    about_lines = [rule for rule in rules if rule.raised and rule.raised.where is Situation.LAST_WORDS]
    assert [rule.code for rule in about_lines if not rule.signature] == []
    assert [rule.code for rule in rules if rule.severity.weight >= Severity.ERROR.weight] == []


@cases(
    ("second", "reason"),
    [
        (found("SLW006"), "LIV001 stays before SLW006: slowness gives way to every other fault"),
        (found("DTH001", ranks=(0,), confidence=Confidence.CERTAIN),
         "DTH001 instead of LIV001: the surer one counts: certain against likely"),
        (found("DSY001", ranks=(0,), fault_class=FaultClass.DESYNC_FLOW),
         "DSY001 instead of LIV001: no time says which came first, and the deeper layer counts: desync against stall"),
        (found("LIV002", ranks=(1,)),
         "LIV001 stays before LIV002: no time says which came first, and the deeper layer counts: stall against stall"),
        (found("LIV002"),
         "LIV001 stays before LIV002: of the same fault the finding that says whose it is counts, where it is likely"),
    ],
)  # fmt: skip
def test_in_a_running_job_it_says_why_a_verdict_stays_or_gives_way(second: Finding, reason: str) -> None:
    standing = VerdictLatch(load())
    first = conclude([found("LIV001", ranks=(2,))], known(running=Running(standing=standing, wall_s=10.0)))
    assert first.changes == ()
    done = conclude([second], known(running=Running(standing=standing, wall_s=11.0)))
    assert done.verdict is standing.verdict
    assert why(done)[0] == f"verdict: {reason}"


def differences(*findings: Finding) -> Differences:
    found_at = NOW + timedelta(seconds=2)
    shown = tuple(f for f in findings if not f.code.startswith("NET"))
    choices = tuple(f for f in findings if f.code.startswith("NET"))
    return Differences(started=NOW, found=found_at, shown=shown, choices=choices)


def test_what_differs_between_nodes_says_why_it_is_the_verdict() -> None:
    choice = found("NET009", Severity.BLOCKER, fault_class=FaultClass.START_NAME)
    before = reported(found("GLO008", fault_class=FaultClass.START_PATH))
    done = conclude(before, known(differences=differences(choice)))
    assert why(done) == (
        "differences: NET009 instead of GLO008: it is why the nodes do not connect, which is all that GLO008 says",
        "NET009 before GLO008: it is graver: blocker before error",
    )
    alone = conclude(reported(status=Status.HEALTHY), known(differences=differences(found("ENV001"))))
    assert alone.status is Status.FAULT
    assert why(alone) == ("differences: ENV001 first: the job shows nothing that explains more",)


def test_a_fault_proven_before_node_0_was_lost_stays_and_says_why() -> None:
    before, loss = reported(found("LIV001", ranks=(2,))), reported(found("JOB010"))
    done = conclude(loss, known(earlier=before))
    assert why(done) == (
        "alone: LIV001 stays: it was proven before node 0 was lost",
        "LIV001 before JOB010: it is graver: error before warning",
    )
    assert concluded(loss, known(earlier=before)).verdict == before.verdict
    assert concluded(loss, known(earlier=reported(status=Status.HEALTHY))).verdict == loss.verdict


def read(*lines: str) -> Report:
    scanned = scan(io.BytesIO("\n".join(lines).encode()))
    return judge_readings([interpret(scanned, "out.log", mtime_s=None)], Question(), started=NOW)[0]


def test_the_program_prints_the_reasons_when_asked_for_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="allready.judging.conclude")
    steps = [f"step {n}/40 loss 2.0" for n in range(1, 21)]
    read(*steps, "slurmstepd: error: *** JOB 1809579 ON r8i3n1 CANCELLED AT 2021-05-23T08:45:57 ***")
    assert caplog.messages[0].startswith("raised: LCH008 from info to error: ")


@pytest.mark.thorough
def test_a_recorded_run_with_the_report_of_run_says_what_gave_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The files of a stopped rank, and what `allready run` would have saved of it."""
    with tarfile.open(ROOT / "tests/fixtures/runs/v2_lock.tar.xz") as tar:
        tar.extractall(tmp_path / "run", filter="data")
    from allready.report.json_report import encode

    locked = found("LIV003", ranks=(3,), severity=Severity.BLOCKER, confidence=Confidence.CERTAIN)
    (tmp_path / "run" / "report.json").write_bytes(encode(reported(locked)))
    caplog.set_level(logging.DEBUG, logger="allready.judging.conclude")
    main(["diagnose", "-q", "--json", str(tmp_path / "report.json"), str(tmp_path / "run")])
    assert "watched: HNG001 left out: `allready run` watched the ranks and reported LIV003" in caplog.messages


def test_steps_without_their_part_do_nothing() -> None:
    done = Conclusion(findings=(found("HNG001"),))
    assert [name for name, step in STEPS.items() if step(done, Known(rules=load())) != done] == []


def rows(page: str) -> Sequence[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^\| (?:\d+ )?`(\w+)` \| judging/", text, re.MULTILINE)


@pytest.mark.parametrize("page", ["docs/verdict-order.md", "docs/zh/verdict-order.md"])
def test_the_page_lists_the_steps_in_their_order(page: str) -> None:
    assert rows(page) == list(STEPS)


def declared() -> dict[str, list[str]]:
    """What rules declare for the steps -> their codes."""
    found: dict[str, list[str]] = {name: [] for name in (*Situation, "TRAFFIC", "JOB_FACTS", "ALONE", "knows_least")}
    for rule in load().values():
        names = [rule.raised.where.value] if rule.raised is not None else []
        names += [str(place.name) for place in rule.applies or ()]
        names += ["knows_least"] if rule.knows_least else []
        for name in names:
            found.get(name, []).append(rule.code)
    return found


@pytest.mark.parametrize("page", ["docs/verdict-order.md", "docs/zh/verdict-order.md"])
def test_the_page_lists_what_rules_declare_for_the_steps(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    found_rows = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", text, re.MULTILINE)
    shown = {name: codes.split(", ") for name, codes in found_rows}
    assert shown == declared(), f"{page} does not have the codes of today; run: make docs"


def test_every_rule_about_settings_and_limits_of_nodes_says_that_a_job_shows_it() -> None:
    """What differs between the nodes of a job is reported beside the job only by rules that ask for it
    (`applies=Applies.FACTS`); the default, of a check and of files, would leave a new one out."""
    failures = [
        f"{rule.code} ({rule.name}): applies=Applies.FACTS"
        for rule in load().values()
        if rule.area in {"env", "limit"} and Applies.FACTS not in (rule.applies or Applies(0))
    ]
    assert not failures, "\n".join(failures)
