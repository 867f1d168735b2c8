"""The scorer: right is right, wrong is wrong, a scenario always ends, and the table says what happened."""

import dataclasses
import json
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from allready.errors import UsageError
from allready.lab.inject.commands import LabLayout
from allready.lab.inject.plan import plan_of
from allready.lab.inject.truth import Injected
from allready.model.fill import placeholders
from fault_suite import board, labels, page, verdicts
from fault_suite.command import main
from fault_suite.machine import OTHER_LIBRARIES, missing
from fault_suite.play import Options, _Stage, play
from fault_suite.result import Result, judge
from fault_suite.rows import ROWS, choose
from fault_suite.scenario import Answer, Expected, Pick, Row, Setup
from fault_suite.watch import Said, Watch
from tests.cases import cases

LAYOUT = LabLayout(num_nodes=2, nproc_per_node=2, master_addr="10.77.0.1")
RANK_3 = Expected(answers=(Answer(classes=("DEAD",), ranks=(3,)),))


def verdict(fault_class: str = "DEAD", *, confidence: str = "certain", **culprits: Any) -> dict[str, Any]:
    return {
        "code": "X001",
        "fault_class": fault_class,
        "confidence": confidence,
        "culprits": culprits,
        "sentence": "it is so",
        "detect_s": 1.0,
    }


def said(time_s: float, status: str, what: dict[str, Any] | None = None, node: int = 0) -> Said:
    return Said(node=node, time_s=time_s, status=status, verdict=what)


def make_row(expected: Expected, *, control: bool = False, **rest: Any) -> Row:
    setup = Setup(layout=LAYOUT, expected=expected, faults=() if control else ("kill rank=3 step=5",), **rest)
    return Row(id="X", title="a test", make=lambda _pick: setup, control=control)


TRUTH = [Injected(id=1, kind="kill", rank=3, step=5, status="injected", injected_s=100.0)]


def judged(*states: Said, expected: Expected = RANK_3, control: bool = False, shows_s: float = 101.0) -> Result:
    row = make_row(expected, control=control)
    truth = [] if control else TRUTH
    return judge(row, 0, row.setup(0), states, truth, shows_s=shows_s, ended_s=200.0, problem="", duration_s=1.0)


# --- the suite itself


def test_the_suite_has_its_24_core_and_48_standard_rows_and_8_controls() -> None:
    assert len([r for r in choose("core") if not r.control]) == 24
    plain = {r.id.removesuffix("J") for r in choose("standard") if not r.control}
    assert len(plain) == 48
    assert [r.id for r in choose("controls")] == [f"K{i}" for i in range(8)]
    assert {r.id for r in choose("core")} <= {r.id for r in choose("all")}
    assert len({r.id.removesuffix("J") for r in ROWS.values() if not r.control}) == 64


def test_a_row_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match="there is no row 'Z9'; there are: A01"):
        choose("core", ["Z9"])
    assert [r.id for r in choose("core", ["b02", "K1"])] == ["B02", "K1"]


@cases("row", ROWS.values(), ids=lambda row: row.id)
def test_every_row_makes_a_scenario_for_every_seed_that_can_be_planned(row: Row) -> None:
    for seed in range(6):
        setup = row.setup(seed)
        plan_of([fault.split() for fault in setup.faults])
        assert setup == row.setup(seed), "the same seed gives the same scenario"
        assert row.control == (not setup.expected.answers) or row.needs
        for answer in setup.expected.answers:
            assert all(rank < setup.layout.world_size for rank in answer.ranks or ())
            assert all(node < setup.layout.num_nodes for node in answer.nodes or ())


def test_seeds_pick_different_victims_onsets_and_doses() -> None:
    setups = [ROWS["B01"].setup(seed) for seed in range(12)]
    assert len({s.victim for s in setups}) == 4
    assert len({s.faults for s in setups}) > 8
    assert len({s.dose for s in setups}) == 2


# --- right and wrong


