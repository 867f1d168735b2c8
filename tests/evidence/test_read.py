"""Sources of every kind, whole and hostile, one process or several: always a reading, never a crash."""

import gzip
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from allready.evidence import read as reading_module
from allready.evidence.inputs import Found, find
from allready.evidence.inputs.workers import Workers
from allready.evidence.read import ReaderPool, ReadingProgress, ReadOptions, packed, read_all, unpacked
from allready.evidence.readers import ReaderContext, read_found
from allready.evidence.reading import OpStream, Reading
from allready.model import Origin, SourceRecord
from tests.cases import cases
from tests.clock import Stopwatch
from tests.evidence.test_sniff import DUMP, ERROR_JSON, FAULTHANDLER, INFO, INSPECTOR, PY_SPY, RAS_JSON, RAS_TEXT

COLL = (
    b"gpu01:7:7 [0] NCCL INFO AllReduce: opCount %x sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 "
    b"comm 0x5 [nranks=2] stream 0x9\n"
)
TABLE = b"""# nThread 1 nGpus 2 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   2001 on      gpu01 device  0 [0x07] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   2001 on      gpu01 device  1 [0x08] NVIDIA H100 80GB HBM3
gpu01:2001:2001 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    12.30    0.00    0.00      0    12.10    0.00    0.00      0
          16             4     float     sum      -1    12.40    0.00    0.00      0    12.20    0.00    0.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.00123
#
"""

