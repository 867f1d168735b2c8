"""What NCCL's log says of a rank, in a form that is sent."""

import io
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.evidence import nccl_record
from allready.evidence.nccl_record import NcclRecord, decoded, encoded, read_nccl_record
from allready.evidence.operations.codes import place_of
from allready.evidence.readers import ReaderContext
from allready.evidence.reading import OpShape, OpStream, Reading
from allready.judging.assemble import assemble
from allready.model import CommRecord, Origin, ProcessRecord, SourceRecord
from tests.cases import cases
from tests.evidence.operations.streams import AG, AR
from tests.evidence.operations.streams import shape as shape_of
from tests.evidence.operations.streams import stream as made

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
    stream = replace(made([AR] * 256, 0), origin=origin, times=[(n, n / 7) for n in range(256)])
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


def joined(*records: NcclRecord) -> None:
    """As node 0 does it."""
    assemble(
        [
            Reading(
                source=SourceRecord(path=str(rank), kind="log"),
                processes=[replace(p, rank=rank, sources=(str(rank),)) for p in one.processes],
                op_streams=[replace(s, origin=replace(s.origin, source=str(rank), rank=rank)) for s in one.op_streams],
            )
            for rank, one in enumerate(records)
        ]
    )


def packed(*codes: int) -> bytes:
    return zlib.compress(b"".join(code.to_bytes(2, "little") for code in codes))


SEND = shape_of("send", 1)
OF_A_STREAM: dict[str, Callable[[OpStream], OpStream]] = {
    "more than any log has": lambda s: replace(s, counts=[10**15] * 2, num_operations=2 * 10**15),
    "fewer than none": lambda s: replace(s, counts=[-5] * 2, num_operations=-10),
    "another sum": lambda s: replace(s, num_operations=99),
    "numbers of other codes": lambda s: replace(s, counts=[49, 51]),
    "no numbers": lambda s: replace(s, counts=[]),
    "no shapes": lambda s: replace(s, shapes=[], counts=[], num_operations=0),
    "no calls": lambda s: replace(s, blocks=[]),
    "broken calls": lambda s: replace(s, blocks=[b"no calls"]),
    "more calls": lambda s: replace(s, blocks=s.blocks * 2),
    "calls that blow up": lambda s: replace(s, blocks=[zlib.compress(bytes(24_000_000), 9)]),
    "an unknown call": lambda s: replace(s, blocks=[packed(*([0, 1] * 49), 0, 9)]),
    "an unknown call and sends": lambda s: replace(
        s, shapes=[*s.shapes, SEND], counts=[*s.counts, 0], blocks=[packed(9, *([0, 1] * 49), 0)]
    ),
    "too many ranks": lambda s: replace(s, nranks=10**9),
    "calls of too much": lambda s: replace(s, shapes=[replace(x, count=1 << 64) for x in s.shapes]),
    "a root beyond all": lambda s: replace(s, shapes=[replace(x, root=1 << 63) for x in s.shapes]),
    "markers beyond the end": lambda s: replace(s, marks={1: 101}),
    "markers beyond all numbers": lambda s: replace(s, marks={1 << 62: 1}),
    "times beyond the end": lambda s: replace(s, times=[(100, 1.0)]),
}
OF_A_PROCESS: dict[str, Callable[[ProcessRecord], ProcessRecord]] = {
    "too many ranks": lambda p: replace(p, comms=tuple(replace(c, nranks=10**9) for c in p.comms)),
    "a rank beyond": lambda p: replace(p, comms=tuple(replace(c, rank=c.nranks) for c in p.comms)),
    "a rank below": lambda p: replace(p, comms=tuple(replace(c, rank=-1) for c in p.comms)),
    "no process": lambda p: replace(p, pid=None),
    "too many nodes": lambda p: replace(p, num_nodes=10**9),
}


