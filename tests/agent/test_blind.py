"""Where what judges or observes has failed: that no rank moves is said all the same, by what shares nothing with it."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from allready.agent.node import Sampler
from allready.agent.standstill import Standstill
from allready.live.node.bare import BareObserver
from allready.live.node.handle import RankHandle
from allready.model import GroupMark, NodeStatus, ProcessEnd, ProcessState, RankStatus, Report, Severity, Status
from allready.model import UncheckedKind as Kind
from allready.model.live import STILL_S
from tests.agent.test_interruption import report
from tests.agent.test_node import context_of
from tests.agent.test_observed import Mistaken, supervisor
from tests.cases import cases

LINE = {"site": "train.py:9 step", "site_since_s": 5.0}


def word(*ranks: RankStatus, attempt: int = 0, node: int = 0) -> NodeStatus:
    return NodeStatus(node_rank=node, attempt=attempt, ranks=ranks)


def rank(number: int, **changes: Any) -> RankStatus:
    known: dict[str, Any] = {"process_state": ProcessState.SLEEPING, "pid": 7, "cpu_share": 0.0}
    return RankStatus(rank=number, **(known | changes))


def test_ranks_that_stand_on_all_nodes_are_told_after_40_s() -> None:
    found = Standstill()
    for node, phase in enumerate(("communicating", "computing")):
        share = 1.0 if phase == "communicating" else 0.02  # the first spins in its line
        found.take(word(rank(node, **LINE, phase=phase, cpu_share=share, gpu_busy_share=1.0), node=node), now=1.0)
    assert found.lasts(now=STILL_S) is None
    assert found.lasts(now=STILL_S + 1.0) == (STILL_S, (0, 1))


@cases(
    "change",
    [
        {**LINE, "site_since_s": 30.0},
        {**LINE, "groups": (GroupMark(group="0", enqueued=4, completed=4),), "num_operations": 4},
        {**LINE, "pid": 8},
        {"cpu_share": 0.5},  # no line is known
        {"children_cpu_share": 0.5},
        {"gpu_busy_share": 0.5},
        {"cpu_share": None},
        {**LINE, "phase": "communicating", "children_cpu_share": 0.5},  # its loader reads
        {**LINE, "phase": "computing", "cpu_share": 0.5},
        {**LINE, "phase": "saving", "cpu_share": 0.1},
        {**LINE, "phase": "computing", "sleeps": True},
    ],
)
def test_one_rank_that_moves_is_enough(change: dict[str, Any]) -> None:
    found = Standstill()
    found.take(word(rank(0, **LINE), rank(1)), now=0.0)
    found.take(word(rank(0, **LINE), rank(1, **change)), now=30.0)
    assert found.lasts(now=69.0) is None
    assert found.lasts(now=70.0) is not None


def test_ranks_of_the_attempt_before_and_ranks_that_have_ended_do_not_count() -> None:
    found = Standstill()
    found.take(word(rank(0, **LINE), rank(1, process_state=ProcessState.EXITED)), now=0.0)
    assert found.lasts(now=60.0) == (60.0, (0,))
    found.take(word(rank(0, **LINE), attempt=1), now=60.0)
    assert found.lasts(now=70.0) is None
    found.take(word(rank(0, process_state=ProcessState.EXITED), attempt=1), now=200.0)
    assert found.lasts(now=300.0) is None


def kinds(shown: Report) -> list[Kind]:
    return [item.kind for item in shown.not_checked]


def test_a_job_whose_diagnosis_has_failed_says_that_no_rank_moves_and_when_one_does_again() -> None:
    found = supervisor(Mistaken("judge"), report(Status.HEALTHY))
    asyncio.run(found._judge(1.0))
    assert kinds(found.report) == [Kind.DIAGNOSIS_FAILED]
    table = cast("Any", found)._table
    for now, since_s, expected in (
        (10.0, 5.0, [Kind.DIAGNOSIS_FAILED]),
        (51.0, 5.0, [Kind.STANDS_STILL, Kind.DIAGNOSIS_FAILED]),
        (60.0, 59.0, [Kind.DIAGNOSIS_FAILED]),
    ):
        table._news.append(word(replace(rank(0, **LINE), site_since_s=since_s)))
        found._feed(now)
        asyncio.run(found._judge(now))
        assert kinds(found.report) == expected
        assert found.report.status is Status.UNKNOWN


def test_a_job_that_is_diagnosed_leaves_that_to_the_diagnosis() -> None:
    found = supervisor(Mistaken(""), report(Status.WAITING, Severity.WARNING))
    table = cast("Any", found)._table
    for now in (0.0, 100.0):
        table._news.append(word(rank(0, **LINE)))
        found._feed(now)
        asyncio.run(found._judge(now))
    assert kinds(found.report) == kinds(report(Status.WAITING, Severity.WARNING))


class Broken:
    """An observer in which nothing works once the ranks are known to it."""

    def set_ranks(self, *_: object) -> None: ...

    def note_end(self, _end: ProcessEnd) -> None:
        raise TypeError("note_end: broken")

    def sample(self, _now_s: float) -> NodeStatus:
        raise TypeError("sample: broken")


def test_a_mistake_in_the_observer_leaves_what_the_processes_show_and_the_job(tmp_path: Path) -> None:
    sent: list[NodeStatus] = []

    class Node:
        node_rank = 3

        async def send(self, _kind: str, body: object) -> None:
            sent.append(cast("NodeStatus", body))

    sampler = Sampler(cast("Any", Node()), context_of(tmp_path), cast("Any", Broken()))
    sampler.begin(0, {0: RankHandle(rank=0, local_rank=0, pid=os.getpid())})
    asyncio.run(sampler.sample(at_once=True))
    sampler.note_end(ProcessEnd(rank=0, exit_code=3))
    asyncio.run(sampler.sample(at_once=True))
    lives, ended = (status.ranks[0] for status in sent)
    assert not lives.is_gone
    assert (ended.process_state, ended.exit_code) == (ProcessState.EXITED, 3)


def test_the_processor_time_of_children_counts_for_their_rank() -> None:
    busy = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with (
        subprocess.Popen([sys.executable, "-c", busy], start_new_session=True) as works,
        subprocess.Popen(["sleep", "60"]) as waits,
    ):
        try:
            observer = BareObserver(node_rank=0, name="a")
            observer.set_ranks({n: RankHandle(rank=n, local_rank=n, pid=p.pid) for n, p in enumerate((works, waits))})
            first_s = time.time()
            observer.sample(first_s)
            time.sleep(0.5)
            shares = [r.cpu_share or 0.0 for r in observer.sample(first_s + 2.0).ranks]
            assert shares[0] > 0.0 == shares[1]
        finally:
            os.killpg(works.pid, 9)
            waits.kill()
