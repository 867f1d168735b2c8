"""`allready diagnose` as a user types it: options, exit codes, filters, archives, following, interrupts."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from allready.cli import diagnose
from allready.cli.diagnose_judge import Saved, undecided, unseen_speed
from allready.cli.diagnose_time import since
from allready.cli.main import main
from allready.errors import UsageError
from allready.evidence.reading import Reading
from allready.model import (
    GroupProgress,
    Position,
    ProcessRecord,
    Recorder,
    RunEvidence,
    RunSummary,
    SourceRecord,
    UncheckedKind,
)
from allready.report.json_report import encode
from tests.cases import cases
from tests.cli.processes import PROGRAM, eventually, plain_environment
from tests.report.made_up import healthy_report
from tests.report.test_course import COURSE

RUNS = Path(__file__).resolve().parents[1] / "fixtures" / "runs"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some recorded runs, unpacked."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("ok", "sigstop", "exception"):
        with tarfile.open(RUNS / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder


def diagnosed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a command that ends."""
    code = main(["diagnose", *map(str, words), "--json", "-"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, report


def ended(*words: object) -> int:
    try:
        return main(["diagnose", *map(str, words)])
    except SystemExit as end:
        return int(str(end.code))


WRONG: list[tuple[tuple[str, ...], str]] = [
    ((), "name files, folders or archives"),
    (("no-such-file",), "no-such-file: there is no such file or folder"),
    (("no-such-*.log",), "no file fits this pattern"),
    (("a", "b"), "a: there is no such file or folder; b: there is"),
    ((".", "--since", "soon"), "'soon' is not a time"),
    ((".", "--since", "25:00"), "is not a time"),
    ((".", "--since", "2026-13-45"), "is not a time"),
    ((".", "--rank", "1-"), "is not a list of ranks"),
    ((".", "--rank", "5-2"), "is not a list of ranks"),
    ((".", "--rank", "0-99999999999"), "is not a list of ranks"),
    ((".", "--only", "logs"), "'logs' is no kind of source; there are: log, flight"),
    ((".", "--only", ","), "',' is no kind of source; there are"),
    ((".", "--iteration-marker", "step ("), "not a regular expression"),
    ((".", "--iteration-marker", "step"), "has no group"),
    ((".", "--jobs", "0"), "not a whole number from 1"),
    ((".", "--until-idle", "3"), "--until-idle goes with --follow"),
    (("-", "--follow"), "--follow goes with files"),
    ((".", "--follow", "--baseline", "x"), "--follow goes with files"),
    ((".", "--trace", "/no/such/folder/t.json"), "--trace /no/such/folder/t.json"),
    ((".", "--trace", "/tmp"), "--trace /tmp"),
    ((".", "--json", "/no/such/folder/r.json"), "--json /no/such/folder/r.json"),
]


@cases(("words", "told"), WRONG, ids=[" ".join(w) or "nothing" for w, _ in WRONG])
def test_what_cannot_be_done_is_said_with_exit_code_2(
    words: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(*words) == 2
    assert told in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--help") == 0
    out = capsys.readouterr().out
    for option in (
        "--json",
        "--html",
        "--lang",
        "--report-dir",
        "--baseline",
        "--follow",
        "--since",
        "--rank",
        "--only",
        "--iteration-marker",
        "--trace",
        "--explain-line",
        "--jobs",
        "--until-idle",
    ):
        assert option in out


def test_a_fault_is_told_with_exit_code_1(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = diagnosed(capsys, runs / "exception")
    assert code == 1
    assert report["command"] == "diagnose"
    assert report["status"] == "fault"
    assert report["verdict"]["culprits"]["ranks"] == [2]
    assert report["verdict"]["detect_s"] is None


def test_a_run_that_ended_well_is_healthy(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = diagnosed(capsys, runs / "ok")
    assert (code, report["status"], report["verdict"]) == (0, "healthy", None)


def test_where_nothing_decisive_is_found_it_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, why in (("epoch 1\nepoch 2\n", "how far it was to count"), ("reading\nworking\n", "how the run ended")):
        (tmp_path / "x.log").write_text(text)
        code, report = diagnosed(capsys, tmp_path)
        assert (code, report["status"]) == (3, "unknown")
        assert any(why in n["why"] for n in report["not_checked"])


def test_an_end_from_outside_is_told_first_although_nobody_is_at_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = "torch/distributed/elastic"
    lines = [
        *(f"step {step}" for step in range(3)),
        f"W1124 04:49:15.509000 25938 {place}/agent/server/api.py:753] Received 15 death signal, shutting down workers",
        f"W1124 04:49:15.510000 25938 {place}/multiprocessing/api.py:1028] Sending process 44 closing signal SIGTERM",
    ]
    (tmp_path / "job.log").write_text("\n".join(lines) + "\n")
    assert main(["diagnose", "-q", "--lang", "en", str(tmp_path / "job.log")]) == 3
    assert "most likely: the run was terminated from outside (Received 15 death signal" in capsys.readouterr().out


WATCHDOG = (
    "[rank{0}]:[E1120 11:51:0{0}.123456789 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 "
    "milliseconds before timing out.\n"
)


@cases(
    "when, code",
    [("Thu Nov 12 09:00:01", "HNG009"), ("Sun Nov 22 09:00:01", "HNG009"), ("Fri Nov 20 11:50:58", "KRN009")],
)
def test_a_crash_that_the_kernel_saw_on_another_day_is_not_above_what_the_run_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], when: str, code: str
) -> None:
    (tmp_path / "train.log").write_text("".join(WATCHDOG.format(rank) for rank in (0, 1)))
    crash = "python[999]: segfault at 0 ip 00007f1c2b sp 00007ffd error 4 in libc.so.6[7f1c2b+1a000]"
    (tmp_path / "dmesg.log").write_text(f"[{when} 2026] {crash}\n")
    _, report = diagnosed(capsys, tmp_path)
    assert report["verdict"]["code"] == code


def test_where_nothing_can_be_read_the_reason_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.pt").write_bytes(b"\x7fELF" + bytes(100))
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    assert main(["diagnose", str(tmp_path), "--json", "-"]) == 3
    told = capsys.readouterr()
    assert "nothing to read a verdict from in the input (found: binary file, device or pipe, empty file)" in told.err
    report = json.loads(told.out)
    assert report["status"] == "unknown"
    assert any("named pipe" in note for note in report["notes"])


def test_what_is_missing_or_damaged_is_noted_and_the_rest_counts(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03abc")
    code, report = diagnosed(capsys, runs / "exception", tmp_path, tmp_path / "gone")
    assert code == 1
    assert any("cut.gz" in note for note in report["notes"])
    assert any("gone: there is no such file" in note for note in report["notes"])


def verdict(report: dict[str, Any]) -> Any:
    v = report["verdict"]
    return v and (v["code"], v["fault_class"], v["culprits"], v["fault_time"])


def _pack(mode: Any) -> Callable[[Path, Path], None]:
    def pack(run: Path, to: Path) -> None:
        with tarfile.open(to, mode) as archive:
            archive.add(run, "run")

    return pack


@pytest.mark.thorough
@cases("name", ["ok", "sigstop", "exception"])
@cases("mode", ["w", "w:gz", "w:xz", "zip"])
def test_an_archive_gets_the_verdict_of_its_folder(
    name: str, mode: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if mode == "zip":
        path = Path(shutil.make_archive(str(tmp_path / "run"), "zip", runs / name))
    else:
        path = tmp_path / "run"
        _pack(mode)(runs / name, path)
    code, report = diagnosed(capsys, path)
    expected_code, expected = diagnosed(capsys, runs / name)
    assert (code, verdict(report)) == (expected_code, verdict(expected))
    assert len(report["findings"]) == len(expected["findings"])


@pytest.mark.thorough
def test_standard_input_may_be_a_log_or_an_archive(runs: Path, tmp_path: Path) -> None:
    _pack("w:gz")(runs / "exception", tmp_path / "t")
    for data, code in (((tmp_path / "t").read_bytes(), 1), ((runs / "exception" / "stdout.node1.log").read_bytes(), 1)):
        done = subprocess.run(
            [*PROGRAM, "diagnose", "-", "--json", "-"],
            input=data,
            capture_output=True,
            timeout=60,
            check=False,
            env=plain_environment(),
        )
        assert done.returncode == code, done.stderr
        assert json.loads(done.stdout)["verdict"]["fault_class"] == "DEAD"


def test_a_pattern_in_quotes_is_filled_in(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = diagnosed(capsys, f"{runs}/exception/stdout.*.log")
    assert code == 1
    assert {s["path"].rpartition("/")[2] for s in report["ruins"]["sources"]} == {
        "stdout.node0.log",
        "stdout.node1.log",
    }


def test_only_reads_the_kinds_that_were_asked_for(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, report = diagnosed(capsys, runs / "sigstop", "--only", "flight,ras")
    assert {s["kind"] for s in report["ruins"]["sources"]} == {"flight recorder", "ras"}


def test_since_leaves_out_what_came_before(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, whole = diagnosed(capsys, runs / "exception")
    _, late = diagnosed(capsys, runs / "exception", "--since", "2100-01-01")
    assert len(late["findings"]) < len(whole["findings"])
    assert diagnosed(capsys, runs / "exception", "--since", "2000-01-01 00:00")[1]["verdict"] is not None


def test_rank_shows_what_these_ranks_wrote_and_judges_by_everything(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, whole = diagnosed(capsys, runs / "sigstop")
    code, report = diagnosed(capsys, runs / "sigstop", "--rank", "2")
    assert {row["rank"] for row in report["ruins"]["ranks"]} == {2}
    assert {m["rank"] for m in report["ruins"]["moments"]} <= {2, None}
    assert (code, report["verdict"]["culprits"]) == (1, whole["verdict"]["culprits"])


def test_since_leaves_out_what_was_before_but_not_a_death_that_explains_it(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = diagnosed(capsys, runs / "exception", "--since", "5s")
    assert (code, report["verdict"]["fault_class"], report["verdict"]["culprits"]["ranks"]) == (1, "DEAD", [2])


H200 = Path(__file__).resolve().parents[1] / "fixtures" / "h200"


def test_a_report_of_check_is_judged_again(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = diagnosed(capsys, H200 / "two_nodes_docker0.node0.json")
    saved = json.loads((H200 / "two_nodes_docker0.node0.json").read_text())
    assert code == 1
    assert report["verdict"]["culprits"] == saved["verdict"]["culprits"]
    assert report["verdict"]["code"] == saved["verdict"]["code"]


def test_a_healthy_check_alone_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = diagnosed(capsys, H200 / "two_nodes.node0.json")
    assert (code, report["status"], report["world"]["world_size"]) == (0, "healthy", 4)


def test_a_check_before_the_run_and_what_the_run_left_are_judged_together(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = diagnosed(capsys, H200 / "two_nodes.node0.json", runs / "exception")
    assert (code, report["verdict"]["fault_class"], report["verdict"]["culprits"]["ranks"]) == (1, "DEAD", [2])


@pytest.mark.parametrize(
    "text", ['{"schema": "allready.report/1", "command": "check"}', '{"schema": "allready.report/9"}']
)
def test_a_broken_report_is_named_and_loses_nothing(
    text: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(text)
    code, report = diagnosed(capsys, tmp_path / "report.json", runs / "exception")
    assert (code, report["verdict"]["culprits"]["ranks"]) == (1, [2])


def live_report(began: str, code: str, **culprits: list[int]) -> dict[str, Any]:
    """As `allready run` leaves it: a stopped rank, for a job that began then and lasted a minute."""
    saved: dict[str, Any] = json.loads((H200 / "two_nodes_stopped.node0.json").read_text())
    accused: dict[str, list[int]] = {"nodes": [], "ranks": [], "links": [], "variables": []} | culprits
    finding = saved["findings"][0] | {"code": code, "severity": "error", "culprits": accused, "confidence": "certain"}
    verdict = saved["verdict"] | {"code": code, "culprits": accused}
    return saved | {
        "command": "run",
        "started": began,
        "duration_s": 60.0,
        "status": "fault",
        "findings": [finding],
        "verdict": verdict,
        "roll": None,
        "reach": None,
        "collectives": None,
        "facts": {},
    }


def test_what_run_saw_counts_and_a_node_that_only_lost_node_0_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = "2026-11-20T10:00:00.000+00:00"
    for node, report in enumerate([live_report(began, "LIV001", ranks=[3]), live_report(began, "JOB010", nodes=[0])]):
        (tmp_path / f"node{node}.json").write_text(json.dumps(report))
    _, report = diagnosed(capsys, tmp_path)
    assert (report["verdict"]["code"], report["verdict"]["culprits"]["ranks"]) == ("LIV001", [3])
    assert "JOB010" not in {f["code"] for f in report["findings"]}


def test_only_the_newest_run_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (
        live_report("2026-11-19T10:00:00+00:00", "LIV001", ranks=[1]),
        live_report("2026-11-20T10:00:00+00:00", "LIV001", ranks=[2]),
    )
    for name, written in (("a", old), ("b", new)):
        (tmp_path / f"{name}.json").write_text(json.dumps(written))
    _, report = diagnosed(capsys, tmp_path)
    assert report["verdict"]["culprits"]["ranks"] == [2]
    assert any("1 reports of earlier `allready run`" in note for note in report["notes"])


def test_a_trace_is_written(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diagnosed(capsys, runs / "sigstop", "--trace", tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_good_run_is_compared_with(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = diagnosed(capsys, "--baseline", runs / "ok", runs / "exception")
    assert code == 1
    assert report["ruins"]["baseline"] == str(runs / "ok")
    assert report["ruins"]["differences"]
    assert ended("--baseline", "/no/such/run", runs / "ok") == 2
    assert "--baseline /no/such/run: there is no such" in capsys.readouterr().err


def test_reports_are_written_where_they_were_asked_for(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(runs / "sigstop"), "--report-dir", str(tmp_path / "r"), "--lang", "zh", "-q"]) == 1
    assert json.loads((tmp_path / "r" / "report.json").read_text())["status"] == "fault"
    assert "<html" in (tmp_path / "r" / "report.html").read_text()
    assert capsys.readouterr().out


@pytest.mark.thorough
def test_workers_change_nothing(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from allready.evidence import read

    monkeypatch.setattr(read, "_WORKER_BYTES", 1)
    monkeypatch.setattr(read, "_SPAWN_BYTES", 0)
    reports = []
    for jobs in (1, 3):
        _, report = diagnosed(capsys, runs / "sigstop", "--jobs", jobs)
        for key in ("started", "duration_s"):
            del report[key]
        del report["verdict"]["detected_time"]
        reports.append(report)
    assert reports[0] == reports[1]


class Following:
    """A running `allready diagnose --follow`."""

    def __init__(self, *words: object) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, "diagnose", "--follow", *map(str, words), "--lang", "en", "-q"],
            env=plain_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=10)


def status_in(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["status"])
    except (OSError, ValueError):
        return None


@pytest.mark.thorough
def test_following_says_the_verdict_when_it_changes_and_ends_on_an_interrupt(runs: Path, tmp_path: Path) -> None:
    job, report = tmp_path / "job", tmp_path / "report.json"
    job.mkdir()
    (job / "out.log").write_text("starting\n")
    with Following(job, "--json", report) as following:
        eventually(lambda: status_in(report) == "unknown", within_s=20, what=lambda: str(status_in(report)))
        for file in (runs / "exception").iterdir():
            shutil.copy(file, job)
        eventually(lambda: status_in(report) == "fault", within_s=20, what=lambda: str(status_in(report)))
        os.killpg(following.process.pid, signal.SIGINT)
        out, errors = following.process.communicate(timeout=10)
    assert following.process.returncode == 1, errors
    assert "Traceback" not in errors
    assert "UNKNOWN" in out
    assert out.count("FAULT") >= 2  # when it changed, and at the end


@pytest.mark.thorough
def test_following_ends_when_nothing_comes_any_more(runs: Path, tmp_path: Path) -> None:
    with Following(runs / "ok", "--until-idle", "1") as following:
        out, errors = following.process.communicate(timeout=30)
    assert following.process.returncode == 0, errors
    assert "HEALTHY" in out


@pytest.mark.jobs
def test_an_interrupt_while_reading_ends_with_code_3_and_leaves_nothing(tmp_path: Path) -> None:
    reader = subprocess.Popen(
        [*PROGRAM, "diagnose", "-"],
        env=plain_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert reader.stdin is not None
        reader.stdin.write(b"x\n" * 100_000)
        reader.stdin.flush()
        time.sleep(1.0)  # it waits for more
        children = psutil.Process(reader.pid).children(recursive=True)
        os.killpg(reader.pid, signal.SIGINT)
        reader.wait(10)
        assert reader.returncode == 3
        assert not [c for c in children if c.is_running()]
    finally:
        reader.kill()
        reader.communicate(timeout=10)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@cases(
    ("text", "moment"),
    [
        ("2026-11-20 11:51", "2026-11-20T11:51:00"), ("2026-11-20T11:51:03.5", "2026-11-20T11:51:03.500"),
        ("2026-11-20", "2026-11-20T00:00:00"), ("11:51", "2026-11-20T11:51:00"), ("12:30", "2026-11-19T12:30:00"),
        ("11:51:30", "2026-11-20T11:51:30"), ("10m", "2026-11-20T11:50:00"), ("90s", "2026-11-20T11:58:30"),
        ("1.5h", "2026-11-20T10:30:00"), ("2d", "2026-11-18T12:00:00"),
    ],
)  # fmt: skip
def test_a_time_may_be_said_in_many_ways(text: str, moment: str) -> None:
    assert since(text)(at("2026-11-20T12:00:00")) == at(moment)


def test_a_duration_needs_evidence_that_has_times() -> None:
    with pytest.raises(UsageError, match="no line of the evidence has a time"):
        since("10m")(None)
    assert since("2026-11-20")(None) == at("2026-11-20T00:00:00")


@cases("text", ["", "m", "-5m", "99:99", "11:51:99", "yesterday", "2026-02-30", "1e9", "١٠m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        since(text)


def test_ranks_are_read() -> None:
    assert diagnose.ranks("0, 2,5-7") == {0, 2, 5, 6, 7}


def test_progress_says_bytes_rate_and_what_is_left() -> None:
    key, values = diagnose.progress_values(3 << 30, 10 << 30, 3.0)
    assert key == "diagnose.reading"
    assert values == {
        "bar": "[######..............]",
        "done": "3 GiB",
        "total": "10 GiB",
        "rate": "1 GiB",
        "left": "7 s",
    }
    assert diagnose.progress_values(1 << 30, None, 2.0)[0] == "diagnose.reading_open"
    assert diagnose.progress_values(0, 100, 0.0)[1]["left"] == "–"


def test_it_starts_without_torch_and_quickly() -> None:
    script = (
        "import sys; from allready.cli.main import main; main(['diagnose', '--explain-line', 'x']); "
        "print(sorted(m for m in ('torch', 'numpy', 'rich', 'jinja2') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_rank_compares_with_the_same_ranks_of_a_good_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, report = diagnosed(capsys, "--baseline", runs / "ok", runs / "ok", "--rank", "1")
    assert report["ruins"]["baseline"] == str(runs / "ok")
    assert report["ruins"]["differences"] == []


@pytest.mark.thorough
def test_a_huge_report_in_the_input_is_not_parsed_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "report.json"
    with saved.open("w") as file:
        file.write('{"schema":"allready.report/1","command":"check","findings":[')
        file.write('{"code":"HNG002"},' * 1_000_000 + "{}]}")
    assert main(["diagnose", str(saved), "--json", "-"]) == 3
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any("only its first 16 MiB were read" in note for note in notes)


def test_that_every_dump_is_complete_does_not_say_how_the_run_ended() -> None:
    at = Position(enqueued=64, completed=64)
    group = GroupProgress(
        group="0", source=Recorder.FLIGHT, members=(0, 1), size=2, positions={0: at, 1: at}, complete=True
    )
    readings = [Reading(source=SourceRecord(path="fr_0", kind="flight recorder", num_understood=64))]
    after = RunEvidence(progress=(group,), expected_ranks=2)
    assert [n.kind for n in undecided(after, readings, Saved(), is_fault=False)] == [UncheckedKind.END_UNKNOWN]
    assert undecided(replace(after, ended_well=frozenset({0, 1})), readings, Saved(), is_fault=False) == ()


def test_that_a_slow_rank_cannot_be_seen_is_said_only_where_no_operation_has_a_time() -> None:
    counted = (ProcessRecord(rank=0, op_counts={"all_reduce": 9}),)
    timed = GroupProgress(group="0", source=Recorder.COLL_LOG, positions={0: Position(enqueued=9, time_s=5.0)})
    [told] = unseen_speed(RunEvidence(processes=counted))
    assert "no operation has a time" in told.why
    assert not unseen_speed(RunEvidence(processes=counted, progress=(timed,)))
    assert not unseen_speed(RunEvidence())


def test_the_folder_of_a_healthy_run_shows_its_size_and_how_it_went(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = msgspec.structs.replace(healthy_report(2), command="run", course=COURSE, summary=RunSummary())
    (tmp_path / "report.json").write_bytes(encode(run))
    code, report = diagnosed(capsys, tmp_path)
    assert (code, report["status"]) == (0, "healthy")
    assert report["world"]["world_size"] == run.world.world_size
    assert report["course"]["num_iterations"] == COURSE.num_iterations
