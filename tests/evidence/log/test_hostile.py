"""Anything may stand in a log: nothing is believed, nothing crashes, nothing takes long."""

import pickle
import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allready.evidence.lines.anchors import BLOCK_ANCHORS, LINE_ANCHORS
from allready.evidence.lines.model import RawLine, Scanned
from allready.evidence.log import interpret, read_lines
from allready.evidence.log.elastic import read_error_file
from allready.evidence.log.process_table import MAX_PROCESSES
from allready.evidence.reading import OpStream, Reading
from allready.model import Origin
from tests.cases import cases
from tests.clock import timed
from tests.evidence.log import test_endings, test_nccl, test_tracebacks

pytestmark = pytest.mark.thorough

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "runs"
SEEN = [
    *test_tracebacks.PLAIN.splitlines(), *test_tracebacks.ranked(3, test_tracebacks.PLAIN).splitlines(),
    *test_endings.TABLE.splitlines(), *test_endings.CLOSING.splitlines(), *test_endings.FAILED.splitlines(),
    *(f"vm:1:1 [0] NCCL INFO {line}" for line in (*test_nccl.INIT_LINES.values(), *test_nccl.CHILDREN.values())),
    *(f"x {anchor} y" for anchor in (*BLOCK_ANCHORS, *LINE_ANCHORS)), "", "0: x", "{" * 50 + '"message"',
]  # fmt: skip


PREFIXES = ["", "0: ", "[rank1]: ", "[pod/a/b] ", "vm:2:2 [0] NCCL INFO ", "[default1]:"]


def sound(reading: Reading) -> None:
    """What any reading must be."""
    pickle.loads(pickle.dumps(reading))
    assert all(len(e.text) <= 1000 and e.count >= 1 for e in reading.events)
    assert all(len(d.text) <= 1000 for d in reading.deaths)
    assert reading.source.kind == "log"
    assert reading.source.num_understood >= 0
    assert reading.source.num_unknown >= 0


@given(st.lists(st.binary(max_size=200), max_size=30))
@settings(max_examples=60, deadline=None)
def test_random_bytes_are_no_harm(lines: list[bytes]) -> None:
    sound(read_lines(lines, "x.log", mtime_s=0.0))


@given(st.lists(st.tuples(st.sampled_from(SEEN), st.integers(0, 120), st.sampled_from(PREFIXES)), max_size=60))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mixtures_and_cut_lines_are_no_harm(pieces: list[tuple[str, int, str]]) -> None:
    sound(read_lines([prefix + line[: cut or None] for line, cut, prefix in pieces], "rank_1/x.log", mtime_s=1e9))


@given(
    st.lists(
        st.tuples(st.sampled_from(SEEN), st.integers(-5, 50), st.lists(st.sampled_from(SEEN), max_size=8)), max_size=20
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_scan_is_no_harm(raw: list[tuple[str, int, list[str]]]) -> None:
    lines = [
        RawLine(number=number, offset=0, text=text.encode(), following=tuple(f.encode() for f in following))
        for text, number, following in raw
    ]
    sound(interpret(Scanned(num_lines=len(lines), lines=lines), "x", mtime_s=None))


@given(st.text(max_size=300))
@settings(max_examples=60, deadline=None)
def test_any_error_file_is_no_harm(text: str) -> None:
    read_error_file(text)
    read_error_file('{"message": {"message": "' + text + '", "extraInfo": {"py_callstack": "' + text)


def test_recorded_lines_shuffled_and_cut_are_no_harm() -> None:
    chance = random.Random(7)
    lines: list[bytes] = []
    for name in ("exception", "wrong_ifname", "shm_tiny", "sigkill"):
        with tarfile.open(RUNS / f"{name}.tar.xz") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.name.endswith(".log") else None
                lines += file.read().splitlines()[:300] if file is not None else []
    for _ in range(5):
        mixed = [line[: chance.randrange(1, 200)] if chance.random() < 0.3 else line for line in lines]
        chance.shuffle(mixed)
        sound(read_lines(mixed[:1500], "x", mtime_s=1.0))


@cases(
    "line",
    [
        "a:" * 2000,
        "a" * 4000 + ":1:1 NCCL INFO x",
        "NCCL INFO " * 400,
        " NCCL" * 800,
        "vm:1:1 [0] NCCL INFO " * 190,
        "[" * 4000,
        "[rank1]:" * 500,
        "0: " * 1300,
        "Traceback (most recent call last):" * 100,
        "comm 0x1 rank 1 nranks 1 " + "a 1 " * 900,
        "vm:1:1 [0] NCCL INFO comm 0x1 rank 1 nranks 1 " + "a 1 " * 900,
        "vm:1:1 [0] NCCL INFO NET/IB : Using " + "[0]mlx5_0:1/IB " * 250,
        "vm:1:1 [0] NCCL INFO " + "A" * 4000,
        "srun: error: n1: tasks 0-999999999,5-1,,-: Killed",
        "\x1b[" * 2000,
        "\r" * 4000,
        "9" * 4000,
        "Failures:",
        "-- Process 1 terminated with the following error:" * 50,
        "═╭╰│" * 900,
        "(" * 4000,
        "-" * 60,
        "-" * 4000,
        ".:/, -" * 600,
        "-1.2:3/" * 500,
        "2026-06-14 10:00:00 " * 190,
        "run time" + " " * 4000 + "x",
        "exit code" + " " * 4000 + "x",
        "done 1." + "1." * 2000,
        "terminate called after throwing an instance of " + "'" * 4000,
    ],
)
def test_no_line_takes_long(line: str) -> None:
    reading, took_s = timed(lambda: read_lines([line] * 30, "x", mtime_s=1.0), enough_s=0.3)
    sound(reading)
    assert took_s < 0.3


def test_many_processes_and_communicators_are_bounded() -> None:
    lines = [
        f"vm{n}:{n}:{n} [0] NCCL INFO comm 0x{n:x} rank {n} nranks 99999 cudaDev 0 busId 1 - Init START"
        for n in range(25_000)
    ]
    reading, took_s = timed(lambda: read_lines(lines, "x", mtime_s=1.0), enough_s=20)
    assert len(reading.processes) <= MAX_PROCESSES
    assert took_s < 20


def test_as_many_streams_as_the_scanner_tells_apart_take_seconds() -> None:
    streams = [OpStream(origin=Origin(source="x", line=n, host="vm", pid=n), comm=f"0x{n:x}") for n in range(1, 20_000)]
    reading, took_s = timed(lambda: interpret(Scanned(streams=streams), "rank_3.log", mtime_s=1.0), enough_s=10)
    assert len(reading.processes) == MAX_PROCESSES
    assert took_s < 10


def test_thousands_of_tracebacks_take_seconds_at_most() -> None:
    lines = [f"[rank{n % 64}]: {line}" for n in range(3000) for line in test_tracebacks.PLAIN.splitlines()]
    reading, took_s = timed(lambda: read_lines(lines, "x", mtime_s=1.0), enough_s=20)
    assert reading.deaths
    assert took_s < 20


def test_a_task_number_that_no_job_can_have_is_nobody() -> None:
    reading = read_lines([f"srun: error: node01: task {10**30}: Killed"])
    assert all(d.rank is None for d in reading.deaths)
