"""The recorded runs: processes, ranks and deaths, file by file, as the scanner gives them and line by line."""

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret, read_lines
from allready.evidence.reading import Reading
from tests.cases import cases

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "runs"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in RUNS.glob("*.tar.xz"))
MTIME_S = 1_795_190_000.0  # later on that day
HEALTHY = {"ok", "v2_ok", "jax_ok", "many_iters_coll", "p2p_disabled", "size_mismatch", "slow_rank"}

DEATHS: dict[str, list[tuple[object, ...]]] = {
    "exception": [
        ("exception", 2, 0, 1364, 1, None, False, True, False, "ValueError: bad sample in shard 17"),
        ("signal", 3, 1, 1366, -15, "SIGTERM", True, False, False, "Sending process 1366 closing"),
    ],
    "sigkill": [
        ("signal", 2, 0, 1279, -15, "SIGTERM", True, False, False, "Sending process 1279 closing"),
        ("signal", 3, 1, 1281, -9, "SIGKILL", False, True, False, "failed (exitcode: -9)"),
    ],
    "wrong_ifname": [
        ("exception", 0, 0, 2398, 1, None, False, True, True, "torch.distributed.DistBackendError: NCCL error in"),
        ("signal", 1, 1, 2400, -15, "SIGTERM", True, False, False, "Sending process 2400"),
        ("exception", 2, 0, 2397, 1, None, False, True, True, "torch.distributed.DistBackendError: [2] is setting up"),
        ("exception", 3, 1, 2399, 1, None, False, False, True, "torch.distributed.DistBackendError: [3] is setting up"),
    ],
    "shm_tiny": [
        ("exception", 0, 0, 2685, 1, None, False, True, True, "torch.distributed.DistBackendError: NCCL error in"),
        ("exception", 1, 1, 2688, 1, None, False, False, True, "torch.distributed.DistBackendError: NCCL error in"),
        ("exception", 2, 0, 2686, 1, None, False, True, True, "torch.distributed.DistBackendError: NCCL error in"),
        ("exception", 3, 1, 2687, 1, None, False, False, True, "torch.distributed.DistBackendError: NCCL error in"),
    ],
}
"""Run -> kind, rank, local rank, pid, exit code, signal, by launcher, first, collective error, the text's beginning."""


@pytest.fixture(scope="module")
def files() -> Mapping[str, Mapping[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for name in NAMES:
        with tarfile.open(RUNS / f"{name}.tar.xz") as tar:
            found[name] = {
                member.name.partition("/")[2]: file.read()
                for member in tar
                if member.name.endswith(".log") and (file := tar.extractfile(member)) is not None
            }
    return found


def readings(files: Mapping[str, bytes], kind: str) -> Iterator[tuple[str, Reading]]:
    for name, data in sorted(files.items()):
        if name.startswith(kind):
            yield name, read_lines(data.splitlines(), name, mtime_s=MTIME_S)


def people(reading: Reading) -> set[tuple[object, ...]]:
    return {(p.host, p.pid, p.rank, p.local_rank, p.node, p.comms) for p in reading.processes}


def test_there_are_recordings() -> None:
    assert len(NAMES) >= 16
    assert set(DEATHS) < set(NAMES)


@cases("run", NAMES, parts=2)
def test_every_nccl_log_is_one_process_with_its_rank(files: Mapping[str, Mapping[str, bytes]], run: str) -> None:
    ranks = []
    for name, reading in readings(files[run], "nccl."):
        node, host, pid = name.removeprefix("nccl.").removesuffix(".log").split(".")
        (process,) = reading.processes
        assert (process.host, process.pid, process.node) == (host, int(pid), node)
        assert not reading.deaths
        ranks.append(process.rank)
        if run != "wrong_ifname":
            assert process.interfaces == (("eth9", "10.77.0.1" if node == "node0" else "10.77.0.2"),)
            assert (process.network, process.versions["nccl"]) == ("Socket", "2.28.9")
            assert (process.num_nodes, process.num_local_ranks) == (2, 2)
            assert process.local_rank == (process.rank or 0) % 2
            assert process.num_channels["coll"] == 2
            assert all(comm.init_completed for comm in process.comms)
            if run not in ("shm_tiny", "jax_ok"):
                assert process.transports
    if run == "wrong_ifname":
        assert set(ranks) == {None}
    else:
        assert sorted(rank for rank in ranks if rank is not None) == [0, 1, 2, 3]


def test_transports_are_those_of_the_run(files: Mapping[str, Mapping[str, bytes]]) -> None:
    for run, how in (("ok", "P2P/CUMEM"), ("p2p_disabled", "SHM/direct/direct")):
        found = {t.how for _, reading in readings(files[run], "nccl.") for t in reading.processes[0].transports}
        assert found == {how, "NET/Socket/0"}


def test_meshes_have_a_communicator_for_each_group(files: Mapping[str, Mapping[str, bytes]]) -> None:
    for _, reading in readings(files["v2_ok"], "nccl."):
        assert sorted(c.nranks for c in reading.processes[0].comms) == [2, 2, 4]
        assert all(c.destroyed for c in reading.processes[0].comms)


@pytest.mark.thorough
@cases("run", NAMES, parts=2)
def test_deaths_are_those_that_happened(files: Mapping[str, Mapping[str, bytes]], run: str) -> None:
    found = [death for _, reading in readings(files[run], "stdout.") for death in reading.deaths]
    expected = DEATHS.get(run, [])
    assert run not in HEALTHY or not found
    got = [
        (d.kind, d.rank, d.local_rank, d.pid, d.exit_code, d.signal, d.by_launcher, d.first, d.is_collective_error)
        for d in sorted(found, key=lambda d: d.rank if d.rank is not None else -1)
    ]
    assert got == [e[:-1] for e in expected]
    for death, wanted in zip(sorted(found, key=lambda d: d.rank or 0), expected, strict=True):
        assert death.text.startswith(str(wanted[-1]))
        assert death.time_s is not None


def test_the_exception_has_its_place(files: Mapping[str, Mapping[str, bytes]]) -> None:
    data = files["exception"]["stdout.node1.log"]
    death = next(d for d in read_lines(data.splitlines(), mtime_s=MTIME_S).deaths if d.rank == 2)
    assert str(death.site) == "/home/user/train_job/victim.py:22 <module>"


@cases("run", NAMES, parts=2)
def test_a_healthy_run_is_understood(files: Mapping[str, Mapping[str, bytes]], run: str) -> None:
    for name, reading in readings(files[run], "nccl."):
        if run in HEALTHY:
            assert reading.source.num_unknown == 0, (name, reading.source.unknown_examples)
        else:
            assert all("NCCL WARN" in text for text in reading.source.unknown_examples), name


@pytest.mark.thorough
@cases("run", [name for name in NAMES if name != "link_down"], parts=2)
def test_the_scanner_gives_the_same(files: Mapping[str, Mapping[str, bytes]], run: str) -> None:
    import io

    for name, data in files[run].items():
        scanned = scan(io.BytesIO(data), source=name)
        one = interpret(scanned, name, mtime_s=MTIME_S)
        other = read_lines(data.splitlines(), name, mtime_s=MTIME_S)
        assert one.deaths == other.deaths
        assert one.events == other.events
        assert people(one) == people(other)
        source = one.source
        assert source.num_understood + source.num_unknown + scanned.num_blank == source.num_lines
        if name.startswith("nccl."):
            assert sum(one.processes[0].op_counts.values()) == scanned.num_coll
            assert {s.origin.rank for s in one.op_streams} <= {one.processes[0].rank}
