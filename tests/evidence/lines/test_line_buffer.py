import gzip
import io
import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

from allready.evidence.lines.line_buffer import clip, process_of
from allready.evidence.lines.merge import merged
from allready.evidence.lines.model import LineLimits, Scanned
from allready.evidence.lines.scan import scan
from allready.model.fill import in_english
from tests.cases import cases
from tests.evidence.lines import logs, reference

pytestmark = pytest.mark.thorough

SMALL = LineLimits(line_bytes=2048, clip_bytes=256, same_lines=5)


def scanned(data: bytes, limits: LineLimits = SMALL, *, chunk: int = 1, **options: object) -> Scanned:
    return scan(
        io.BytesIO(data),
        limits=limits,
        anchors=reference.ANCHORS,
        chunk_bytes=chunk,
        **options,  # type: ignore[arg-type]
    )


def test_a_repeated_line_is_kept_so_often_and_then_counted() -> None:
    lines = [f"gpu01:1:1 [0] NCCL INFO Connection refused, retrying ({i})" for i in range(1000)]
    found = scanned("\n".join(lines).encode())
    assert [line.number for line in found.lines] == [1, 2, 3, 4, 5]
    (repeat,) = found.repeats
    assert (repeat.count, repeat.first, repeat.last, repeat.process) == (995, 6, 1000, "gpu01:1")
    assert repeat.text == lines[-1].encode()
    assert found.last_lines["gpu01:1"].text == lines[-1].encode()


def test_repeats_of_different_processes_are_different() -> None:
    lines = [f"gpu01:{pid}:1 [0] NCCL INFO Connection refused ({i})" for i in range(200) for pid in (77, 78)]
    found = scanned("\n".join(lines).encode())
    assert sorted((r.process, r.count) for r in found.repeats) == [("gpu01:77", 195), ("gpu01:78", 195)]


@cases("border", [100, 3000, 20_000, 33_333])
def test_repeats_are_the_same_in_parts(border: int) -> None:
    rng = random.Random(5)
    lines = [
        rng.choice(
            (
                f"gpu01:1:1 [0] NCCL INFO Connection refused {rng.randrange(10**6)}",
                f"gpu01:1:1 [0] NCCL INFO buffer 0x7f{rng.randrange(2**40):010x} of {rng.randrange(1000)}",
                "step " + str(rng.randrange(100)),
                "x" * 300,
            )
        )
        for _ in range(600)
    ]
    data = "\n".join(lines).encode()
    whole = scanned(data)
    parts = [scanned(data, first_byte=0, last_byte=border), scanned(data, first_byte=border, last_byte=len(data))]
    both = merged(parts, SMALL)
    assert both.lines == whole.lines
    assert sorted(both.repeats, key=lambda r: r.first) == sorted(whole.repeats, key=lambda r: r.first)
    num_kept = whole.num_lines - whole.num_coll - whole.num_blank - whole.num_rest
    assert sum(r.count for r in whole.repeats) + len(whole.lines) == num_kept > 200


