"""`diagnose` with event logs of the runtime library, alone and beside what the ranks printed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from allready.cli.main import main
from allready.model import (
    CallFailed,
    CallPosition,
    FailureCause,
    GroupFormed,
    LogBegin,
    LogEnd,
    LogLine,
    MemberState,
    RankAtFailure,
    RuntimeFailure,
)
from allready.report.json_report import decode

CHAINED = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/opt/venv/lib/python3.11/site-packages/allready/runtime/calls.py", line 214, in _run_alone
[rank{rank}]:     _finish(work, begin_s, limit_s)
[rank{rank}]:   File "/home/u/src/allready/runtime/calls.py", line 261, in _finish
[rank{rank}]:     raise _Late
[rank{rank}]: allready.runtime.calls._Late

[rank{rank}]: During handling of the above exception, another exception occurred:

[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train.py", line 13, in <module>
[rank{rank}]:     allready.safe_all_reduce(t)
[rank{rank}]:   File "/home/u/src/allready/runtime/session.py", line 126, in fail
[rank{rank}]:     raise self.failure(operation, group)
[rank{rank}]: allready.runtime.failures.CollectiveFailed: RTM003: rank 2 gives no sign of life
"""
LOST = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/home/u/src/allready/runtime/calls.py", line 255, in _finish
[rank{rank}]:     work.wait(_SLICE)
[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:1

[rank{rank}]: The above exception was the direct cause of the following exception:

[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train.py", line 13, in <module>
[rank{rank}]:     allready.safe_all_reduce(t)
[rank{rank}]: allready.runtime.failures.CollectiveFailed: RTM001: rank 2 ended without leaving the job
"""


def failure(state: MemberState, cause: FailureCause) -> RuntimeFailure:
    call = CallPosition(entered=21, completed=20, operation="all_reduce", waited_s=4.0)
    ranks = [RankAtFailure(rank=r, state=MemberState.ANSWERED, call=call) for r in range(4)]
    ranks[2] = RankAtFailure(rank=2, state=state)
    return RuntimeFailure(epoch=1, cause=cause, reporter=0, ranks=tuple(ranks), time="2026-01-01T00:00:00+00:00")


def write_events(folder: Path, rank: int, *lines: LogLine) -> None:
    folder.mkdir(exist_ok=True)
    begin = LogBegin(attempt="a", rank=rank, world_size=4, time_s=1_767_225_600.0, host="gpu0", pid=100 + rank)
    (folder / f"events-rank{rank}.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, (begin, *lines))) + b"\n")


def diagnosed(*inputs: Path) -> tuple[int, Any]:
    target = inputs[0].parent / "report.json"
    code = main(["diagnose", "-q", "--json", str(target), *map(str, inputs)])
    return code, decode(target.read_bytes())


@pytest.mark.parametrize(
    ("printed", "state", "cause", "code"),
    [
        (CHAINED, MemberState.SILENT, FailureCause.DEADLINE, "RTM003"),
        (LOST, MemberState.DIED, FailureCause.DIED, "RTM001"),
    ],
)
def test_what_survivors_print_does_not_hide_what_the_ranks_agreed_upon(
    printed: str, state: MemberState, cause: FailureCause, code: str, tmp_path: Path
) -> None:
    logs, events = tmp_path / "logs", tmp_path / "events"
    logs.mkdir()
    for rank in range(4):
        (logs / f"rank{rank}.log").write_text("" if rank == 2 else printed.format(rank=rank))
        lines = () if rank == 2 else (CallFailed(time_s=1_767_225_605.0, failure=failure(state, cause)),)
        write_events(events, rank, *lines)
    for inputs in ((events,), (events, logs)):
        _, report = diagnosed(*inputs)
        assert (report.verdict.code, report.verdict.culprits.ranks) == (code, (2,)), inputs
    _, report = diagnosed(logs)
    accused = report.verdict.culprits.ranks if report.verdict is not None else ()
    assert set(accused) <= {2}, report.verdict


def test_a_run_whose_ranks_all_left_in_good_order_is_healthy(tmp_path: Path) -> None:
    for rank in range(4):
        write_events(tmp_path / "events", rank, LogEnd(time_s=1_767_225_700.0))
    code, report = diagnosed(tmp_path / "events")
    assert (code, report.status) == (0, "healthy")
    write_events(tmp_path / "events", 1, LogEnd(time_s=1_767_225_700.0, error="ValueError: x"))
    code, report = diagnosed(tmp_path / "events")
    assert code == 3


WATCHDOG = (
    "[rank{rank}]:[E0101 00:{minute:02}:00.000000000 WorkNCCL.cpp:201] [TC][rank={rank}][name=default_pg] "
    "Operation timed out after 60001 ms\n"
)
MINUTE = 60.0


@pytest.mark.parametrize(
    ("recovered", "minutes", "code", "culprit"),
    [(True, 30, "HNG008", 3), (True, 5, "RTM003", 2), (False, 30, "RTM003", 2)],
)
def test_a_hang_after_a_recovered_failure_is_not_taken_for_that_failure(
    recovered: bool, minutes: int, code: str, culprit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    logs, events = tmp_path / "logs", tmp_path / "events"
    logs.mkdir()
    begin_s = 1_767_225_600.0
    failed = CallFailed(time_s=begin_s + MINUTE, failure=failure(MemberState.SILENT, FailureCause.DEADLINE))
    formed = GroupFormed(time_s=begin_s + 10 * MINUTE, members=(0, 1, 2, 3), steps=(20,), took_s=0.1)
    for rank in range(4):
        (logs / f"rank{rank}.log").write_text("" if rank == culprit else WATCHDOG.format(rank=rank, minute=minutes))
        write_events(events, rank, failed, *((formed,) if recovered else ()))
    _, report = diagnosed(events, logs)
    assert (report.verdict.code, report.verdict.culprits.ranks) == (code, (culprit,))