@cases(
    ("culprits", "answer", "right"),
    [
        ({"ranks": (3,)}, Answer(classes=(), ranks=(3,)), True),
        ({"ranks": (3,), "nodes": (1,)}, Answer(classes=(), ranks=(3,)), True),
        ({"ranks": (3,), "nodes": (0,)}, Answer(classes=(), ranks=(3,)), False),
        ({"ranks": (2, 3)}, Answer(classes=(), ranks=(3,)), False),
        ({"nodes": (1,)}, Answer(classes=(), ranks=(3,)), False),
        ({"nodes": (1,), "ranks": (2, 3)}, Answer(classes=(), nodes=(1,)), True),
        ({"ranks": (2, 3)}, Answer(classes=(), nodes=(1,)), True),
        ({"ranks": (2,)}, Answer(classes=(), nodes=(1,)), False),
        ({"nodes": (0, 1)}, Answer(classes=(), nodes=(1,)), False),
        ({"nodes": (1,), "ranks": (0,)}, Answer(classes=(), nodes=(1,)), False),
        ({"links": ((0, 1),)}, Answer(classes=(), links=((0, 1),)), True),
        ({"links": ((0, 1), (1, 0))}, Answer(classes=(), links=((0, 1),)), False),
        ({"links": ((0, 1),), "nodes": (1,)}, Answer(classes=(), links=((0, 1),)), True),
        ({"nodes": (1,)}, Answer(classes=(), nodes=(1,), variables=("A",)), False),
        ({"nodes": (1,), "variables": ("A", "B")}, Answer(classes=(), nodes=(1,), variables=("A",)), True),
        ({}, Answer(classes=(), ranks=(), nodes=()), True),
        ({"ranks": (0,)}, Answer(classes=(), ranks=(), nodes=()), False),
    ],
)
def test_culprits_are_exactly_right_or_not(culprits: dict[str, Any], answer: Answer, right: bool) -> None:
    assert verdicts.names_exactly(culprits, answer, LAYOUT) is right


def test_a_right_verdict_is_measured_from_when_the_fault_could_be_seen() -> None:
    result = judged(said(99, "healthy"), said(102, "waiting"), said(103.5, "fault", verdict(ranks=[3])))
    assert (result.outcome, result.class_right, result.culprit_right, result.passed) == ("right", True, True, True)
    assert (result.detect_s, result.culprit_s) == (1.0, 2.5)


def test_a_verdict_that_does_not_last_is_not_right() -> None:
    result = judged(said(103, "fault", verdict(ranks=[3])), said(105, "fault", verdict(ranks=[1])))
    assert (result.outcome, result.culprit_right, result.culprit_s) == ("wrong", False, None)
    assert result.blamed_innocents == ("rank 1 (X001 after 4.0 s)",)


def test_a_right_class_with_one_culprit_too_many_is_half_right() -> None:
    result = judged(said(103, "fault", verdict(ranks=[2, 3])))
    assert (result.outcome, result.class_right, result.culprit_right) == ("wrong", True, False)
    assert result.blamed_innocents == ("rank 2 (X001 after 2.0 s)",)


def test_an_innocent_who_is_only_possibly_at_fault_is_not_blamed() -> None:
    result = judged(
        said(102, "fault", verdict(confidence="possible", ranks=[1])), said(103, "fault", verdict(ranks=[3]))
    )
    assert (result.outcome, result.blamed_innocents) == ("right", ())


def test_an_innocent_blamed_for_a_moment_spoils_a_right_verdict() -> None:
    result = judged(said(102, "fault", verdict(ranks=[1])), said(103, "fault", verdict(ranks=[3])))
    assert (result.outcome, result.blamed_innocents, result.passed) == ("right", ("rank 1 (X001 after 1.0 s)",), False)


def test_an_alarm_before_the_fault_is_told() -> None:
    result = judged(said(90, "fault", verdict(ranks=[3])), said(103, "fault", verdict(ranks=[3])))
    assert result.blamed_innocents == ("X001 before the fault",)


def test_silence_is_a_miss() -> None:
    assert judged(said(99, "healthy")).outcome == "missed"


def test_waiting_is_no_fault_where_the_suite_asks_for_waiting() -> None:
    expected = dataclasses.replace(RANK_3, answers=(Answer(classes=("CPU-BUSY",), ranks=(3,)),), statuses=("waiting",))
    busy = verdict("CPU-BUSY", ranks=[3])
    assert judged(said(103, "waiting", busy), expected=expected).outcome == "right"
    assert judged(said(103, "fault", busy), expected=expected).outcome == "wrong"


