"""Logs of NCCL that an agent reads: those that stand, once, beside everything else."""

import os
import threading
import time
from pathlib import Path

import pytest

from allready.evidence.nccl_record import decoded
from allready.live import run_paths
from allready.live.node import nccl_logs
from allready.live.node.handle import RankHandle
from allready.live.node.nccl_logs import STANDS_S, NcclLogs
from allready.live.node.observer import NodeObserver
from allready.proc.clocks import age_s
from allready.proc.process import identify
from tests.evidence.test_nccl_record import LOOP, log
from tests.live.node.nodes import until

WAIT_S = 10.0


def asked(logs: NcclLogs, path: Path, now_s: float, *, is_gone: bool = False, may_read: bool = True) -> int | None:
    """How many calls are reported of rank 0 after a question; None: nothing."""
    logs.ask({0: (path, is_gone)}, now_s, may_read=may_read)
    text = logs.records(WAIT_S).get(0)
    return None if text is None else sum(s.num_operations for s in decoded(text).op_streams)


def test_a_log_is_read_when_it_has_stopped_growing(tmp_path: Path) -> None:
    logs, path = NcclLogs(), tmp_path / "nccl.gpu1.10.log"
    assert asked(logs, path, 0.0) is None, "there is none yet"
    path.write_bytes(log(0, LOOP[:10]))
    assert asked(logs, path, 1.0) is None, "it may be growing"
    path.write_bytes(log(0, LOOP[:20]))
    assert asked(logs, path, 2.0) is None, "it grows"
    assert asked(logs, path, 2.0 + STANDS_S / 2) is None, "a moment is not enough"
    assert asked(logs, path, 2.0 + STANDS_S, may_read=False) is None, "the first question costs nothing"
    assert asked(logs, path, 2.0 + STANDS_S) == 20
    path.write_bytes(log(0, LOOP[:30]))
    assert asked(logs, path, 9.0) is None, "the rank went on: what was read is of before"


def test_a_log_of_a_rank_that_has_ended_grows_no_more(tmp_path: Path) -> None:
    path = tmp_path / "nccl.gpu1.10.log"
    path.write_bytes(log(0, LOOP[:10]))
    assert asked(NcclLogs(), path, 0.0, is_gone=True) == 10


def test_it_is_read_once_and_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, path = NcclLogs(), tmp_path / "nccl.gpu1.10.log"
    path.write_bytes(log(0, LOOP[:10]))
    assert asked(logs, path, 0.0, is_gone=True) == 10
    monkeypatch.setattr(NcclLogs, "_read", lambda *_: pytest.fail("read again"))
    assert asked(logs, path, 5.0, is_gone=True) == 10


def test_a_log_that_cannot_be_read_costs_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine, logs = NcclLogs._read, NcclLogs()

    def read(self: NcclLogs, file: nccl_logs.LogFile) -> str:
        if "/0/" in file.path:
            raise RuntimeError("a line that no reader expects")
        return genuine(self, file)

    monkeypatch.setattr(NcclLogs, "_read", read)
    for rank in (0, 1):
        (tmp_path / str(rank)).mkdir()
        (tmp_path / str(rank) / "nccl.log").write_bytes(log(rank, LOOP[:10]))
    logs.ask({rank: (tmp_path / str(rank) / "nccl.log", True) for rank in (0, 1)}, 0.0, may_read=True)
    records = logs.records(WAIT_S)
    assert records[0] == ""
    assert decoded(records[1]).op_streams[0].num_operations == 10


def test_what_takes_longer_than_an_answer_is_in_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, may_go_on = tmp_path / "nccl.gpu1.10.log", threading.Event()
    path.write_bytes(log(0, LOOP[:10]))
    genuine, logs = NcclLogs._read, NcclLogs()
    monkeypatch.setattr(NcclLogs, "_read", lambda self, file: (may_go_on.wait(WAIT_S), genuine(self, file))[1])
    logs.ask({0: (path, True)}, 0.0, may_read=True)
    assert (logs.records(0.05), logs.is_reading) == ({}, True)
    may_go_on.set()
    assert (set(logs.records(WAIT_S)), logs.is_reading) == ({0}, False)


def test_reading_ends_with_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next two megabytes of a long log."""
    path, logs = tmp_path / "nccl.gpu1.10.log", NcclLogs()
    path.write_bytes(log(0, LOOP))
    logs.close()
    assert asked(logs, path, 0.0, is_gone=True) is None
    until(lambda: [t.name for t in threading.enumerate() if "NCCL" in t.name], lambda names: not names)


def test_an_agent_answers_with_the_calls_of_a_rank_that_ended(tmp_path: Path) -> None:
    (tmp_path / "rank0").mkdir()
    path = tmp_path / "rank0/nccl.gpu1.10.log"
    observer = NodeObserver(node_rank=0, name="here", run_dir=tmp_path)
    try:
        gone = 4_194_303  # no process has this number
        observer.set_ranks(
            {0: RankHandle(rank=0, local_rank=0, pid=gone, nccl_log_glob=f"{path.parent}/nccl.*.log")}, 0
        )
        assert not observer.has_nccl_logs()
        path.write_bytes(log(0, LOOP[:10]))
        assert observer.has_nccl_logs()
        assert [r.nccl_record for r in observer.gather(1, with_dump=False).ranks] == [""]
        [rank] = observer.gather(2, deadline_s=WAIT_S).ranks
        assert decoded(rank.nccl_record).op_streams[0].num_operations == 10
    finally:
        observer.close()


def test_a_log_from_before_a_process_is_not_its_own(tmp_path: Path) -> None:
    """An earlier run's on the same host, whose process had the same number: in containers that is the rule."""
    path = tmp_path / "nccl.gpu1.10.log"
    path.write_bytes(log(0, LOOP[:10]))
    process = identify(os.getpid())
    assert process is not None
    began_s = time.time() - age_s(process.start_ticks)
    run_paths.make_rank_dir(tmp_path, 0)
    observer = NodeObserver(node_rank=0, name="here", run_dir=tmp_path)
    try:
        observer.set_ranks({0: RankHandle(rank=0, local_rank=0, pid=os.getpid(), nccl_log_glob=str(path))}, 0)
        for written_s, is_own in ((began_s - 60.0, False), (began_s + 0.01, True)):
            os.utime(path, (written_s, written_s))
            assert observer.has_nccl_logs() == is_own
            [rank] = observer.gather(1, deadline_s=WAIT_S, with_dump=False).ranks
            assert bool(rank.nccl_log_tail) == is_own
    finally:
        observer.close()
