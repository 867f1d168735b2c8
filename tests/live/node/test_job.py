"""A real job of two ranks over Gloo, with their beacons: what looks tell of it, and what is gathered and kept."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allready.evidence.flight.reader import read_dump
from allready.evidence.inputs import find
from allready.evidence.read import ReaderPool
from allready.evidence.stacks.read import read_stacks
from allready.judging.assemble import assemble
from allready.live.environment import beacon_environment, rank_environment
from allready.model.live import NodeEvidence, NodeStatus, PaceSample
from tests.clock import Stopwatch
from tests.live.beacon.helpers import rank_command
from tests.live.node.nodes import Node, until

MakeNode = Callable[..., Node]
STEPS = 40
WORLD = 2


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, list[NodeStatus]]]:
    """The job once rank 1 makes no progress and rank 0 waits for it, and all that was seen on the way."""
    folder = tmp_path_factory.mktemp("job")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environments = []
    for rank in range(WORLD):
        own = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        own |= {"LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        environments.append(own | beacon_environment(os.environ) | rank_environment(folder / "run", rank))
    command = rank_command(str(Path(__file__).with_name("job.py")), [str(STEPS)])
    with Node(folder, [], commands=[command] * WORLD, environments=environments) as node:
        seen: list[NodeStatus] = []

        def look() -> NodeStatus:
            seen.append(node.look())
            return seen[-1]

        until(
            look,
            lambda s: (
                s.ranks[0].phase == "communicating"
                and bool(s.ranks[0].groups)
                and s.ranks[0].groups[0].enqueued == STEPS + 2
                and (s.ranks[0].groups[0].waiting_s or 0.0) > 0.5
                and "time.sleep" not in s.ranks[1].site
                and s.ranks[1].site != ""
                and bool(s.ranks[1].groups)
                and s.ranks[1].groups[0].waiting_s is None  # looked at since its last operation completed
                and all(s.ranks[r].period_s is not None for r in range(WORLD))
                and all(
                    any(p.rank == r and p.seqs[-1] >= STEPS + 1 for old in seen for p in old.pace) for r in range(WORLD)
                )
            ),
            timeout_s=90.0,
            every_s=0.25,
        )
        yield node, seen


def test_the_marks_tell_who_waits_for_whom(job: tuple[Node, list[NodeStatus]]) -> None:
    status = job[0].look()
    waiting, missing = status.ranks
    assert waiting.groups[0].members == (0, 1)
    assert waiting.groups[0].enqueued == missing.groups[0].enqueued + 1
    assert waiting.groups[0].waiting_s is not None
    assert missing.groups[0].waiting_s is None
    assert missing.site.endswith("<module>")
    assert "job.py" in missing.site
    assert waiting.framework == missing.framework == "torch"
    assert waiting.num_operations == STEPS + 2
    assert waiting.heartbeat_age_s is not None
    assert waiting.heartbeat_age_s < 5


def test_every_operation_is_told_once_and_alike_on_both_ranks(job: tuple[Node, list[NodeStatus]]) -> None:
    _, seen = job
    samples: dict[int, list[PaceSample]] = {0: [], 1: []}
    for status in seen:
        for sample in status.pace:
            samples[sample.rank].append(sample)
    digests = []
    for rank, found in samples.items():
        seqs = [seq for s in found for seq in s.seqs]
        assert seqs == sorted(set(seqs))
        assert len(seqs) >= STEPS
        created = [t for s in found for t in s.created_s]
        assert created == sorted(created)
        assert all(abs(t - time.time()) < 300 for t in created)
        assert all(s.completed_s == () for s in found)  # Gloo does not record it
        assert {size for s in found for size in s.size_bytes} == {4000}
        digests.append({seq: d for s in found for seq, d in zip(s.seqs, s.digests, strict=True)})
        assert rank in {0, 1}
    assert all(digests[0][seq] == digests[1][seq] != 0 for seq in digests[1])
    assert (seen[-1].ranks[0].period_s or 0.0) > 0


def test_evidence_has_stacks_rings_and_logs(job: tuple[Node, list[NodeStatus]]) -> None:
    node, _ = job
    evidence = _whole(node)
    assert evidence.number == 7
    for rank in evidence.ranks:
        (stack,) = [s for s in read_stacks(rank.stack.encode(), "stacks").stacks if s.rank == rank.rank]
        assert stack.pid == node.processes[rank.rank].pid
        assert any("job.py" in frame.file for thread in stack.threads for frame in thread.frames)
        (ring,) = read_dump(rank.ring.encode(), "ring", name_hint="ring").dumps
        assert ring.num_entries > 0
        assert "step 1\n" in rank.log_tail
        assert rank.why_no_stack == ""
        assert rank.status.pid == stack.pid
    call = evidence.ranks[1].syscall
    assert call is not None
    assert call.name in {"clock_nanosleep", "select", "pselect6"}
    assert any(row.rank == 0 and row.state == "ESTABLISHED" for row in evidence.sockets)
    assert any(link.name == "lo" for link in evidence.links)


def test_what_is_kept_is_diagnosed_and_has_no_secret(job: tuple[Node, list[NodeStatus]], tmp_path: Path) -> None:
    node, _ = job
    evidence = _whole(node)
    folder = tmp_path / "attempt0/evidence0/node0"
    node.observer.keep(evidence, folder)
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert not any(b"hf_abcdefgh" in path.read_bytes() for path in kept)
    assert (folder / "rank1/evidence/out.tail.log").read_text().rstrip().endswith("HF_TOKEN=(redacted)")
    with ReaderPool(find([str(folder)]), workers=1) as pool:
        after = assemble(pool.read())
    by_rank = {stack.rank: stack for stack in after.stacks}
    assert set(by_rank) == {0, 1}
    groups = [g for g in after.progress if g.positions]
    assert [g.positions[r].enqueued for g in groups for r in (0, 1)] == [STEPS + 2, STEPS + 1]


def test_a_stopped_rank_costs_its_own_stack_only(job: tuple[Node, list[NodeStatus]]) -> None:
    node, _ = job
    node.kill(1, signal.SIGSTOP)
    try:
        until(lambda: node.rank(1), lambda r: r.process_state == "stopped")
        began = Stopwatch()
        evidence = node.observer.gather(8)
        assert began.s < 4.0  # its deadline is 1.5 s
        stopped = evidence.ranks[1]  # its stack is read from its memory, where that is allowed
        assert (stopped.why_no_stack, bool(stopped.stack)) in {("", True), ("stopped", False)}
        assert evidence.ranks[1].ring != ""  # the one that it had written before
        assert evidence.ranks[0].stack != ""
        assert evidence.ranks[1].status.process_state == "stopped"
        age = node.rank(1).heartbeat_age_s
        assert age is not None
        assert until(lambda: node.rank(1).heartbeat_age_s, lambda now: (now or 0.0) > age + 0.5)
    finally:
        node.kill(1, signal.SIGCONT)


def _whole(node: Node) -> NodeEvidence:
    """The first dump of a process takes seconds, and answers wait for it."""
    return until(
        lambda: node.observer.gather(7, deadline_s=5.0, with_dump=False),
        lambda e: all(r.stack and r.ring for r in e.ranks),
        timeout_s=30.0,
    )
