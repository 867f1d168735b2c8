"""What NCCL's log says of a rank, in a form that is sent."""

import io

import pytest

from allready.evidence import nccl_record
from allready.evidence.nccl_record import NcclRecord, decoded, encoded, read_nccl_record
from allready.evidence.readers import ReaderContext
from allready.evidence.reading import OpStream, Reading
from allready.judging.assemble import assemble
from allready.model import CommRecord, Origin, ProcessRecord, SourceRecord
from tests.cases import cases

NET = "gpu1:{pid}:{pid} [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.{rank}<0>\n"
INIT = (
    "gpu1:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x{pid} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 "
    "busId 60 commId 0xabc - Init {what}\n"
)
CALL = (
    "gpu1:{pid}:{pid} [0] NCCL INFO {name}: opCount 0 sendbuff 0x7f0{at:05x} recvbuff 0x7f1{at:05x} count {count} "
    "datatype 7 op 0 root {root} comm 0x{pid} [nranks=2] stream 0x4\n"
)


def log(rank: int, calls: list[tuple[str, int, int]]) -> bytes:
    """(name, count, root) of each call."""
    pid = 10 + rank
    lines = [NET.format(pid=pid, rank=rank)]
    lines += [INIT.format(pid=pid, rank=rank, what=what) for what in ("START", "COMPLETE")]
    lines += [CALL.format(pid=pid, name=n, count=c, root=r, at=at) for at, (n, c, r) in enumerate(calls)]
    return "".join(lines).encode()


def record(data: bytes) -> NcclRecord:
    return read_nccl_record(io.BytesIO(data), "nccl.log", ReaderContext(), size_bytes=len(data))


LOOP = [("AllReduce", 1024, 0), ("AllGather", 64, 0)] * 5_000


def test_two_records_are_joined_as_the_logs_themselves() -> None:
    """Ten thousand calls of each rank, and a send that meets a receive of another size."""
    sends = ([*LOOP, ("Send", 100, 1)], [*LOOP, ("Recv", 200, 0)])
    texts = [encoded(record(log(rank, calls))) for rank, calls in enumerate(sends)]
    assert all(len(text) < len(log(0, LOOP)) / 500 for text in texts)
    readings = [
        Reading(source=SourceRecord(path=str(rank), kind="log"), processes=r.processes, op_streams=r.op_streams)
        for rank, r in enumerate(map(decoded, texts))
    ]
    run = assemble(readings)
    assert [(m.kind, {r: o.num_elements for r, o in m.by_rank.items()}) for m in run.mismatches] == [
        ("size", {0: 100, 1: 200})
    ]
    assert [p.enqueued for p in run.progress[0].positions.values()] == [10_000, 10_000]
    assert {p.interfaces for p in run.processes} == {(("eth0", "10.0.0.0"),), (("eth0", "10.0.0.1"),)}


def test_calls_of_a_log_that_is_too_long_are_not_counted_from_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its communicators stand at its beginning."""
    data = log(0, LOOP)
    monkeypatch.setattr(nccl_record, "MAX_LOG_BYTES", len(data) - 1)
    monkeypatch.setattr(nccl_record, "HEAD_BYTES", 4_096)
    found = record(data)
    assert not found.op_streams
    assert [c.comm_id for p in found.processes for c in p.comms] == ["0xabc"]


def test_a_record_is_never_longer_than_what_is_sent() -> None:
    origin = Origin(source="nccl.log")
    stream = OpStream(origin=origin, comm="0x1", num_operations=9, times=[(n, n / 7) for n in range(256)])
    noise = OpStream(origin=origin, comm="0x2", blocks=[bytes(200_000)])
    many = ProcessRecord(pid=1, comms=tuple(CommRecord(comm=f"0x{n}", rank=0, nranks=2) for n in range(9_000)))
    few = ProcessRecord(pid=1, comms=many.comms[:1])
    rows = [
        (NcclRecord(processes=(few,), op_streams=(stream,)), 1, 256, 1),
        (NcclRecord(processes=(few,), op_streams=(stream,) * 60), 60, 0, 1),
        (NcclRecord(processes=(few,), op_streams=(stream, noise)), 0, 0, 1),
        (NcclRecord(processes=(many,), op_streams=(stream,)), 0, 0, 0),
    ]
    for at, (whole, streams, times, processes) in enumerate(rows):
        text = encoded(whole)
        assert len(text) <= nccl_record.MAX_RECORD_CHARS
        left = decoded(text)
        assert (len(left.op_streams), len(left.processes)) == (streams, processes), at
        assert all(len(s.times) == times for s in left.op_streams), at


@cases("text", ["", "[]", '{"processes": {}}', "x" * 70_000])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decoded(text)
