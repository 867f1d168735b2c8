"""Lines that other logs showed to say nothing are left out, and the reading stays the same."""

import io
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from allready.evidence import prefix
from allready.evidence.lines import forms
from allready.evidence.lines.scan import scan
from allready.evidence.log import dull, events, interpret, nccl
from allready.evidence.reading import Reading
from allready.signatures import table
from tests.cases import cases

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "runs"
NAMES = ("exception", "jax_ok", "v2_ok", "wrong_ifname")
MTIME_S = 1_795_190_000.0


def forget() -> None:
    """Everything that a process remembers of the logs that it read."""
    forms.forget()
    dull.forget()
    nccl._PLAIN.clear()
    prefix._HEADS.clear()
    events._Memory.tables = ()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    found = {}
    for name in NAMES:
        with tarfile.open(RUNS / f"{name}.tar.xz") as tar:
            for member in tar:
                if member.name.endswith(".log") and (file := tar.extractfile(member)) is not None:
                    found[f"{name}/{Path(member.name).name}"] = file.read()
    return found


def read(data: bytes, source: str) -> Reading:
    return interpret(scan(io.BytesIO(data), source=source), source, mtime_s=MTIME_S)


def test_every_recorded_log_gives_the_same_after_all_others(files: dict[str, bytes]) -> None:
    alone = {}
    for name, data in files.items():
        forget()
        alone[name] = read(data, name)
    assert len(alone) > 20
    order = list(files)
    random.Random(1).shuffle(order)
    forget()
    for _ in range(2):
        assert {name: read(files[name], name) for name in order} == alone
    assert dull._MEANT


def line(pid: int, words: str) -> bytes:
    return f"gpu{pid % 8}:{pid}:{pid} [{pid % 8}] NCCL INFO {words}\n".encode()


def log_of(pid: int) -> bytes:
    words = ["Comm config Blocking set to 1", "P2P Chunksize set to 131072", "CC Off, workFifoBytes 1048576"]
    return line(pid, "NCCL version 2.27.3+cuda12.8") + b"".join(line(pid, w) for w in words) + line(pid, "bye " * pid)


def test_dull_lines_are_counted_and_not_read_again() -> None:
    alone = read(log_of(2), "b")
    forget()
    read(log_of(1), "a")
    scanned = scan(io.BytesIO(log_of(2)), source="b")
    raw = [(one.number, one.text, True) for one in scanned.lines]
    sifted = dull.sift(raw)
    assert (len(raw), sifted.num_out, sifted.told) == (5, 3, [])
    assert [text for _, text, _ in sifted.left] == [raw[0][1], raw[-1][1]]
    assert read(log_of(2), "b") == alone
    assert alone.source.num_understood == 4


@cases("other", [b"step 5\n", b"Traceback (most recent call last):\n", b"[rank0]: Error: x\n", b"0: x\n"])
def test_nothing_is_left_out_where_somebody_else_wrote_too(other: bytes) -> None:
    data = log_of(2)
    for at in (0, 3):
        lines = data.splitlines(keepends=True)
        mixed = b"".join([*lines[:at], other, *lines[at:]])
        forget()
        alone = read(mixed, "b")
        read(log_of(1), "a")
        assert read(mixed, "b") == alone
        raw = [(n, text.rstrip(b"\n"), True) for n, text in enumerate(mixed.splitlines(), start=1)]
        assert not any(dull.sift(raw)[1:3])


def test_the_last_line_of_a_process_is_never_left_out() -> None:
    cut = b"".join(log_of(2).splitlines(keepends=True)[:-1])
    alone = read(cut, "b")
    forget()
    read(log_of(1), "a")
    assert read(cut, "b") == alone
    assert alone.processes[0].last_line == "CC Off, workFifoBytes 1048576"


