"""Logs in the dialect of nccl2, torch 2.15's backend for NCCL, composed from its format strings: not recorded ones."""

from pathlib import Path

from tests.cases import cases
from tests.recorded.archives import diagnosed, told

SUMMARY = """
E1123 10:00:05.900000 4242 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -6) local_rank: 0 (pid: 4300) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-23_10:00:05
  host      : gpu01
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 4301)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 4301
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_10:00:05
  host      : gpu01
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 4300)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 4300
============================================================
"""  # noqa: E501
RAISED = """
[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/u/train.py", line 40, in <module>
[rank2]:     step(batch)
[rank2]:   File "/home/u/train.py", line 22, in step
[rank2]:     raise ValueError("loss is nan")
[rank2]: ValueError: loss is nan
"""


def said(rank: int, text: str, *, second: str = "00.1", group: str = "default_pg", number: int | None = None) -> str:
    tag = f"[TC][rank={rank if number is None else number}][name={group}]"
    return f"[rank{rank}]:[E1123 10:00:{second}{rank}3456 ProcessGroupNCCL.cpp:611] {tag} {text}\n"


def timed_out(rank: int, group: str = "default_pg", number: int | None = None) -> str:
    own = rank if number is None else number
    end = f"Aborting process on rank {own} due to timeout - timeout watchdog detected operation timeout"
    return (
        said(rank, "Operation timed out after 600012 ms", group=group, number=own)
        + said(rank, end, second="00.2", group=group, number=own)
        + f"[rank{rank}]:[E1123 10:00:00.3 FlightRecorderHook.cpp:520] FlightRecorderHook: dumping trace on collective "
        "failure\n"
    )


def lost(rank: int) -> str:
    error = "remote process exited or there was a network error"
    end = f"Aborting process on rank {rank} due to error - nccl hit async error: {error}"
    return said(rank, f"nccl hit async error on rank {rank}: {error}", second="02.1") + said(rank, end, second="02.2")


WAITED = "".join(map(timed_out, (0, 1, 3)))


@cases(
    ("text", "expected"),
    [
        (WAITED, ("CPU-STUCK", "likely", {"ranks": [2]})),
        (WAITED + SUMMARY, ("CPU-STUCK", "likely", {"ranks": [2]})),  # they end by SIGABRT themselves
        (WAITED + timed_out(2) + SUMMARY, ("CPU-STUCK", "possible", {})),
        (RAISED + "".join(map(lost, (0, 1, 3))), ("DEAD", "certain", {"ranks": [2]})),
        ("".join(map(lost, (0, 1, 3))), ("DEAD", "possible", {})),
        # In a group of some ranks, whose members no line tells.
        (WAITED.replace("default_pg", "5"), ("CPU-STUCK", "possible", {"ranks": [2]})),
        ("".join(timed_out(rank, "3", rank - 4) for rank in (4, 5, 7)), ("CPU-STUCK", "possible", {})),
    ],
)
def test_who_is_silent_beside_those_that_waited_is_named(
    text: str, expected: tuple[str, str, object], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "train.log").write_text(text, encoding="utf-8")
    assert told(diagnosed(tmp_path / "run", tmp_path)) == expected


def test_the_hang_began_a_time_out_before_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(WAITED, encoding="utf-8")
    verdict = diagnosed(tmp_path / "train.log", tmp_path)["verdict"]
    assert verdict["fault_time"].partition("T")[2].startswith("09:50:00")
