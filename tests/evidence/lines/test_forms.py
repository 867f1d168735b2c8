"""What other logs taught the scanner saves time and changes nothing."""

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.evidence.lines import coll, forms, lane
from allready.evidence.lines.model import Scanned
from allready.evidence.lines.scan import scan
from tests.cases import cases
from tests.evidence.lines import logs
from tests.evidence.lines.test_scan import mixed

RECORDED = (Path(__file__).parents[2] / "fixtures" / "lines" / "two_meshes.log").read_bytes()


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lane.Lane, "plan", lambda *_, **__: None)  # else such logs hardly come this way
    monkeypatch.setattr(lane.Lane, "learn", lambda *_, **__: None)
    forms.forget()
    yield
    forms.forget()


def scanned(data: bytes, chunk: int = 1 << 20) -> Scanned:
    return scan(io.BytesIO(data), source="log", chunk_bytes=chunk)


def cold(data: bytes, chunk: int = 1 << 20) -> Scanned:
    forms.forget()
    return scanned(data, chunk)


def log_of(rank: int, *, seed: int = 1, front: str = "", num: int = 150) -> bytes:
    """A rank's log: the same operations for every rank in an order of its own, and nothing else alike."""
    rng, mine = random.Random(seed), random.Random(rank)
    host, pid = f"gpu{rank // 8:02d}", mine.choice((4711, 12345, 987654)) + rank
    comms = [f"0x55{mine.randrange(16**10):010x}" for _ in range(2)]
    kinds = [(rng.choice(logs.OPERATIONS), rng.choice((4, 262144, 1048576)), c) for c in comms for _ in range(8)]
    lines = [logs.other(mine, front=front, host=host, pid=pid) for _ in range(20)]
    for number in range(num):
        name, count, comm = mine.choice(kinds)
        lines.append(
            logs.operation(
                mine, front=front, host=host, pid=pid, comm=comm, name=name, count=count, number=number, tail="(nil)"
            )
        )
    return "\n".join(lines).encode() + b"\n"


@pytest.mark.thorough
@cases("chunk", [1 << 18, 1 << 20])
@cases("front", ["", "[rank0]: ", "2025-03-01T12:34:56.123456789Z "])
def test_a_log_gives_the_same_after_any_other_logs(front: str, chunk: int) -> None:
    data = [log_of(rank, front=front) for rank in range(6)]
    alone = [cold(one, chunk) for one in data]
    order = list(range(6))
    for seed in range(2):
        random.Random(seed).shuffle(order)
        forms.forget()
        assert {at: scanned(data[at], chunk) for at in order} == dict(enumerate(alone))


@pytest.mark.parametrize("seed", range(3))
def test_torn_and_interleaved_lines_give_the_same_after_other_logs(seed: int) -> None:
    data = mixed(seed, 300)
    alone = cold(data)
    for other in (1, 2, 40):
        scanned(mixed(other, 300))
    assert scanned(data) == alone


def test_a_recorded_log_gives_the_same_after_itself_with_other_names() -> None:
    other = RECORDED.replace(b"vm:", b"xy:").replace(b" comm 0x5", b" comm 0x6")
    alone = cold(other)
    assert alone.num_coll > 100
    scanned(RECORDED)
    assert scanned(other) == alone


def test_lines_of_another_rank_are_known_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    parse = coll.parse

    def counted(line: bytes) -> coll.CollLine | None:
        calls.append(line)
        return parse(line)

    first, second = (
        "".join(
            f"gpu{rank:02d}:{1000 + rank}:{1000 + rank} [0] NCCL INFO {name}: opCount {n:04x} sendbuff 0x7f0{rank}00 "
            f"recvbuff 0x7f1{rank}00 count {1000 + k} datatype 7 op 0 root 0 comm 0x55a{rank} [nranks=8] stream (nil)\n"
            for n in range(50)
            for k, name in enumerate(("AllReduce", "AllGather", "Broadcast"))
        ).encode()
        for rank in (1, 2)
    )
    monkeypatch.setattr(coll, "parse", counted)
    head = b"gpu01:1001:1001 [0] NCCL INFO hello\n"
    scanned(head + first)
    assert len(calls) >= 3
    calls.clear()
    found = scanned(head + second)
    assert found.num_coll == 150
    assert len(calls) == 1


def test_operations_that_do_not_come_leave_no_trace() -> None:
    scanned(log_of(0))
    few = b"x\n" + log_of(5).splitlines(keepends=True)[-1] * 3
    found = scanned(few)
    assert [s.counts for s in found.streams] == [[3]]
    assert found == cold(few)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MAX_FAMILIES", 3)
    monkeypatch.setattr(forms, "MAX_FORMS", 5)
    rng = random.Random(0)
    for n in range(7):
        lines = [logs.operation(rng, host="h" * (n + 1), count=count, number=5) for count in range(1000, 1012)]
        scanned("\n".join(lines).encode())
    known = forms._FAMILIES.known
    assert 0 < len(known) <= 3
    assert all(0 < len(family._forms) <= 5 for family in known.values())