def test_what_other_tables_asked_nothing_of_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def log(pid: int) -> bytes:
        return line(pid, "NCCL version 2.27.3+cuda12.8") + line(pid, "Using eth9") * 2 + line(pid, "CC Off")

    alone = read(log(2), "b")
    forget()
    with monkeypatch.context() as patch:
        patch.setattr(table, "by_anchor", tuple)
        read(log(1), "a")
        assert dull._MEANT
    assert read(log(2), "b") == alone
    raw = [(n, text, True) for n, text in enumerate(log(2).splitlines(), start=1)]
    monkeypatch.setattr(table, "by_anchor", lambda: ANOTHER)
    assert not any(dull.sift(raw)[1:3])


ANOTHER: tuple[object, ...] = (None,)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dull, "MAX_LINES", 50)
    monkeypatch.setattr(nccl, "_MAX_PLAIN", 60)
    monkeypatch.setattr(events, "_MAX_TEMPLATES", 70)
    for pid in range(100, 140):
        words = "".join(f"Ring {pid}{n} : a\n" for n in range(40)).splitlines()
        read(b"".join(line(pid, w) for w in words), "a")
    assert 0 < len(dull._MEANT) <= 50
    assert 0 < len(nccl._PLAIN) <= 60
    assert 0 < len(events._Memory.known) <= 70
    assert 0 < len(prefix._HEADS) <= prefix._MAX_HEADS


@cases(
    "words",
    [
        "Connected all rings", "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "NCCL_IB_HCA set by environment to mlx5",
        "Using network IB", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "24 coll channels, 24 p2p",
        "comm 0x55aa rank 3 nRanks 8 nNodes 1 localRanks 8 localRank 3 MNNVL 0", "cudaDriverVersion 12080",
    ],
)  # fmt: skip
def test_a_line_that_tells_something_is_never_dull(words: str) -> None:
    process = nccl.NcclProcess("h", 1)
    process.feed(words, tid=1, time_s=None, line=1)
    assert nccl.readers_of(words) != ()


FACTS = (
    "cudaDriverVersion 12080", "NCCL_IB_HCA set by environment to mlx5", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]",
    "Assigned NET plugin IB to comm", "Using network IB", "Initialized NET plugin Other", "24 coll channels, 24 p2p",
    "ncclTopoPopulateNics : Filled eth9 in topo with pciPath=a",
    "NET/Plugin: Loaded net plugin Libfabric (v8)", "NCCL_IB_HCA set by environment to mlx7",
)  # fmt: skip
"""Each tells something of its process; some only where another has not told it before."""


@cases("seed", range(8))
def test_facts_of_a_process_are_taken_from_words_that_are_known(seed: int) -> None:
    chance = random.Random(seed)
    life = ["comm 0xa rank 1 nRanks 8 nNodes 2 localRanks 4 localRank 1", "Connected all rings", "Tree 0 : 1"]
    words = chance.sample(FACTS, len(FACTS)) + life + ["Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"] * 2
    chance.shuffle(words)

    def log(pid: int) -> bytes:
        return b"".join(line(pid, w) for w in ("NCCL version 2.27.3+cuda12.8", *words, "end"))

    alone = read(log(2), "b")
    forget()
    read(b"".join(line(1, w) for w in ("start", *chance.sample(FACTS, len(FACTS)), "end")), "a")
    raw = [(n, text, True) for n, text in enumerate(log(2).splitlines(), start=1)]
    sifted = dull.sift(raw)
    assert [one.meant.words for one in sifted.told] == [w for w in words if w in FACTS]
    assert read(log(2), "b") == alone


def test_a_line_that_tells_something_is_given_to_the_same_readers_again() -> None:
    words = "NCCL_IB_HCA set by environment to mlx5"
    known = [nccl.NcclProcess("h", pid) for pid in (1, 2)]
    for process in known:
        assert process.feed(words, tid=1, time_s=None, line=1)
    assert known[0].env == known[1].env == {"NCCL_IB_HCA": "mlx5"}
