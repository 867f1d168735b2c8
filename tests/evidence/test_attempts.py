"""`attempts.jsonl` of a run is its own word on how the job ended."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from allready.cli.main import main
from allready.evidence.attempts import read_attempts
from allready.model import AttemptRecord, ClosingKind, EndCause
from allready.report.json_report import decode
from tests.cases import cases

CRASH = (
    "[Fri Nov 20 11:51:02 2026] python[30496]: segfault at 10 ip 00007f3c1a2b3c4d sp 00007ffd1a2b3c40 error 4 "
    "in libc.so.6[7f3c18000000+8000000]\n"
)


def attempt(number: int, outcome: EndCause = EndCause.SUCCESS, exit_code: int = 0) -> bytes:
    return msgspec.json.encode(
        AttemptRecord(
            attempt=number,
            start="2026-11-20T11:50:00.000+00:00",
            end="2026-11-20T11:52:00.000+00:00",
            duration_s=120.0,
            outcome=outcome,
            reason="all 2 ranks ended with exit code 0" if not exit_code else "rank 1 failed",
            exit_code=exit_code,
            num_nodes=1,
            world_size=2,
            first_failed_rank=None,
            cause_rank=None,
            lost_nodes=(),
            excluded_nodes={},
            wait_s=None,
            why_last="",
        )
    )


@cases(
    ("lines", "is_good", "num_understood"),
    [
        ([attempt(0)], True, 1),
        ([attempt(0, EndCause.HUNG, 1), attempt(1)], True, 2),
        ([attempt(0), attempt(1, EndCause.CRASHED, 134)], False, 2),
        ([attempt(0, EndCause.STOPPED, 143)], False, 1),
        ([attempt(0), attempt(1)[:40]], False, 1),  # the disk was full: how the last one ended is not known
        ([], False, 0),
    ],
)
def test_the_last_attempt_tells_how_the_job_ended(lines: list[bytes], is_good: bool, num_understood: int) -> None:
    reading = read_attempts(b"\n".join(lines), "run/attempts.jsonl")
    assert (reading.closing is not None) is is_good
    assert reading.source.num_understood == num_understood
    if reading.closing is not None:
        assert reading.closing.kind is ClosingKind.RECORD


def diagnosed(folder: Path) -> Any:
    target = folder.parent / "report.json"
    main(["diagnose", "-q", "--json", str(target), str(folder)])
    return decode(target.read_bytes())


def test_a_crash_of_some_other_process_is_no_fault_of_a_job_that_ended_well(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "kernel.log").write_text(CRASH)
    (folder / "rank0.log").write_text("step 1\n")
    assert diagnosed(folder).verdict is not None
    (folder / "attempts.jsonl").write_bytes(attempt(0) + b"\n")
    report = diagnosed(folder)
    assert (report.verdict, report.status) == (None, "healthy")
    (folder / "attempts.jsonl").write_bytes(attempt(0, EndCause.CRASHED, 139) + b"\n")
    assert diagnosed(folder).verdict is not None


def test_an_exception_in_the_files_contradicts_the_record(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "attempts.jsonl").write_bytes(attempt(0) + b"\n")
    trace = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nValueError: bad batch\n'
    (folder / "rank1.log").write_text("".join(f"[rank1]: {line}\n" for line in trace.splitlines()))
    assert diagnosed(folder).verdict is not None


@pytest.mark.parametrize(("crash", "is_the_cause"), [("11:51:02", True), ("03:51:02", True), ("11:12:02", False)])
def test_a_crash_in_no_zone_within_the_recorded_time_explains_nothing(
    crash: str, is_the_cause: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "attempts.jsonl").write_bytes(attempt(0, EndCause.CRASHED, 139) + b"\n")
    (folder / "kernel.log").write_text(CRASH.replace("11:51:02", crash))
    verdict = diagnosed(folder).verdict
    assert (verdict is not None and verdict.code == "KRN009") is is_the_cause
