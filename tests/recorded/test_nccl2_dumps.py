"""Faults as nccl2's dumps and logs show them, composed from torch 2.15's formats: not recorded ones.

Each rank writes a dump by itself when it detects a time-out; one that is stuck elsewhere writes none.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.evidence.flight.dialect import torch_pickle
from tests.evidence.flight.make import dump, entry
from tests.recorded.archives import diagnosed, told
from tests.recorded.test_nccl2_logs import lost, timed_out

RANKS = 4
STEPS = 6


class Call(NamedTuple):
    """One operation at a line of the program."""

    name: str
    line: int
    size: int = 1024
    dtype: str = "Float"


STEP = (Call("nccl2:all_reduce", 20), Call("nccl2:_all_gather_base", 21, 512), Call("nccl2:reduce_scatter", 22, 2048))
LOOP = STEP * STEPS
AT = 3 * 4  # the first call of the fifth step
NUM = len(LOOP)


def played(calls: Sequence[Call], completed: int, group: str = "default_pg") -> dict[str, Any]:
    """A rank's dump: this many of its calls were completed, none is known to have begun."""
    made = [
        entry(
            at + 1,
            call.name,
            size=call.size,
            dtype=call.dtype,
            line=call.line,
            group=("0", group),
            state="completed" if at < completed else "scheduled",
        )
        | {"op_id": at}
        for at, call in enumerate(calls)
    ]
    numbers = {"last_enqueued_collective": len(calls) - 1, "last_started_collective": -1}
    status = {"0": numbers | {"last_completed_collective": completed - 1}}
    return dump(made, pg_status=status, groups={("0", group): tuple(range(RANKS))})


def others(calls: Sequence[Call], completed: int) -> dict[int, dict[str, Any]]:
    """The dumps of all ranks but 2, which do the same."""
    return {rank: played(calls, completed) for rank in range(RANKS) if rank != 2}


def odd(changed: Sequence[Call], *, completed: int = AT, at_once: int = 2) -> dict[int, dict[str, Any]]:
    """All stand in their operation behind the completed ones, or in one further; rank 2 made other calls."""
    upto = completed + at_once
    return others(LOOP[:upto], completed) | {2: played(changed[:upto], completed)}


SKIPPED = (*LOOP[:AT], *LOOP[AT + 1 :])
EXTRA = (*LOOP[:AT], Call("nccl2:broadcast", 44), *LOOP[AT:])
SWAPPED = (*LOOP[:AT], LOOP[AT + 1], LOOP[AT], *LOOP[AT + 2 :])
SIZED = (*LOOP[:AT], LOOP[AT]._replace(size=1000), *LOOP[AT + 1 :])
TYPED = (*LOOP[:AT], LOOP[AT]._replace(dtype="Half"), *LOOP[AT + 1 :])
ENDED = LOOP[:AT]

WAITED = "".join(map(timed_out, (0, 1, 3)))
ALL_WAITED = WAITED + timed_out(2)
KILLED = """
E1123 10:00:05.900000 4242 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -9) local_rank: 2 (pid: 4302) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_10:00:02
  host      : gpu01
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 4302)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4302
============================================================
"""  # noqa: E501


def raised(rank: int, *lines: str) -> str:
    """An exception out of a collective, as torch prints it."""
    above = ("Traceback (most recent call last):", '  File "/home/u/train.py", line 22, in <module>', "    step(batch)")
    return "".join(f"[rank{rank}]: {line}\n" for line in (*above, *lines))


FAILED = (
    "RuntimeError: NCCL AllReduce failed: remote process exited or there was a network error ",
    "NCCL Last Error: ",
)
TRUNCATED = (
    "NET/Socket : peer 10.0.0.2<41001> message truncated : receiving 4096 bytes instead of 4000. If you believe your "
    "socket network is in a healthy state, there may be a mismatch in collective sizes or environment settings"
)

Dumps = Mapping[int, Mapping[str, Any]]

TABLE: dict[str, tuple[Dumps, str, tuple[str, str, object] | str]] = {
    "never came, no dump": (others(LOOP[: AT + 1], AT), WAITED, ("CPU-STUCK", "likely", {"ranks": [2]})),
    "never came, the beacon's dump": (
        others(LOOP[: AT + 1], AT) | {2: played(ENDED, AT)}, WAITED, ("CPU-STUCK", "likely", {"ranks": [2]}),
    ),
    "left one out": (odd(SKIPPED), ALL_WAITED, ("DESYNC-FLOW", "certain", {"ranks": [2]})),
    "one more": (odd(EXTRA), ALL_WAITED, ("DESYNC-FLOW", "certain", {"ranks": [2]})),
    "another order": (odd(SWAPPED), ALL_WAITED, ("DESYNC-FLOW", "certain", {"ranks": [2]})),
    "another size": (odd(SIZED), ALL_WAITED, ("DESYNC-ARGS", "certain", {"ranks": [2]})),
    "another type": (odd(TYPED), ALL_WAITED, ("DESYNC-ARGS", "certain", {"ranks": [2]})),
    "all came, nothing moves": (
        {rank: played(LOOP[: AT + 1], AT) for rank in range(RANKS)}, ALL_WAITED, ("NET-BROKEN", "possible", {}),
    ),
    "killed": (others(LOOP[: AT + 1], AT), "".join(map(lost, (0, 1, 3))) + KILLED, ("DEAD", "certain", {"ranks": [2]})),
    "sizes, told by NCCL": ({}, raised(0, FAILED[0], FAILED[1] + TRUNCATED), ("DESYNC-ARGS", "possible", {})),
    "aborted before": (
        {}, "".join(raised(r, "RuntimeError: NCCL communicator was aborted after a previous error") for r in (0, 1, 3)),
        ("DEAD", "possible", {}),
    ),
    "silent at the end of a group": (
        {}, "".join(raised(r, "RuntimeError: Work timed out during finalize") for r in (0, 1, 3)),
        ("CPU-STUCK", "likely", {"ranks": [2]}),
    ),
    "silent beside those that raise": (
        {}, "".join(raised(r, "torch.distributed.DistBackendError: NCCL operation timed out") for r in (0, 1, 3)),
        ("CPU-STUCK", "likely", {"ranks": [2]}),
    ),
}  # fmt: skip


def test_every_class_that_dumps_and_logs_can_show_is_told(tmp_path: Path) -> None:
    wrong = []
    for number, (name, (dumps, log, expected)) in enumerate(TABLE.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for rank, made in dumps.items():
            (folder / f"nccl_trace_rank_{rank}").write_bytes(torch_pickle(made))
        if log:
            (folder / "train.log").write_text(log, encoding="utf-8")
        report = diagnosed(folder, tmp_path)
        verdict = report["verdict"]
        found = told(report) if verdict else report["status"]
        if found != expected:
            wrong.append(f"{name}: {found} instead of {expected}: {verdict['sentence'] if verdict else ''}")
    assert not wrong, "\n".join(wrong)
