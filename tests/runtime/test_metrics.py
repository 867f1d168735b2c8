"""Counting, writing and telling, part by part: bounded, and never in the way of who reports."""

import json
import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allready.evidence.event_log import MAX_WAITS, is_event_log, read_event_log
from allready.evidence.sniff import EVENT_LOG, kind_of
from allready.judging.event_logs import join_event_logs
from allready.model import (
    CallFailed,
    CallPosition,
    CallWaits,
    FailureCause,
    LogBegin,
    LogEnd,
    LogLine,
    MemberState,
    RankAtFailure,
    RankOut,
    RuntimeFailure,
)
from allready.runtime.failures import CollectiveFailed, HubLost
from allready.runtime.member import Member
from allready.runtime.metrics.alerts import Alert, Command, Teller, Webhook
from allready.runtime.metrics.counts import BOUNDS_S, Latencies, Waits
from allready.runtime.metrics.courier import MAX_ERRORS, Courier
from allready.runtime.metrics.event_file import EventFile
from allready.runtime.metrics.recorder import BLOCK, CallRecorder
from allready.runtime.recording import CallListener, failed, left, listen, listeners, recorded, retried
from tests.clock import until

BEGIN = LogBegin(attempt="a1", rank=0, world_size=4, time_s=1000.0, host="gpu0", pid=7)
SECRET = "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdefgh"
ALERT = Alert(event="failed", sentence="rank 2 ended", time_s=1.0, rank=0, host="gpu0", attempt="a1")


def failure(epoch: int = 1, dead: int = 2, error: str = "") -> RuntimeFailure:
    answered = CallPosition(entered=3, completed=2, operation="all_reduce", waited_s=0.5)
    return RuntimeFailure(
        epoch=epoch,
        cause=FailureCause.DIED,
        reporter=dead,
        time="2026-01-01T00:00:00+00:00",
        ranks=tuple(
            RankAtFailure(rank=r, state=MemberState.DIED, error=error)
            if r == dead
            else RankAtFailure(rank=r, state=MemberState.ANSWERED, call=answered)
            for r in range(4)
        ),
    )


class Kept:
    """Keeps what it is given."""

    dropped = 0

    def __init__(self) -> None:
        self.lines: list[LogLine] = []

    def give(self, item: LogLine) -> bool:
        self.lines.append(item)
        return True

    def close(self, timeout_s: float) -> bool:
        return True

    def of(self, kind: type) -> list[Any]:
        return [line for line in self.lines if isinstance(line, kind)]