def test_a_control_is_quiet_while_it_waits_and_an_alarm_when_it_accuses() -> None:
    expected = Expected()
    waiting = said(101, "waiting", verdict("START-ABSENT", nodes=[1]))
    assert judged(said(100, "healthy"), waiting, said(110, "healthy"), expected=expected, control=True).passed
    alarm = judged(said(101, "fault", verdict(ranks=[0])), said(110, "healthy"), expected=expected, control=True)
    assert (alarm.outcome, alarm.passed) == ("false alarm", False)
    nobody = said(101, "fault", verdict("SLOW-NOCULPRIT"))
    assert judged(nobody, expected=expected, control=True).outcome == "quiet"


def test_a_fault_that_was_not_injected_proves_nothing() -> None:
    truth = [replace_struct(TRUTH[0], status="not_injected", why="no such call")]
    row = make_row(RANK_3)
    result = judge(
        row, 0, row.setup(0), [said(1, "healthy")], truth, shows_s=1.0, ended_s=9.0, problem="", duration_s=1
    )
    assert (result.outcome, result.problem) == ("not played", "no such call")


def replace_struct(truth: Injected, **values: Any) -> Injected:
    import msgspec

    return msgspec.structs.replace(truth, **values)


def test_a_half_written_report_is_told(tmp_path: Path) -> None:
    watch = Watch({0: tmp_path})
    assert watch.look() is False
    (tmp_path / "report.json").write_text("{half")
    watch.look()
    assert watch.broken


def test_the_summary_counts_shares_and_times() -> None:
    base: dict[str, Any] = {"row": "X", "title": "x", "seed": 0, "control": False}
    results = [
        Result(**base, outcome="right", detected=True, class_right=True, culprit_right=True, culprit_s=float(i))
        for i in range(1, 10)
    ]
    results.append(Result(**base, outcome="wrong", detected=True, class_right=True, blamed_innocents=("rank 1",)))
    results.append(Result(**base | {"control": True}, outcome="false alarm"))
    results.append(Result(**base, outcome="not played", problem="why"))
    summary = board.summarize(results)
    assert (summary.num_faults, summary.num_controls, summary.num_not_played) == (10, 1, 1)
    assert (summary.detected_share, summary.class_share, summary.culprit_share) == (1.0, 1.0, 0.9)
    assert (summary.num_innocents_blamed, summary.num_false_alarms) == (1, 1)
    harmless = Result(**base, outcome="right", ran=True, class_right=True, culprit_right=True)
    assert board.summarize([harmless]).detected_share == 1.0
    assert (summary.median_s, summary.p90_s) == (5.0, 9.0)


@pytest.mark.parametrize(("values", "p90"), [([], None), ([3.0], 3.0), ([1.0, 2.0], 2.0)])
def test_a_percentile_of_few_values_is_one_of_them(values: list[float], p90: float | None) -> None:
    assert board.percentile(values, 0.9) == p90


def test_a_saved_scoreboard_makes_the_page_in_both_languages(tmp_path: Path) -> None:
    base: dict[str, Any] = {"row": "B02", "title": "SIGSTOP", "seed": 0, "control": False, "default_timeout_s": 1800.0}
    results = (
        Result(**base, outcome="right", class_right=True, culprit_right=True, culprit_s=1.5, detected=True),
        Result(**base, outcome="wrong", victim="rank 3", culprits={"ranks": (1,)}, code="X|1"),
    )
    made = board.Scoreboard(
        made="2026-01-02T03:04:05+0000",
        versions={"torch": "9.9"},
        num_cpus=2,
        seeds=(0,),
        duration_s=1.0,
        results=results,
        not_shown=(board.NotShown(row="B14", title="GPU", why="needs a GPU"),),
        summary=board.summarize(results),
    )
    board.save(made, tmp_path / "s.json")
    assert board.load(tmp_path / "s.json") == made
    (tmp_path / "docs" / "zh").mkdir(parents=True)
    page.publish([tmp_path / "s.json"], tmp_path / "docs")
    english = (tmp_path / "docs" / "scoreboard.md").read_text()
    assert "| B02 | SIGSTOP | 1/2 | 1/2 | 1/2 | 1.5 s / 1.5 s | 1800 s |" in english
    assert "X\\|1" in english
    assert "needs a GPU" in english
    assert "torch 9.9" in english
    assert "故障" in (tmp_path / "docs" / "zh" / "scoreboard.md").read_text()
    with pytest.raises(UsageError, match="is no scoreboard"):
        board.load(tmp_path / "docs" / "scoreboard.md")