def test_what_no_reader_makes_is_refused() -> None:
    good = record(log(1, LOOP[:100]))
    joined(decoded(encoded(good)))
    strange = {
        f"stream: {name}": replace(good, op_streams=tuple(map(change, good.op_streams)))
        for name, change in OF_A_STREAM.items()
    } | {
        f"process: {name}": replace(good, processes=tuple(map(change, good.processes)))
        for name, change in OF_A_PROCESS.items()
    }
    for name, one in strange.items():
        assert one != good
        with pytest.raises(ValueError):  # noqa: PT012 - which one is reported
            decoded(encoded(one))
            pytest.fail(name)


def test_streams_have_no_more_calls_together_than_a_log_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    good = record(log(1, LOOP[:100]))
    monkeypatch.setattr(nccl_record, "MAX_OPERATIONS", 199)
    decoded(encoded(good))
    with pytest.raises(ValueError, match="too many"):
        decoded(encoded(replace(good, op_streams=good.op_streams * 2)))


def test_of_a_process_nothing_is_taken_but_what_an_agent_sends() -> None:
    good = record(log(1, LOOP[:10]))
    more = tuple(replace(p, rank=7, env={"NCCL_ALGO": "Ring"}) for p in good.processes)
    assert decoded(encoded(replace(good, processes=more))) == good


SHAPES = st.builds(
    OpShape,
    name=st.sampled_from(["all_reduce", "send", "recv"]),
    count=st.sampled_from([-1, 0, 7, 1 << 63]),
    dtype=st.sampled_from(["float32", ""]),
    redop=st.just("sum"),
    root=st.integers(-1, 2),
)
NUMBERS = st.integers(-1, 4) | st.sampled_from([1 << 18, 1 << 62, 10**30])
CALLS = st.lists(st.integers(0, 3), max_size=12)


@st.composite
def any_streams(draw: st.DrawFn) -> OpStream:
    """Some are sound but for one field or none."""
    calls = draw(CALLS)
    shapes = draw(st.lists(SHAPES, min_size=4, max_size=4))
    one = OpStream(
        origin=Origin(source="nccl.log", host="gpu1", pid=11),
        comm=draw(st.sampled_from(["0x11", "0x2"])),
        nranks=2,
        shapes=shapes,
        counts=[calls.count(code) for code in range(4)],
        blocks=[packed(*calls)],
        num_operations=len(calls),
        marks=draw(st.dictionaries(st.integers(0, 5), st.integers(0, len(calls)), max_size=3)),
        times=[(n, float(n)) for n in range(len(calls))],
    )
    changes = {
        "nranks": NUMBERS | st.none(),
        "shapes": st.lists(SHAPES, max_size=4),
        "counts": st.lists(NUMBERS, max_size=4),
        "blocks": st.lists(st.binary(max_size=8) | CALLS.map(lambda codes: packed(*codes)), max_size=2),
        "num_operations": NUMBERS,
        "marks": st.dictionaries(NUMBERS, NUMBERS, max_size=3),
        "times": st.lists(st.tuples(NUMBERS, st.floats(allow_nan=False, allow_infinity=False)), max_size=12),
    }
    for name in draw(st.lists(st.sampled_from(sorted(changes)), max_size=2, unique=True)):
        one = replace(one, **{name: draw(changes[name])})
    return one


@settings(max_examples=60, deadline=None)
@given(st.lists(any_streams(), max_size=2), NUMBERS, NUMBERS)
def test_whatever_is_taken_can_be_joined(streams: list[OpStream], rank: int, nranks: int) -> None:
    good = record(log(0, LOOP[:4]))
    process = record(log(1, LOOP[:4])).processes[0]
    for comms in (process.comms, tuple(replace(c, rank=rank, nranks=nranks) for c in process.comms)):
        try:
            taken = decoded(encoded(NcclRecord(processes=(replace(process, comms=comms),), op_streams=tuple(streams))))
        except ValueError:
            continue
        joined(good, taken)


def test_the_place_of_a_call_is_found_beside_codes_that_stand_for_nothing() -> None:
    """In a stream of a file that is cut or was changed."""
    stream = replace(made([SEND, AR, SEND, AG, AR], 0), blocks=[packed(9, 0, 1, 65_535, 0, 2, 1)])
    assert [place_of(stream, index) for index in range(3)] == [2, 5, 6]
