"""The table, the JSON and the metrics of a look, from made-up statuses."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from allready.live.watch.metrics import MetricsServer, exposition
from allready.live.watch.screen import plain_text
from allready.live.watch.state import WatchedJob, WatchState, as_json, lines_of
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    GroupMark,
    NodeStatus,
    ProcessState,
    RankStatus,
    Report,
    SocketRow,
    Status,
    Verdict,
    World,
)

JOB = WatchedJob(source="allready", job_id='a"b\\c', pid=7, master="gpu01:29500", command=("train.py",))


def rank(number: int, enqueued: int, **more: Any) -> RankStatus:
    mark = GroupMark(group="0", label="default_pg", enqueued=enqueued, completed=enqueued - 1, waiting_s=2.5)
    return RankStatus(
        rank=number,
        pid=100 + number,
        process_state=ProcessState.SLEEPING,
        phase="communicating",
        groups=(mark,),
        **more,
    )


def state(*, culprit: int | None = None) -> WatchState:
    verdict = Verdict(
        code="HNG001",
        fault_class=FaultClass.CPU_STUCK,
        confidence=Confidence.CERTAIN,
        culprits=Culprits(ranks=() if culprit is None else (culprit,)),
        sentence="rank 1 is stopped",
        remedy="kill -CONT",
        fault_time=None,
        detected_time="2026-01-01T00:00:00",
        detect_s=1.0,
    )
    report = Report(
        tool_version="0",
        command="run",
        started="2026-01-01T00:00:00",
        duration_s=1.0,
        world=World(num_nodes=2, world_size=2),
        status=Status.FAULT,
        verdict=verdict,
        findings=(),
        not_checked=(),
    )
    socket = SocketRow(
        rank=0,
        pid=100,
        local="10.0.0.1",
        local_port=1,
        remote="10.0.0.2",
        remote_port=2,
        send_queue_bytes=70_000,
        backoff=3,
    )
    return WatchState(
        job=JOB,
        now_s=12.5,
        report=report,
        statuses=(
            NodeStatus(node_rank=0, ranks=(rank(0, 12, cpu_share=0.5, period_s=0.02),), sockets=(socket,)),
            NodeStatus(node_rank=1, ranks=(rank(1, 10),)),
        ),
    )


def test_shows_each_rank_with_how_far_it_is_behind() -> None:
    first, second = lines_of(state(culprit=1))
    assert (first.lag, second.lag) == ("0", "2")
    assert first.operation == "default_pg #12, 2.5 s"
    assert first.sockets == "out 68.4 KiB backoff 3"
    assert (first.period, first.cpu) == ("20 ms", "50%")
    assert second.is_odd
    assert not first.is_odd


def test_a_rank_that_ended_shows_how() -> None:
    ended = NodeStatus(node_rank=0, ranks=(rank(0, 1, exit_code=None, signal="SIGKILL"), rank(1, 1, exit_code=3)))
    assert [line.state for line in lines_of(WatchState(job=JOB, now_s=0.0, statuses=(ended,)))] == ["SIGKILL", "exit 3"]


def test_a_pipe_gets_the_verdict_and_an_aligned_table() -> None:
    text = plain_text(state(culprit=1), "en")
    head, verdict, what, names, *rows = text.splitlines()
    assert "gpu01:29500" in head
    assert verdict == "✗ fault: rank 1 is stopped [HNG001]"
    assert what == "fix: kill -CONT"
    assert names.startswith("rank  node  pid")
    assert len({row.index("sleeping") for row in rows}) == 1


def test_markup_from_a_job_cannot_reach_the_terminal() -> None:
    hostile = WatchState(
        job=WatchedJob(source="allready", job_id="\x1b[31mx", pid=1),
        now_s=0.0,
        statuses=(NodeStatus(node_rank=0, ranks=(rank(0, 1, site="a\x1b]0;owned\x07.py:1 f"),)),),
    )
    assert "\x1b" not in plain_text(hostile, "zh")


def test_json_holds_everything_and_is_json() -> None:
    body = json.loads(json.dumps(as_json(state(culprit=1))))
    assert body["schema"] == "allready.watch/1"
    assert body["status"] == "fault"
    assert body["verdict"]["culprits"]["ranks"] == [1]
    assert body["statuses"][0]["ranks"][0]["groups"][0]["enqueued"] == 12


def test_metrics_escape_labels_and_leave_out_what_is_unknown() -> None:
    text = exposition(state(culprit=1))
    assert 'allready_rank_waiting_seconds{job_id="a\\"b\\\\c",node="1",rank="1"} 2.5' in text
    assert "gpu_power" not in text
    labels = 'job_id="a\\"b\\\\c",code="HNG001",class="CPU-STUCK"'
    assert f'allready_fault{{{labels},confidence="certain",nodes="1",ranks="1"}} 1' in text
    assert f'allready_culprit{{{labels},node="1",rank="1"}} 1' in text
    assert '{job="' not in text  # Prometheus would rename it to exported_job


def test_the_server_answers_on_loopback_only_and_frees_its_port() -> None:
    server = MetricsServer(lambda: exposition(state()), port=0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"allready_look_timestamp_seconds" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=5)
    finally:
        server.close()
    again = MetricsServer(lambda: "", port=server.port)
    again.close()