def test_of_too_many_different_lines_the_first_and_the_last_stay() -> None:
    words = [a + b + c for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwx"]
    data = "\n".join(f"Connection refused by {word}" for word in words).encode()
    found = scanned(data, LineLimits(head_lines=10, tail_lines=20))
    assert [line.number for line in found.lines] == [*range(1, 11), *range(len(words) - 19, len(words) + 1)]
    assert (found.num_head, found.num_dropped) == (10, len(words) - 30)


@cases("border", [0, 100, 700, 5_000, 14_000])
def test_the_first_and_the_last_are_the_same_in_parts(border: int) -> None:
    words = [a + b + c for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwx"]
    data = "\n".join(f"Connection refused by {word}" for word in words).encode()
    limits = LineLimits(head_lines=10, tail_lines=20)
    parts = [
        scanned(data, limits, first_byte=0, last_byte=border),
        scanned(data, limits, first_byte=border, last_byte=len(data)),
    ]
    both, whole = merged(parts, limits), scanned(data, limits)
    assert (both.lines, both.num_head, both.num_dropped) == (whole.lines, whole.num_head, whole.num_dropped)


def test_a_block_brings_the_lines_after_it() -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 3', "", "ValueError: x", "after"]
    (line,) = scanned("\n".join(lines).encode(), chunk=1 << 20).lines
    assert line.following == tuple(text.encode() for text in lines[1:])


def test_a_block_leaves_operations_out_and_ends() -> None:
    rng = random.Random(2)
    lines = ["Traceback (most recent call last):"]
    for i in range(100):
        lines += [logs.operation(rng), f"  frame {i}"]
    (line,) = scanned("\n".join(lines).encode()).lines
    assert line.following == tuple(f"  frame {i}".encode() for i in range(80))


@cases("border", [1, 30, 36, 500, 4000, 9000])
def test_a_block_reaches_over_the_end_of_a_part(border: int) -> None:
    rng = random.Random(3)
    lines = ["Traceback (most recent call last):"]
    for i in range(70):
        lines += [logs.operation(rng), f"  frame {i}\r", ""]
    data = "\n".join(lines).encode()
    whole = scanned(data)
    parts = [scanned(data, first_byte=0, last_byte=border), scanned(data, first_byte=border, last_byte=len(data))]
    assert merged(parts, SMALL).lines == whole.lines
    assert len(whole.lines[0].following) == 80


def test_a_line_is_cut_where_it_matters() -> None:
    assert clip(b"a" * 5000 + b"refused" + b"b" * 50, 5000, 7, 4096) == b"a" * 512 + b"refused" + b"b" * 50
    assert clip(b"refused" + b"b" * 5000, 0, 7, 4096) == b"refused" + b"b" * 4089
    assert clip(b" 1%|\r 2%|\rerror: refused\r 3%|\r", 17, 7, 4096) == b"error: refused"


@cases("where", [0, 100, 2040, 2048, 2049, 5000, 70_000])
@cases("chunk", [1, 10_000, 1 << 20])
def test_finds_what_stands_in_a_very_long_line(where: int, chunk: int) -> None:
    data = b"first\n" + b"." * where + b"Connection refused" + b"." * 9000 + b"\nNCCL last\n"
    found = scanned(data, chunk=chunk)
    assert [(line.number, line.offset) for line in found.lines] == [(2, 6), (3, len(data) - 10)]
    assert b"Connection refused" in found.lines[0].text
    assert (found.num_lines, found.num_rest) == (3, 1)


@pytest.mark.parametrize("borders", [(10, 20), (3000, 50_000), (60_100, 60_110)])
def test_parts_inside_a_long_line_have_nothing(borders: tuple[int, int]) -> None:
    data = b"a NCCL line\n" + b"x" * 60_000 + b"Connection refused\r" + b"y" * 200 + b"\nlast NCCL\n"
    whole = scanned(data)
    cuts = [0, *borders, len(data)]
    parts = [scanned(data, first_byte=a, last_byte=b) for a, b in itertools.pairwise(cuts)]
    both = merged(parts, SMALL)
    assert (both.lines, both.num_lines, both.num_rest, both.num_bytes) == (
        whole.lines,
        whole.num_lines,
        whole.num_rest,
        whole.num_bytes,
    )


def test_says_where_reading_stopped() -> None:
    rng = random.Random(4)
    data = "\n".join(logs.operation(rng) for _ in range(4000)).encode()
    cut = gzip.compress(data, 1)
    cut = cut[: len(cut) * 3 // 4]
    with gzip.open(io.BytesIO(cut)) as stream:
        found = scan(stream, anchors=())  # type: ignore[arg-type]
    assert found.num_coll > 1000
    assert len(found.problems) == 1
    assert "reading stopped at byte" in in_english(found.problems[0])


class Reluctant(io.RawIOBase):
    """A pipe that gives a few bytes at a time and knows no readinto."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._inner.read(min(size, 7) if size >= 0 else 7)

    readinto = None  # type: ignore[assignment]


def test_reads_a_stream_that_gives_little_at_a_time() -> None:
    data = b"gpu01:1:1 [0] NCCL INFO hello\nrest\n\n"
    told: list[int] = []
    found = scan(Reluctant(data), anchors=(), on_bytes=told.append)  # type: ignore[arg-type]
    assert (found.num_lines, len(found.lines), sum(told)) == (3, 1, len(data))


def test_knows_whose_line_it_is() -> None:
    assert process_of(b"x gpu-1.a:12:13 [0] NCCL INFO y") == ("gpu-1.a:12", (2, 12))
    assert process_of(b"[2025-03-01 12:34:56] h:1:2 [0] misc/socket.cc:12 NCCL WARN y") == ("h:1", (22, 25))
    assert process_of(b"no process NCCL INFO") is None


BIG = """
import io, resource, sys
from allready.evidence.lines.scan import scan
from allready.model.fill import in_english
class Endless(io.RawIOBase):
    def __init__(self, unit, total):
        self.unit, self.left = unit * (1 + (1 << 20) // len(unit)), total
    def readable(self):
        return True
    def readinto(self, buffer):
        n = min(len(buffer), self.left, len(self.unit))
        buffer[:n] = self.unit[:n]
        self.left -= n
        return n
unit = eval(sys.argv[1])
scan(io.BytesIO(unit * 3), anchors=("Connection refused",))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = scan(Endless(unit, int(sys.argv[2]) << 20), anchors=("Connection refused",))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, found.num_bytes)
"""


@cases(
    ("unit", "megabytes"),
    [
        (b"x", 64), (b"\0", 64), (b"\r", 64), (b"Connection refused ", 64), (bytes(range(256)), 64), (b"\n", 20),
        (b"NCCL \n", 20), (b"Traceback (most recent call last):\n", 64), (b"step 1\n", 10),
        (b"gpu01:1:1 [0] NCCL INFO Connection refused 123 0x7f\n", 64),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_much_of_anything_takes_little_memory(unit: bytes, megabytes: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BIG, repr(unit), str(megabytes)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    more_kb, num_bytes = map(int, done.stdout.split())
    assert num_bytes == megabytes << 20
    assert more_kb < 90_000


def test_the_fixtures_are_small() -> None:
    assert sum(p.stat().st_size for p in (Path(__file__).parents[2] / "fixtures" / "lines").iterdir()) < 1_500_000
