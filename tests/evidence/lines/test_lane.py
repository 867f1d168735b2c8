"""The fast lane gives what the usual way gives, whatever the log is and whatever was read before."""

import io
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.evidence.lines import lane
from allready.evidence.lines.model import LineLimits, Scanned
from allready.evidence.lines.scan import ScanMemory, scan
from tests.cases import cases
from tests.evidence.lines.test_scan import comparable, in_parts

pytestmark = pytest.mark.thorough

RECORDED = (Path(__file__).parents[2] / "fixtures" / "lines" / "two_meshes.log").read_bytes()
SMALL = LineLimits(line_bytes=2048, clip_bytes=256)
OTHERS = (
    "Channel 00/02 : 0 1 2 3",
    "comm 0x55 rank 3 nranks 8 cudaDev 0 busId 60 - Init COMPLETE",
    "NET/IB : No device found.",
    "iteration: 17",
    "Writer has no steps",
    "Last error:",
    "AllReduce: opCount 5 is what this line talks about",
    "x" * 300,
    "carriage\rreturn",
)


class Reader:
    """Scans logs one after the other with one memory, and counts how many chunks went which way."""

    def __init__(self) -> None:
        self.memory = ScanMemory()
        self.fast = self.usual = 0

    def scan(self, data: bytes, *, chunk: int = 1 << 20, limits: LineLimits = SMALL) -> Scanned:
        return scan(io.BytesIO(data), source="log", chunk_bytes=chunk, limits=limits, memory=self.memory)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    found = Reader()
    plan = lane.Lane.plan

    def seen(self: lane.Lane, *args: Any, **named: Any) -> lane.ChunkPlan | None:
        made = plan(self, *args, **named)
        if self._memory is found.memory.loops:
            found.fast += made is not None
            found.usual += made is None
        return made

    monkeypatch.setattr(lane.Lane, "plan", seen)
    return found


def usual(data: bytes, *, chunk: int = 1 << 20, limits: LineLimits = SMALL) -> Scanned:
    """Without the fast lane, by a reader that knows nothing."""
    return scan(io.BytesIO(data), source="log", chunk_bytes=chunk, limits=limits, use_lane=False)


def rank_log(
    rank: int,
    *,
    loop: int = 5,
    comms: int = 1,
    rounds: int = 40,
    start: int = 0x30,
    seam: int = 0,
    seed: int = 1,
    others: tuple[str, ...] = OTHERS[:3],
    tail: str = "",
) -> bytes:
    """A rank's own log: every rank has the same loop, its own name, pointers and counters."""
    same, mine = random.Random(seed), random.Random(rank)
    head = f"gpu{rank // 8:02d}:{mine.choice((711, 4711, 1234567)) + rank}:{4711 + rank} [{rank % 8}] NCCL INFO "
    names = [f"0x{mine.randrange(16**9, 16**10):x}" for _ in range(comms)]
    kinds = [
        (same.choice(("AllReduce", "AllGather", "Broadcast")), same.choice((4, 1048576)), same.randrange(comms))
        for _ in range(loop)
    ]
    lines = [head + text for text in others]
    numbers = [start + 7 * i for i in range(comms)]
    for i in range(rounds):
        for name, count, comm in kinds:
            lines.append(
                f"{head}{name}: opCount {numbers[comm]:x} sendbuff 0x7f{mine.randrange(2**40):010x} "
                f"recvbuff 0x7f{mine.randrange(2**40):010x} count {count} datatype 7 op 0 root 0 comm {names[comm]} "
                "[nranks=16] stream (nil)"
            )
            numbers[comm] += 1
        if seam and i % seam == seam - 1:
            lines.append(lines[-1].replace("count 4 ", "count 1 "))
            lines += [head + text for text in others[:1]]
    return ("\n".join(lines) + "\n" + tail).encode()


def test_the_logs_of_other_ranks_go_fast(reader: Reader) -> None:
    data = [rank_log(rank, loop=7, comms=2, rounds=60, seam=9) for rank in range(12)]
    alone = [usual(one) for one in data]
    assert [reader.scan(one) for one in data] == alone
    assert reader.usual == 1
    assert reader.fast == 11