@given(st.lists(st.floats(0.0, 1e5), min_size=1, max_size=300), st.floats(0.0, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(times: list[float], share: float) -> None:
    found = Latencies()
    for took_s in times:
        found.add(took_s)
    ordered = sorted(times)
    true = ordered[max(0, ceil(share * len(times)) - 1)]
    edges = [0.0, *BOUNDS_S, float("inf")]
    low, high = next((a, b) for a, b in pairwise(edges) if true <= b)
    assert low <= found.quantile(share) <= high
    assert found.quantile(1.0) <= max(times)
    assert found.calls_within_s() == () or found.calls_within_s()[-1][1] <= len(times)


def test_waits_keep_the_last_and_tell_each_once() -> None:
    waits = Waits(100)
    told: list[int] = []
    for number in range(1, 1001):
        if waits.add(number, number / 1e6) >= 30:
            told += waits.unsent()[0]
    told += waits.unsent()[0]
    assert told == list(range(1, 1001))
    assert waits.last(100) == (tuple(range(901, 1001)), tuple(range(901, 1001)))


def test_a_thread_that_hangs_fails_or_is_flooded_costs_its_items_only() -> None:
    release, inside = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        inside.set()
        release.wait(60.0)

    hanging = Courier("hanging", hang, most=10)
    hanging.give(0)
    assert inside.wait(10.0)
    given_all = [hanging.give(n) for n in range(100)]
    assert (given_all.count(True), hanging.dropped) == (10, 90)
    assert not hanging.close(0.05)
    got: list[int] = []
    good = Courier("good", got.append, finish=lambda: got.append(-1), wants=lambda n: n % 2 == 0)
    assert [good.give(n) for n in range(6)] == [True] * 6
    assert good.close(10.0)
    assert got == [0, 2, 4, -1]
    assert not good.give(8)
    broken: Courier[int] = Courier("broken", lambda n: 1 // n)
    assert [broken.give(n) for n in (0, 1, 0)] == [True] * 3
    assert broken.close(10.0)
    assert broken.dropped == 2
    failing: Courier[int] = Courier("failing", lambda n: 1 // n)
    for _ in range(MAX_ERRORS + 5):
        failing.give(0)
    until(lambda: not failing.give(0), 10.0)
    assert failing.close(10.0)
    release.set()
    until(lambda: not any(t.name == "allready-hanging" for t in threading.enumerate()), 10.0)


def test_a_listener_that_fails_is_left_out_and_the_call_counts() -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: 1 // 0

    listen(Broken())
    assert recorded("all_reduce", (), lambda: None) is None
    assert not listeners
    listen(Broken())

    def lose() -> CollectiveFailed | None:
        raise HubLost(None, text="gone")

    with pytest.raises(HubLost):
        recorded("all_reduce", (), lose)
    assert not listeners


def member_at(epoch: int) -> Member:
    found = Member()
    found.epoch = epoch
    return found


def test_the_recorder_counts_a_failure_once_however_often_a_rank_learns_of_it() -> None:
    kept, member = Kept(), member_at(1)
    recorder = CallRecorder(BEGIN, member, [kept], every_s=60.0)
    told: CallListener = recorder
    listen(told)
    try:
        for _ in range(BLOCK + 3):
            member.world.entered += 1
            recorded("all_reduce", (), lambda: None)
        recorded("broadcast", (), lambda: None)
        error = CollectiveFailed(failure(), operation="all_reduce")
        assert recorded("all_reduce", (), lambda: error) is error
        failed(CollectiveFailed(failure(), operation="recover"))
        failed(HubLost(None, text="gone"))
        failed(HubLost(None, text="gone"))
        retried()
        left()
    finally:
        listen(None)
    counts = recorder.counts()
    assert (counts.failures, counts.retries, counts.operations["all_reduce"].calls) == (1, 1, BLOCK + 4)
    assert counts.operations["all_reduce"].failures == 1
    assert [w.numbers for w in kept.of(CallWaits)] == [tuple(range(1, BLOCK + 1)), tuple(range(BLOCK + 1, BLOCK + 4))]
    assert [len(kept.of(kind)) for kind in (CallFailed, RankOut, LogEnd)] == [1, 1, 1]
    member.epoch = 2
    assert recorder.last_waits(10) == (2, {})


def test_an_event_log_is_bounded_masked_and_read_again(tmp_path: Path) -> None:
    file = EventFile(tmp_path, BEGIN, max_bytes=40_000)
    for number in range(200):
        numbers = tuple(range(100 * number, 100 * (number + 1)))
        file.write(CallWaits(time_s=float(number), epoch=1, operation="barrier", numbers=numbers, waits_us=numbers))
    file.write(CallFailed(time_s=5000.0, failure=failure(error=SECRET)))
    file.close()
    assert file.path.stat().st_size + file.older.stat().st_size <= 41_000
    with file.path.open("ab") as torn:
        torn.write(b'{"event":"failed","time_s":1')
    again = EventFile(tmp_path, BEGIN)  # the rank began once more, with the same folder
    again.write(LogEnd(time_s=6000.0))
    again.close()
    data = file.path.read_bytes()
    assert SECRET[9:] not in data.decode()
    assert kind_of(data[: 1 << 16]) == kind_of(file.older.read_bytes()) == EVENT_LOG
    reading = read_event_log(data, "events-rank0.jsonl")
    [log] = reading.event_logs
    assert (reading.source.num_unknown, log.begin.rank, log.end is not None) == (1, 0, True)
    assert [f.epoch for f in log.failures] == [1]
    assert 0 < len(log.waits_s["barrier"]) <= MAX_WAITS
    assert max(log.waits_s["barrier"]) == 19_999


@contextmanager
def disk_with(num_bytes: int) -> Iterator[None]:
    """Room for so many in each file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_an_event_log_no_more_than_what_finds_no_room(tmp_path: Path) -> None:
    file = EventFile(tmp_path, BEGIN)
    for size in (20, 400):  # in the middle of the first line, and of a later one
        errors = []
        for number in range(10):
            try:
                with disk_with(size):
                    file.write(CallWaits(time_s=1.0, epoch=1, operation="barrier", numbers=(number,), waits_us=(5,)))
            except OSError as error:
                errors.append(error)
        assert errors
    file.write(LogEnd(time_s=2.0))
    file.close()
    reading = read_event_log(file.path.read_bytes(), file.path.name)
    [log] = reading.event_logs
    assert (reading.source.num_unknown, log.begin.rank, log.end is not None) == (0, 0, True)
    assert 0 < len(log.waits_s["barrier"]) < 10


def test_event_logs_of_the_newest_attempt_are_joined() -> None:
    def log(rank: int, attempt: str, at_s: float, *lines: LogLine) -> bytes:
        first = LogBegin(attempt=attempt, rank=rank, world_size=4, time_s=at_s)
        return b"\n".join(msgspec.json.encode(line) for line in (first, *lines))

    def waits(rank: int, late: int) -> CallWaits:
        numbers = tuple(range(20))
        wait_us = 100 if rank == late else 30_000
        return CallWaits(time_s=1.0, epoch=1, operation="all_reduce", numbers=numbers, waits_us=(wait_us,) * 20)

    old = [log(r, "old", 1.0, CallFailed(time_s=2.0, failure=failure(dead=0))) for r in range(4)]
    new = [log(r, "new", 9.0, waits(r, 3), LogEnd(time_s=9.0)) for r in range(4)]
    logs = [reading for data in (*old, *new) for reading in read_event_log(data, "x").event_logs]
    found = join_event_logs(logs)
    assert (found.world_size, found.failures, found.ended_well) == (4, (), frozenset(range(4)))
    assert [(lag.group, lag.last_share[3]) for lag in found.lags] == [("all_reduce", 1.0)]
    after = join_event_logs(
        [*logs, *read_event_log(log(1, "new", 9.5, CallFailed(time_s=9.6, failure=failure())), "y").event_logs]
    )
    assert [f.epoch for f in after.failures] == [1]


@given(st.lists(st.one_of(st.binary(max_size=80), st.just(msgspec.json.encode(BEGIN))), max_size=8))
def test_whatever_is_in_a_file_it_gives_a_reading(lines: list[bytes]) -> None:
    reading = read_event_log(b"\n".join(lines), "x")
    assert len(reading.event_logs) <= 1
    assert is_event_log(msgspec.json.encode(BEGIN))
    assert not is_event_log(b'{"event":"begin","schema":"other"}')


def test_a_command_gets_the_alert_and_is_ended_with_its_children(tmp_path: Path) -> None:
    got, pid = tmp_path / "got", tmp_path / "pid"
    copy = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
    Command([sys.executable, "-c", copy, str(got)])(ALERT)
    assert json.loads(got.read_text())["sentence"] == "rank 2 ended"
    with pytest.raises(ChildProcessError):
        Command([sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"])(ALERT)
    for timeout_s in (0.3, 2.0, 20.0):  # the first is enough unless the machine is busy
        with pytest.raises(Exception, match="timed out"):
            Command(["sh", "-c", f"sleep 300 & echo $! > {pid}; wait"], timeout_s=timeout_s)(ALERT)
        if pid.exists() and pid.read_text():
            break
    child = int(pid.read_text())
    until(lambda: not _runs(child), 10.0)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    except (ProcessLookupError, FileNotFoundError):
        return False


@contextmanager
def http_server(status: int, **headers: str) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """An address that keeps what is posted to it."""
    got: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the name is the base class's

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", got
        finally:
            server.shutdown()
            thread.join(10.0)


def test_a_webhook_posts_json_and_sends_its_key_nowhere_else() -> None:
    with http_server(200) as (url, got):
        Webhook(url, headers={"Authorization": "Bearer k"}, timeout_s=20.0)(ALERT)
        headers, body = got[0]
        assert (headers["Authorization"], json.loads(body)["text"]) == ("Bearer k", "allready: rank 2 ended")
        with http_server(307, Location=url) as (other, _), pytest.raises(OSError, match="307"):
            Webhook(other, headers={"Authorization": "Bearer k"}, timeout_s=20.0)(ALERT)
        assert len(got) == 1


def test_one_rank_alerts_of_an_agreed_failure_without_its_secrets() -> None:
    told: list[Alert] = []
    line = CallFailed(time_s=3.0, failure=failure(dead=0, error=SECRET))
    for rank in range(4):
        begin = msgspec.structs.replace(BEGIN, rank=rank)
        assert Teller(told.append, begin, every_rank=False).wants(line) == (rank == 1)
        assert Teller(told.append, begin, every_rank=True).wants(line)
    Teller(told.append, BEGIN, every_rank=True)(line)
    Teller(told.append, BEGIN, every_rank=False)(RankOut(time_s=4.0, kind="HubLost", text=SECRET))
    assert [(a.event, a.code, a.culprits) for a in told] == [("failed", "RTM001", (0,)), ("out", None, ())]
    assert "hf_" not in str(told)