def test_scoreboards_of_parts_of_the_suite_make_one_page(tmp_path: Path) -> None:
    def part(row: str, seeds: tuple[int, ...], outcome: str, **changes: Any) -> Path:
        results = tuple(
            Result(row=row, title=row, seed=seed, control=False, outcome=outcome, class_right=outcome == "right")
            for seed in seeds
        )
        made = board.Scoreboard(
            made=f"2026-01-0{len(seeds)}",
            versions={"torch": "9.9"},
            num_cpus=2,
            seeds=seeds,
            duration_s=1.0,
            results=results,
            not_shown=(board.NotShown(row="B14", title="GPU", why="needs a GPU"),),
            summary=board.summarize(results),
        )
        path = tmp_path / f"{row}{len(seeds)}{len(changes)}.json"
        board.save(msgspec.structs.replace(made, **changes), path)
        return path

    core, more = part("B02", (0, 1), "right"), part("B04", (0,), "wrong")
    (tmp_path / "docs" / "zh").mkdir(parents=True)
    page.publish([core, more], tmp_path / "docs")
    english = (tmp_path / "docs" / "scoreboard.md").read_text()
    assert "| summary | core rows | all rows played |" in english
    assert "| class right | 100.0 % | 66.7 % |" in english
    assert "Played on 2026-01-02, 2 CPU cores, seeds per row: 1-2;" in english
    assert english.count("needs a GPU") == 1
    with pytest.raises(UsageError, match="twice"):
        page.publish([core, core], tmp_path / "docs")
    with pytest.raises(UsageError, match="different"):
        page.publish([core, part("B04", (0,), "wrong", num_cpus=4)], tmp_path / "docs")


# --- played in a lab, with a stand-in for `allready run`


def played(
    tmp_path: Path,
    wish: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    control: bool = False,
    limit_s: float = 3.0,
    **rest: Any,
) -> Result:
    monkeypatch.setenv("FAKE", json.dumps(wish))
    expected = Expected() if control else RANK_3
    row = make_row(expected, control=control, limit_s=limit_s, runs_to_its_end=control, **rest)
    fake = (sys.executable, str(Path(__file__).with_name("fake_run.py")))
    options = Options(out=tmp_path / "out", run_argv=fake, run_flags=(), state_dir=tmp_path / "labs")
    return play(row, 0, options)


@pytest.mark.lab
def test_a_right_verdict_ends_the_scenario_and_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wish = {"status": "fault", "say": verdict(ranks=[3]), "after_s": 0.5}
    result = played(tmp_path, wish, monkeypatch, limit_s=100.0)
    assert (result.outcome, result.problem, result.step) == ("right", "", 5)
    assert result.culprit_s is not None
    assert 0.4 < result.culprit_s < result.duration_s < 100.0
    assert (tmp_path / "out" / "X-0" / "node0.log").read_text() == "said\n"
    assert not (tmp_path / "labs").exists()


@pytest.mark.lab
@pytest.mark.slow
def test_silence_ends_at_the_deadline_and_processes_that_hide_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = played(tmp_path, {"hide": True}, monkeypatch, limit_s=1.0)
    assert (result.outcome, result.status) == ("missed", "healthy")


