import io
import itertools
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allready.evidence.lines.merge import merged
from allready.evidence.lines.model import LineLimits, Scanned, split_ranges
from allready.evidence.lines.scan import ScanMemory, scan
from tests.cases import cases
from tests.evidence.lines import logs, reference

RECORDED = sorted((Path(__file__).parents[2] / "fixtures" / "lines").glob("*.log"))
SMALL = LineLimits(uninformative_lines=2_000, line_bytes=2048, clip_bytes=256)  # the smallest chunk is then 4,608 bytes


def scanned(data: bytes, *, chunk: int = 1 << 20, limits: LineLimits = SMALL, **options: object) -> Scanned:
    return scan(
        io.BytesIO(data),
        chunk_bytes=chunk,
        limits=limits,
        anchors=reference.ANCHORS,
        **options,  # type: ignore[arg-type]
    )


def in_parts(
    data: bytes,
    borders: list[int],
    *,
    chunk: int = 1 << 20,
    limits: LineLimits = SMALL,
    memory: ScanMemory | None = None,
) -> Scanned:
    cuts = [0, *sorted(min(b, len(data)) for b in borders), len(data)]
    parts = [
        scanned(data, chunk=chunk, limits=limits, first_byte=a, last_byte=b, memory=memory)
        for a, b in itertools.pairwise(cuts)
    ]
    return merged(parts, limits)


def comparable(found: Scanned) -> dict[str, object]:
    """Everything that must not depend on chunks and parts: codes of shapes may differ, what they stand for may not."""
    kept = {name: getattr(found, name) for name in Scanned.__struct_fields__ if name not in {"streams", "problems"}}
    kept["streams"] = [
        (s.origin, s.comm, s.nranks, s.num_operations, s.marks, s.times, s.first_line, s.last_line)
        for s in found.streams
    ]
    kept["operations"] = reference.operations(found)
    return kept


def mixed(seed: int, num: int = 300) -> bytes:
    """Lines of four processes with prefixes and times, and everything else, in one file."""
    rng = random.Random(seed)
    stamp = "2025-03-01T12:34:{s:02d}.123456789Z "
    fronts = ("", "0: ", "[default1]:", "[1,3]<stdout>:", "[2025-03-01 12:34:{s:02d}] ", stamp)
    who = [(rng.choice(fronts), f"gpu{i % 2}", 1000 + 7 * i) for i in range(4)]
    lines = []
    for i in range(num):
        front, host, pid = rng.choice(who)
        front = front.format(s=i * 59 // num)
        if rng.random() < 0.7:
            comm = rng.choice(("0x5581aa00", "0x7f00deadbee0"))
            lines.append(logs.operation(rng, front=front, host=host, pid=pid, comm=comm))
        elif rng.random() < 0.3:
            lines.append(f"{front}iteration: {i // 5}")
        else:
            lines.append(logs.other(rng, front=front, host=host, pid=pid))
    return "\n".join(lines).encode() + rng.choice((b"", b"\n"))


@cases("path", RECORDED, ids=lambda p: p.name)
def test_agrees_with_regular_expressions_on_recorded_logs(path: Path) -> None:
    data = path.read_bytes()
    reference.check(scanned(data), data)
    reference.check(scanned(data, chunk=1), data)


@pytest.mark.thorough
@cases("seed", range(12))
def test_agrees_with_regular_expressions_on_interleaved_processes(seed: int) -> None:
    data = mixed(seed)
    reference.check(scanned(data, chunk=1), data)


CUTS = {
    "seed": st.integers(0, 10**6),
    "chunk": st.integers(1, 40_000),
    "borders": st.lists(st.integers(0, 60_000), max_size=4),
}


@pytest.mark.thorough
@settings(max_examples=10, deadline=None)
@given(**CUTS)
@example(seed=23, chunk=1, borders=[237])  # a chunk has one line of each of several processes, in another order
@example(seed=33602, chunk=1, borders=[1])  # a marker alone in the first part, and the same of no rank in the second
def test_chunks_and_parts_make_no_difference(seed: int, chunk: int, borders: list[int]) -> None:
    assert_no_difference(seed, chunk, borders)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=100, deadline=None)
@given(**CUTS)
def test_chunks_and_parts_of_many_logs_make_no_difference(seed: int, chunk: int, borders: list[int]) -> None:
    assert_no_difference(seed, chunk, borders)


def assert_no_difference(seed: int, chunk: int, borders: list[int]) -> None:
    data = mixed(seed, 220)
    whole = scanned(data)
    reference.check(whole, data)
    assert comparable(scanned(data, chunk=chunk)) == comparable(whole)
    assert comparable(in_parts(data, borders, chunk=chunk)) == comparable(whole)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_hostile_bytes_give_the_same_as_regular_expressions(data: st.DataObject) -> None:
    """Damage anywhere in operation lines: cut, overwritten with any byte, lines run together."""
    rng = random.Random(data.draw(st.integers(0, 10**6)))
    lines = [logs.operation(rng, pid=rng.choice((11, 12))).encode() for _ in range(60)]
    for _ in range(data.draw(st.integers(0, 30))):
        i = rng.randrange(len(lines))
        if len(lines[i]) > 4:
            at = rng.randrange(len(lines[i]))
            byte = bytes([rng.choice((0, 9, 13, 32, 47, 48, 58, 97, 111, 112, 127, 128, 255, rng.randrange(256)))])
            lines[i] = rng.choice(
                (lines[i][:at], lines[i][:at] + byte + lines[i][at + 1 :], lines[i][:at] + lines[(i + 1) % 60])
            )
    blob = b"\n".join(lines)
    found = scanned(blob, chunk=1)
    log = reference.read(blob)
    assert found.num_coll == log.num_coll
    assert found.num_lines == log.num_lines
    assert {k: len(v) for k, v in reference.operations(found).items()} == {k: len(v) for k, v in log.operations.items()}


@settings(max_examples=60, deadline=None)
@given(blob=st.binary(max_size=3000), chunk=st.integers(1, 100))
def test_any_bytes_at_all_are_counted(blob: bytes, chunk: int) -> None:
    found = scanned(blob, chunk=chunk)
    reference.check(found, blob)


@pytest.mark.thorough
@pytest.mark.parametrize("templates", [200_000, 300])
def test_every_operation_may_have_another_size(templates: int) -> None:
    """Experts send as many tokens as they have."""
    rng = random.Random(7)
    lines = [
        logs.operation(
            rng, name=rng.choice(("Send", "Recv")), count=rng.randrange(10**6), comm=rng.choice(("0xa", "0xb"))
        )
        for _ in range(3000)
    ]
    data = "\n".join(lines).encode()
    limits = LineLimits(line_bytes=2048, clip_bytes=256, templates=templates)
    for chunk in (1, 30_000, 1 << 20):
        reference.check(scanned(data, chunk=chunk, limits=limits), data)
    reference.check(in_parts(data, [100_000, 250_001], chunk=20_000, limits=limits), data)


def test_no_bytes_at_all() -> None:
    assert comparable(scanned(b"")) == comparable(merged([]))


def test_parts_of_a_file_cover_it() -> None:
    assert split_ranges(10, 4, smallest_bytes=1) == [(0, 2), (2, 5), (5, 7), (7, 10)]
    assert split_ranges(10, 4) == [(0, 10)]
    assert split_ranges(0, 4) == [(0, 0)]