def test_a_long_log_of_one_rank_goes_fast_after_its_first_chunk(reader: Reader) -> None:
    data = rank_log(3, rounds=2000)
    alone = usual(data, chunk=1 << 16)
    assert reader.scan(data, chunk=1 << 16) == alone
    assert reader.fast > 10
    assert reader.usual <= 3


def test_any_log_gives_what_the_usual_way_gives(reader: Reader) -> None:
    @settings(max_examples=120, deadline=None)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        draw = data.draw
        loop, comms, seed = draw(st.integers(1, 12)), draw(st.integers(1, 3)), draw(st.integers(0, 3))
        seam = draw(st.sampled_from((0, 3, 10)))
        reader.memory = ScanMemory()
        for rank in draw(st.lists(st.integers(0, 5), min_size=1, max_size=2)):
            start = draw(st.sampled_from((0, 0xE, 0xF0, 0xFFC0)))
            reader.scan(rank_log(rank, loop=loop, comms=comms, seed=seed, seam=seam, start=start))
        one = rank_log(
            draw(st.integers(0, 9)),
            loop=loop,
            comms=comms,
            seed=seed,
            seam=seam,
            start=draw(st.sampled_from((0x1, 0xFE0))),
            rounds=draw(st.integers(0, 40)),
            others=tuple(draw(st.lists(st.sampled_from(OTHERS), max_size=4))),
            tail=draw(st.sampled_from(("", "\n", "torn", "gpu00:711:4711 [0] NCCL INFO AllReduce: opCount 1f sen"))),
        )
        broken = bytearray(one)
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, max(0, len(broken) - 1)))
            broken[at : at + draw(st.integers(0, 2))] = draw(
                st.sampled_from((b"", b"0", b"\n", b"z", b"\0", b"\1", b"gpu"))
            )
        chunk = draw(st.sampled_from((1 << 13, 1 << 20)))
        alone = usual(bytes(broken), chunk=chunk)
        assert comparable(reader.scan(bytes(broken), chunk=chunk)) == comparable(alone)

    check()
    assert reader.fast > 50


@cases("text", OTHERS[3:])
def test_lines_that_need_a_closer_look_are_read_as_without_the_lane(reader: Reader, text: str) -> None:
    data = rank_log(1, others=(*OTHERS[:3], text))
    alone = usual(data)
    reader.scan(rank_log(2))
    assert reader.scan(data) == alone


@pytest.mark.parametrize("width", [0, 1, 16, 17])
def test_a_counter_of_any_width_is_one_where_the_usual_way_takes_it_for_one(reader: Reader, width: int) -> None:
    def log(rank: int) -> bytes:
        lines = rank_log(rank, rounds=30).split(b"\n")
        for at in range(80, 120):
            lines[at] = re.sub(rb"opCount \w+", b"opCount " + b"1" * width, lines[at])
        return b"\n".join(lines)

    alone = usual(log(2))
    reader.scan(rank_log(1, rounds=30))
    assert reader.scan(log(2)) == alone
    assert alone.num_coll == (150 if 1 <= width <= 16 else 110)