def test_a_fault_that_only_ranks_show_has_its_time_from_the_last_rank_that_came_to_it(tmp_path: Path) -> None:
    """On a busy machine ranks need most of it to import torch."""
    launched_s, entered_s = time.time() - 1000.0, time.time() - 100.0
    job = SimpleNamespace(started_s={0: launched_s, 1: launched_s})
    (tmp_path / "enter").mkdir()
    for rank in range(2):
        (tmp_path / "enter" / f"enter-{rank}").write_bytes(struct.pack("<qd", 1, entered_s))
    seen_for_s = []
    for by_ranks in (True, False):
        row = make_row(RANK_3, from_launch=True, by_ranks=by_ranks)
        stage = _Stage(row, 0, row.setup(0), tmp_path, Options(out=tmp_path))
        seen_for_s.append(stage._seen_for_s(job))  # type: ignore[arg-type]
    assert 99.0 < seen_for_s[0] < 900.0
    assert seen_for_s[1] == 0.0


@pytest.mark.lab
def test_a_false_alarm_before_the_fault_and_a_wrong_culprit_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = {"early": verdict(ranks=[3]), "status": "fault", "say": verdict(ranks=[0])}
    result = played(tmp_path, wish, monkeypatch)
    assert result.outcome == "wrong"
    assert {words.partition(" (")[0] for words in result.blamed_innocents} == {"X001 before the fault", "rank 0"}


@pytest.mark.lab
def test_a_torn_report_makes_the_scenario_worthless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = played(tmp_path, {"garbage": True, "status": "healthy"}, monkeypatch, limit_s=1.5)
    assert result.outcome == "not played"
    assert "JSONDecodeError" in result.problem


@pytest.mark.lab
def test_a_control_is_watched_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = played(tmp_path, {"status": "healthy", "end": True}, monkeypatch, control=True, limit_s=20)
    assert quiet.outcome == "quiet"
    wish = {"status": "fault", "say": verdict(ranks=[0]), "end": True}
    assert played(tmp_path, wish, monkeypatch, control=True, limit_s=20).outcome == "false alarm"


@pytest.mark.lab
def test_a_launcher_that_cannot_run_is_a_problem_and_no_miss(tmp_path: Path) -> None:
    row = make_row(RANK_3)
    options = Options(out=tmp_path / "out", run_argv=("/no/such/program",), state_dir=tmp_path / "labs")
    result = play(row, 0, options)
    assert result.outcome == "not played"
    assert not (tmp_path / "labs").exists()


# --- the command


@pytest.mark.thorough
def test_the_list_says_what_this_machine_cannot_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--all", "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "B14   GPU kernel spins  (not on this machine: needs a GPU" in out
    assert "B02   SIGSTOP\n" in out


def test_a_wrong_choice_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "B99"]) == 2
    assert "there is no row 'B99'" in capsys.readouterr().err


def test_rows_that_cannot_be_shown_give_exit_code_3_and_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--only", "B14", "--out", str(tmp_path / "o"), "--lang", "en"]) == 3
    assert "B14 not on this machine: needs a GPU" in capsys.readouterr().out
    saved = board.load(tmp_path / "o" / "scoreboard.json")
    assert saved.summary.num_faults == 0
    assert saved.not_shown[0].row == "B14"


def test_another_version_of_a_library_comes_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS["A19J"]
    monkeypatch.delenv(OTHER_LIBRARIES, raising=False)
    missing.cache_clear()
    assert "names no folder with another version of jax" in str(missing("other jax"))
    (tmp_path / "jax").mkdir()
    monkeypatch.setenv(OTHER_LIBRARIES, str(tmp_path))
    missing.cache_clear()
    assert (missing("other jax"), missing("other torch") is None) == (None, False)
    made = row.make(Pick(row.id, 3))
    [node] = made.node_env
    assert made.node_env[node] == {"PYTHONPATH": str(tmp_path)}
    assert [answer.nodes for answer in made.expected.answers] == [(node,)]
    missing.cache_clear()


# --- how it is started


@cases("words", [("benchmarks/fault_suite",), ("-m", "allready", "lab", "score")])
@pytest.mark.thorough
def test_both_ways_to_start_it_take_its_options(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, *words, "--list", "--only", "B02", "--lang", "en"],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("B02   SIGSTOP")


def test_both_languages_have_the_same_labels() -> None:
    english, chinese = (labels.table(language) for language in ("en", "zh"))
    assert set(english) == set(chinese)
    assert all(placeholders(english[name]) == placeholders(chinese[name]) for name in english)
