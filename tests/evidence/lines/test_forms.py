"""Lines recognised by their forms: the same as one by one."""

import io
import random
from pathlib import Path

import pytest

from allready.evidence.lines.line_buffer import HEX_NUMBER, without_numbers
from allready.evidence.lines.model import LIMITS, LineLimits, Scanned
from allready.evidence.lines.scan import scan
from allready.patterns import compiled_bytes

pytestmark = pytest.mark.thorough

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHUNK = 20_000
"""Small, so that most lines come in chunks in which their form is known."""

TIGHT = LineLimits(
    head_lines=30, tail_lines=30, same_lines=7, uninformative_lines=3, marks=16, clip_bytes=400, line_bytes=4_000
)


def _both(data: bytes, limits: LineLimits = LIMITS) -> tuple[Scanned, Scanned]:
    one, other = (
        scan(io.BytesIO(data), limits=limits, chunk_bytes=max(CHUNK, 2 * limits.line_bytes), use_forms=use_forms)
        for use_forms in (True, False)
    )
    return one, other


def _difference(data: bytes, limits: LineLimits = LIMITS) -> list[str]:
    one, other = _both(data, limits)
    return [name for name in Scanned.__struct_fields__ if getattr(one, name) != getattr(other, name)]


def test_recorded_logs_give_the_same_byte_for_byte() -> None:
    """Each log of the fixtures, and all of them in one."""
    found = sorted(path for path in FIXTURES.rglob("*") if path.suffix in {".log", ".txt", ".out", ".err"})
    logs = {str(path): path.read_bytes() for path in found if path.stat().st_size < 2_000_000}
    assert len(logs) > 20
    whole = b"".join(logs.values())[:6_000_000]
    wrong = {path: fields for path, data in logs.items() if (fields := _difference(data))}
    wrong |= {f"all {limits}": fields for limits in (LIMITS, TIGHT) if (fields := _difference(whole, limits))}
    assert wrong == {}


def made_up(seed: int) -> bytes:
    """A launcher's log of some processes: lines that come again, some of them broken in every way."""
    rng = random.Random(seed)
    forms = (
        b"[rank%d]: step %d loss 0.%d", b"gpu%d:9%d:77 [0] NCCL INFO Trees [0] 1/-1/-1->%d->2", b"warning %d %d %d",
        b"h%d:12:1%d [1] misc/socket.cc:%d NCCL WARN Connection refused", b"iteration %d/%d of %d",
        b"12:0%d:0%d gpu0:5:6 [0] NCCL INFO comm 0x55ab%dff rank 3", b"%d%% %d\r%d/40 done", b"ValueError: %d %d %d",
        b"[2025-01-01 10:%d:0%d] [rank%d]: Killed", b"Traceback (most recent call last):%d%d%d", b"10x5%d 0x%d 00x%d",
        b"n%d:%d: step %d", b"x" * 500 + b"%d %d %d",
    )  # fmt: skip
    lines = [rng.choice(forms) % tuple(rng.randrange(10) for _ in range(3)) for _ in range(3_000)]
    for _ in range(40):
        at = rng.randrange(len(lines))
        lines[at] = lines[at][: rng.randrange(20)] + bytes([rng.randrange(256)]) + lines[at][5:]
    return b"\n".join(lines)


@pytest.mark.parametrize("limits", [LIMITS, TIGHT])
def test_made_up_logs_give_the_same(limits: LineLimits) -> None:
    assert [seed for seed in range(6) if _difference(made_up(seed), limits)] == []


def test_numbers_are_deleted_alike() -> None:
    """By a chunk in two steps, or by a line in one."""
    rng = random.Random(1)
    texts = [bytes(rng.choices(b"0012x9afg ", k=12)) for _ in range(3_000)]
    assert [
        text
        for text in texts
        if compiled_bytes(HEX_NUMBER).sub(b"", text).translate(None, b"0123456789") != without_numbers(text)
    ] == []


def test_few_lines_that_say_nothing_are_kept_of_each_process() -> None:
    lines = [f"n1:{7 + i % 2}:9 [0] NCCL INFO Trees [{i}] 1/-1/-1->0->2" for i in range(400)]
    found = scan(io.BytesIO("\n".join(lines).encode()))
    assert len(found.lines) == 2 * LIMITS.uninformative_lines
    assert [(repeat.process, repeat.count + LIMITS.uninformative_lines) for repeat in found.repeats] == [
        ("n1:7", 200),
        ("n1:8", 200),
    ]
    assert {process: line.number for process, line in found.last_lines.items()} == {"n1:7": 399, "n1:8": 400}


@pytest.mark.parametrize("use_native", [True, False])
def test_carriage_returns_at_the_ends_of_lines_change_nothing_but_offsets(use_native: bool) -> None:
    data = made_up(5).replace(b"\r", b"")
    one, other = (
        scan(io.BytesIO(text), chunk_bytes=200_000, use_native=use_native, limits=TIGHT)
        for text in (data, data.replace(b"\n", b"\r\n"))
    )
    for scanned in (one, other):
        for line in (*scanned.lines, *scanned.last_lines.values()):
            line.offset = 0
        for repeat in scanned.repeats:
            repeat.last_offset = 0
    assert len(one.lines) > 50
    assert len(one.repeats) > 5
    different = {name for name in Scanned.__struct_fields__ if getattr(one, name) != getattr(other, name)}
    assert different <= {"num_bytes", "head", "tail"}