def test_many_lines_that_only_look_like_operations_close_the_lane_early(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.scan(rank_log(2))
    data = rank_log(1, others=(OTHERS[6],) * 1500)
    tried = 0
    add = lane.Lane._add_operations

    def counted(self: lane.Lane, *args: Any) -> int:
        nonlocal tried
        tried += 1
        return add(self, *args)

    monkeypatch.setattr(lane.Lane, "_add_operations", counted)
    found = reader.scan(data)
    assert 0 < tried <= lane._MAX_SINGLE + 1
    assert found == usual(data)


def test_parts_of_a_log_give_the_same(reader: Reader) -> None:
    data = rank_log(1, rounds=500)
    alone = usual(data, chunk=1 << 13)
    reader.scan(rank_log(2))
    for borders in ([100], [30_000, 30_001], [len(data) // 2]):
        parts = in_parts(data, borders, chunk=1 << 13, memory=reader.memory)
        for stream in parts.streams:
            stream.origin = replace(stream.origin, source="log")
        assert comparable(parts) == comparable(alone)
    assert reader.fast > 10


def test_a_recorded_log_gives_the_same_after_itself(reader: Reader) -> None:
    other = RECORDED.replace(b"vm:", b"node7:").replace(b" comm 0x5", b" comm 0x6")
    alone = usual(other)
    reader.scan(RECORDED)
    assert reader.scan(other) == alone


def test_two_processes_in_one_log_go_the_usual_way(reader: Reader) -> None:
    both = rank_log(1) + rank_log(9)
    alone = usual(both)
    reader.scan(rank_log(2))
    reader.fast = 0
    assert reader.scan(both) == alone
    assert reader.fast == 0


def test_a_shifted_line_does_not_tell_whose_a_communicator_is(reader: Reader) -> None:
    data = rank_log(1, loop=4, comms=3, seed=2, rounds=30)
    parts = data.split(b"sendbuff 0x7f")
    broken = b"sendbuff 0x7f".join(parts[:2]) + b"sendbuff 0x7" + b"sendbuff 0x7f".join(parts[2:])
    alone = usual(broken)
    reader.scan(rank_log(2, loop=4, comms=3, seed=2))
    reader.fast = 0
    assert reader.scan(broken) == alone
    assert {stream.origin.host for stream in alone.streams} == {"gpu00"}
    assert reader.fast


@pytest.mark.parametrize("front", [b"[rank0]: ", b"2025-03-01T12:34:56.5Z ", b"0: "])
def test_operations_with_something_in_front_are_operations(reader: Reader, front: bytes) -> None:
    data = rank_log(1, others=()) + front + rank_log(1, rounds=1, loop=1, others=())
    alone = usual(data)
    reader.scan(rank_log(2))
    found = reader.scan(data)
    assert found == alone
    assert found.num_coll == 201


@pytest.mark.parametrize(
    "limits", [LineLimits(same_lines=2), LineLimits(streams=1), LineLimits(head_lines=2, tail_lines=2)]
)
def test_limits_hold(reader: Reader, limits: LineLimits) -> None:
    data = rank_log(1, comms=3, rounds=60, others=OTHERS[:1] * 9)
    alone = usual(data, limits=limits)
    reader.scan(rank_log(2, comms=3))
    assert reader.scan(data, limits=limits) == alone


def test_lines_that_were_kept_fast_count_where_later_ones_repeat_them(reader: Reader) -> None:
    limits = LineLimits(line_bytes=2048, clip_bytes=256, same_lines=8)
    head = rank_log(1).split(b"NCCL INFO ")[0] + b"NCCL INFO "
    data = rank_log(1, rounds=300, others=OTHERS[:1] * 5) + b"".join(
        head + b"Channel %02d/02 : 0 1 2 3\n" % n for n in range(40)
    )
    alone = usual(data, chunk=1 << 13, limits=limits)
    assert alone.repeats
    reader.scan(rank_log(2))
    reader.fast = 0
    assert reader.scan(data, chunk=1 << 13, limits=limits) == alone
    assert reader.fast


def test_logs_of_no_use_are_seldom_tried_and_do_not_close_the_lane(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = lessons = 0
    fill, learn = lane.Lane._fill, lane.Lane._learn_run

    def counted_fill(self: lane.Lane, *args: Any) -> bool:
        nonlocal tried
        tried += 1
        return fill(self, *args)

    def counted_learn(self: lane.Lane, *args: Any) -> None:
        nonlocal lessons
        lessons += 1
        learn(self, *args)

    monkeypatch.setattr(lane.Lane, "_fill", counted_fill)
    monkeypatch.setattr(lane.Lane, "_learn_run", counted_learn)
    reader.scan(rank_log(1))
    rng = random.Random(0)
    for rank in range(200):
        lines = rank_log(rank, loop=6, seed=7, rounds=rng.randrange(40, 60)).splitlines(keepends=True)
        rng.shuffle(lines)
        reader.scan(b"".join(line.replace(b"count ", b"count %d" % rng.randrange(1, 9)) for line in lines))
    assert tried <= 100
    assert lessons <= 4 * 9
    reader.fast = 0
    for rank in range(5):
        reader.scan(rank_log(rank))
    assert reader.fast


def test_what_is_remembered_is_bounded(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MAX_LOOPS", 3)
    for seed in range(8):
        reader.scan(rank_log(1, loop=3 + seed, seed=seed))
        assert 0 < len(reader.memory.loops.loops) <= 3