FILES: dict[str, bytes] = {
    "node0/nccl.log": INFO * 30 + b"".join(COLL % n for n in range(400)),
    "node1/nccl.log": INFO.replace(b"gpu01:7:7", b"gpu02:8:8") * 30,
    "fr_0": pickle.dumps(DUMP, 2),
    "ras.json": json.dumps(RAS_JSON).encode(),
    "ras.txt": RAS_TEXT,
    "pyspy.1191.txt": PY_SPY,
    "fault.txt": FAULTHANDLER,
    "all_reduce_perf.out": TABLE,
    "inspector.log": json.dumps(INSPECTOR).encode() + b"\n",
    "attempt_0/1/error.json": json.dumps(ERROR_JSON).encode(),
    "report.json": b'{"schema": "allready.report/1", "tool_version": "0.1", "command": "check"}',
    "report.html": b"<!DOCTYPE html><html>NCCL WARN</html>",
    "model.bin": b"\x7fELF" + bytes(5000),
    "empty.log": b"",
}
KINDS = {
    "node0/nccl.log": "log", "node1/nccl.log": "log", "fr_0": "flight recorder", "ras.json": "ras", "ras.txt": "ras",
    "pyspy.1191.txt": "stacks", "fault.txt": "stacks", "all_reduce_perf.out": "nccl-tests",
    "inspector.log": "inspector", "attempt_0/1/error.json": "elastic error", "report.json": "report",
    "report.html": "page", "model.bin": "binary", "empty.log": "empty",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def read(*paths: object, **options: Any) -> list[Reading]:
    return read_all(find([str(p) for p in paths]), **options)


def by_name(readings: list[Reading], top: object, separator: str = "/") -> dict[str, Reading]:
    return {
        r.source.path.removeprefix(f"{top}{separator}"): r
        for r in readings
        if r.source.path.startswith(f"{top}{separator}")
    }


def without_paths(value: Any, label: str) -> str:
    """Everything that was read, without what the file is called."""
    return repr(value).replace(label, "LABEL")


def test_every_kind_gets_its_reader(run: Path) -> None:
    found = by_name(read(run), run)
    assert {name: r.source.kind for name, r in found.items()} == KINDS
    assert not [r.source.problem for r in found.values() if r.source.problem]
    assert found["node0/nccl.log"].op_streams[0].num_operations == 400
    assert found["fr_0"].dumps
    assert found["ras.json"].ras
    assert found["ras.txt"].ras
    assert found["pyspy.1191.txt"].stacks
    assert found["fault.txt"].stacks
    assert found["inspector.log"].inspections
    assert found["report.json"].reports
    assert found["node0/nccl.log"].source.num_lines == 430


def test_nccl_tests_are_read_for_their_table_and_for_nccls_own_lines(run: Path) -> None:
    reading = by_name(read(run / "all_reduce_perf.out", run), run)["all_reduce_perf.out"]
    assert len(reading.benches[0].rows) >= 2
    assert reading.source.num_lines > 10
    assert reading.processes[0].host == "gpu01"


def test_a_log_with_a_table_and_a_stack_gives_both(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_bytes(INFO * 10 + TABLE + INFO * 3000 + FAULTHANDLER)
    [reading] = read(path)
    assert reading.source.kind == "log"
    assert reading.benches
    assert reading.stacks


PACKERS: dict[str, Callable[[Path, Path], object]] = {
    "tar": lambda run, to: _tar(run, to, "w"),
    "tgz": lambda run, to: _tar(run, to, "w:gz"),
    "txz": lambda run, to: _tar(run, to, "w:xz"),
    "zip": lambda run, to: _zip(run, to),
}


def _tar(run: Path, to: Path, mode: Any) -> None:
    with tarfile.open(to, mode) as archive:
        for name in FILES:
            archive.add(run / name, name)


def _zip(run: Path, to: Path) -> None:
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES:
            archive.write(run / name, name)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.thorough
def test_an_archive_says_what_its_folder_says(packer: str, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    PACKERS[packer](run, path)
    apart = by_name(read(run), run)
    packed = by_name(read(path), path, "!")
    assert {n: r.source.kind for n, r in packed.items()} == KINDS
    for name in FILES:
        one, other = apart[name], packed[name]
        # Streams of members whose size is known are read as they are; times of files have no fractions in archives.
        assert without_paths(replace(one.source), f"{run}/{name}") == without_paths(other.source, f"{path}!{name}")
        for part in ("events", "processes", "deaths", "dumps", "ras", "stacks", "benches", "inspections", "reports"):
            assert without_paths(getattr(one, part), f"{run}/{name}") == without_paths(
                getattr(other, part), f"{path}!{name}"
            ), (name, part)
        assert [s.num_operations for s in one.op_streams] == [s.num_operations for s in other.op_streams]


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_reads_the_same(workers: int, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_WORKER_BYTES", 1)
    monkeypatch.setattr(reading_module, "_SPAWN_BYTES", 0)
    assert repr(read(run, workers=workers)) == repr(read(run, workers=1))


@pytest.mark.thorough
def test_a_long_log_is_read_in_parts_as_if_it_were_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "SPLIT_BYTES", 100_000)
    monkeypatch.setattr(reading_module, "_WORKER_BYTES", 1)
    monkeypatch.setattr(reading_module, "_SPAWN_BYTES", 0)
    path = tmp_path / "long.log"
    path.write_bytes(INFO * 30 + b"".join(COLL % n for n in range(10_000)) + b"gpu01:7:7 [0] a.cc:1 NCCL WARN odd\n")
    [split] = read(path, workers=4)
    [whole] = read(path, workers=1)
    assert split.source == whole.source
    assert [s.num_operations for s in split.op_streams] == [10_000]
    assert repr(split.events) == repr(whole.events)
    assert repr(split.processes) == repr(whole.processes)


def test_only_some_kinds_may_be_asked_for(run: Path) -> None:
    readings = read(run, options=ReadOptions(kinds=frozenset({"ras", "flight recorder"})))
    assert sorted(r.source.path.rpartition("/")[2] for r in readings) == ["fr_0", "ras.json", "ras.txt"]


def test_a_reader_that_fails_costs_its_file_only(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import allready.evidence.ras

    def broken(*_: object) -> Reading:
        raise ZeroDivisionError("made up")

    monkeypatch.setattr(allready.evidence.ras, "read_ras", broken)
    found = by_name(read(run), run)
    assert found["ras.json"].source.problem == "its reader failed: ZeroDivisionError: made up"
    assert found["fr_0"].dumps


def test_too_little_memory_costs_its_file_only(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import allready.evidence.ras

    def hungry(*_: object) -> Reading:
        raise MemoryError

    monkeypatch.setattr(allready.evidence.ras, "read_ras", hungry)
    assert "not enough memory" in (by_name(read(run), run)["ras.json"].source.problem or "")


def test_damage_is_told_and_what_was_readable_is_used(run: Path, tmp_path: Path) -> None:
    whole = gzip.compress(FILES["node0/nccl.log"])
    path = tmp_path / "cut.gz"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    [reading] = read(path)
    assert "it was cut" in (reading.source.problem or "")
    assert reading.op_streams[0].num_operations > 20


def test_hostile_pickles_run_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path}/done",)

    (tmp_path / "fr_0").write_bytes(pickle.dumps(DUMP | {"entries": [Evil()]}, 2))
    read(tmp_path)
    assert not (tmp_path / "done").exists()


@pytest.mark.thorough
def test_a_log_that_begins_with_a_hole_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cut-while-written.log"
    with path.open("wb") as file:
        file.seek(10 << 20)
        file.write(INFO * 50)
    [reading] = read(path)
    assert reading.source.kind == "log"
    assert reading.processes


@cases("before", [b"", INFO * 10])
def test_holes_are_passed_over_and_what_stands_around_them_is_read(before: bytes, tmp_path: Path) -> None:
    """A terabyte that is on no disk: read as zeros it takes an hour."""
    path = tmp_path / "cut-while-written.log"
    with path.open("wb") as file:
        file.write(before)
        try:
            file.seek(1 << 40)
            file.write(INFO * 50)
            file.flush()
        except OSError:
            pytest.skip("this file system has no room for a hole")
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no holes")
    [reading] = read(path, workers=1)
    assert reading.source.kind == "log"
    assert reading.source.size_bytes == path.stat().st_size
    assert reading.processes
    [found] = find([str(path)])
    assert isinstance(found, Found)
    parts = reading_module._Parts(ReaderContext())  # zeros would be shared among the workers, and read
    assert parts.split(found, 0, workers=4) == []


def test_very_many_files_that_say_nothing_are_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_MAX_BARE", 5)
    for i in range(40):
        (tmp_path / f"{i}.pt").write_bytes(b"\x7fELF" + bytes(100))
    (tmp_path / "x.log").write_bytes(INFO * 30)
    readings = read(tmp_path)
    assert len(readings) == 7
    assert readings[-1].source.path == "(35 more)"
    assert readings[-1].source.size_bytes == 35 * 104


@pytest.mark.thorough
def test_files_beyond_the_look_ahead_are_read_too(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_MAX_AHEAD", 3)
    for workers in (1, 2):
        seen: list[ReadingProgress] = []
        readings = read(run, workers=workers, progress=seen.append)
        assert {r.source.path.removeprefix(f"{run}/") for r in readings} == set(FILES)
        assert all(p.total_bytes is None for p in seen)


@pytest.mark.thorough
def test_progress_ends_at_the_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split in (1 << 40, 1):
        monkeypatch.setattr(reading_module, "_WORKER_BYTES", split)
        monkeypatch.setattr(reading_module, "_SPAWN_BYTES", 0)
        seen: list[ReadingProgress] = []
        read(run, workers=2, progress=seen.append)
        total = sum(map(len, FILES.values()))
        assert seen[-1] == ReadingProgress(done_bytes=total, total_bytes=total)
        assert [p.done_bytes for p in seen] == sorted(p.done_bytes for p in seen)


def _dies_on_dumps(task: Any, took: Callable[[int], None]) -> Iterator[Any]:
    if task.found.path.endswith("fr_0"):
        os.kill(os.getpid(), signal.SIGKILL)
    yield from reading_module._work(ReaderContext(), task, took)


@pytest.mark.thorough
def test_a_worker_that_is_killed_costs_its_file_only(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_WORKER_BYTES", 1)
    monkeypatch.setattr(reading_module, "_SPAWN_BYTES", 0)
    monkeypatch.setattr(reading_module, "Workers", lambda num, _work, **how: Workers(num, _dies_on_dumps, **how))
    found = by_name(read(run, workers=2), run)
    assert "SIGKILL" in (found["fr_0"].source.problem or "")
    assert {n: r.source.kind for n, r in found.items() if n != "fr_0"} == {
        n: k for n, k in KINDS.items() if n != "fr_0"
    }


def test_files_that_vanish_while_others_are_read_are_told(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    with ReaderPool(find([str(tmp_path / "run")])) as pool:
        (tmp_path / "run" / "ras.json").unlink()
        (tmp_path / "run" / "node0" / "nccl.log").write_bytes(b"")
        found = by_name(pool.read(), tmp_path / "run")
    assert "vanished" in (found["ras.json"].source.problem or "")
    assert found["node0/nccl.log"].source.kind == "empty"
    assert found["node1/nccl.log"].processes


LONG_LINE = """
import json, sys
from allready.evidence.inputs import find
from allready.evidence.read import read_all
[reading] = read_all(find(["-"]))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(json.dumps([reading.source.size_bytes, reading.source.num_lines, reading.source.problem, int(peak)]))
"""


def test_readings_are_packed_and_come_out_the_same() -> None:
    runs = Path(__file__).resolve().parents[1] / "fixtures" / "runs"
    names = ("exception", "sigstop", "jax_ok", "wrong_ifname")
    sent = read_all(find([str(runs / f"{name}.tar.xz") for name in names]), workers=1)
    there = [packed(reading) for reading in sent]
    assert sum(isinstance(one, bytes) for one in there) > 20
    assert any(reading.dumps for reading in there if not isinstance(reading, bytes))
    for before, one in zip(sent, there, strict=True):
        after = unpacked(pickle.loads(pickle.dumps(one)))
        assert after == before
        assert repr(after) == repr(before)


def test_what_cannot_be_packed_is_sent_as_it_is() -> None:
    name = b"caf\xe9.log".decode("utf-8", "surrogateescape")
    stream = OpStream(origin=Origin(source=name, line=3), comm="0x1")
    for reading in (
        Reading(source=SourceRecord(path=name, kind="log")),
        Reading(source=SourceRecord(path="a", kind="log"), op_streams=[stream]),
        Reading(source=SourceRecord(path="a", kind="log", size_bytes=1 << 70)),
    ):
        assert packed(reading) is reading
        assert unpacked(reading) is reading


def test_a_value_that_is_not_what_its_field_says_is_refused() -> None:
    wrong = Reading(source=SourceRecord(path="a", kind="log", problem=3))  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError, match="Expected `str"):
        unpacked(packed(wrong))


@pytest.mark.thorough
def test_what_does_not_arrive_whole_is_told_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"gpu0:1:1 [0] NCCL INFO Using network Socket\n" * 60_000)

    def broken(sent: bytes | Reading) -> Reading:
        reading = unpacked(sent)
        if reading.source.path.endswith("a.log"):
            raise msgspec.ValidationError("Expected `str`, got `int`")
        return reading

    monkeypatch.setattr(reading_module, "unpacked", broken)
    one, other = read_all(find([str(tmp_path)]), workers=2)
    assert (one.source.path, one.source.kind) == (str(tmp_path / "a.log"), "unread")
    assert "did not arrive: Expected `str" in str(one.source.problem)
    assert other.processes[0].network == "Socket"


LONGEST = pytest.param(1024, marks=[pytest.mark.slow, pytest.mark.timeout(600)])


@pytest.mark.thorough
@pytest.mark.parametrize("size_mib", [256, LONGEST])
def test_one_endless_line_takes_bounded_memory_and_time(size_mib: int) -> None:
    begun = Stopwatch()
    reader = subprocess.Popen([sys.executable, "-c", LONG_LINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdin is not None
    block = b"NCCL WARN x " + b"y" * (1 << 20)
    for _ in range(size_mib):
        reader.stdin.write(block)
    out, _ = reader.communicate(timeout=500)
    num_bytes, num_lines, problem, peak_kib = json.loads(out)
    assert num_bytes == size_mib * len(block)
    assert num_lines == 1
    assert problem is None
    assert peak_kib < 200 << 10, "far less than the line"
    assert begun.s < 60


SLOW = """
import sys, time
from allready.evidence import read, readers
from allready.evidence.inputs import find
def slow(stream, source, options):
    time.sleep(600)
readers._READERS["log"] = slow
read._WORKER_BYTES = 1
import psutil
with read.ReaderPool(find(sys.argv[1:]), workers=2) as pool:
    print(*[c.pid for c in psutil.Process().children()], flush=True)
    pool.read()
"""


@pytest.mark.jobs
def test_an_interrupt_while_reading_leaves_no_process(run: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as reader:
        assert reader.stdout is not None
        pids = [int(word) for word in reader.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.3)
        os.killpg(reader.pid, signal.SIGINT)
        begun = Stopwatch()
        _, errors = reader.communicate(timeout=20)
    assert begun.s < 3
    assert errors.count("Traceback") == 1  # of this process, and none of the workers
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_found_files_can_be_sent_to_a_worker(run: Path) -> None:
    for item in find([str(run)]):
        assert isinstance(item, Found)
        assert pickle.loads(pickle.dumps(item)) == item


def test_the_stacks_of_a_process_that_dies_are_a_log_that_tells_its_end(tmp_path: Path) -> None:
    fatal = tmp_path / "rank_3.err"
    fatal.write_bytes(b"Fatal Python error: Segmentation fault\n\n" + FAULTHANDLER)
    [reading] = read_found(Found(path=str(fatal), label="rank_3.err", size_bytes=fatal.stat().st_size))
    assert (reading.source.kind, [(d.rank, d.signal) for d in reading.deaths]) == ("log", [(3, "SIGSEGV")])
    assert reading.stacks
    living = tmp_path / "stacks.txt"
    living.write_bytes(b"Timeout (0:00:10)!\n" + FAULTHANDLER)
    [reading] = read_found(Found(path=str(living), label="stacks.txt", size_bytes=living.stat().st_size))
    assert (reading.source.kind, len(reading.deaths)) == ("stacks", 0)


ONE_THREAD = """
import os, sys
from allready.evidence.inputs import find
from allready.evidence.read import read_all

readings = read_all(find([sys.argv[1]]), workers=1)
assert "numpy" in sys.modules
print(len(readings), len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="numpy starts no threads where there is one CPU")
@cases("before", ["", "3"])
@pytest.mark.thorough
def test_reading_starts_no_threads_and_leaves_numpys_setting_as_it_was(before: str, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_bytes(INFO)
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    env |= {"OPENBLAS_NUM_THREADS": before} if before else {}
    got = subprocess.run(
        [sys.executable, "-c", ONE_THREAD, str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert got.stdout.split() == ["1", "1", before or "None"]
