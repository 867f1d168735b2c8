"""Records come out of another process as they went in."""

import pickle
from dataclasses import fields
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

from allready import model
from allready.evidence import reading as contract
from allready.evidence import transfer
from allready.evidence.inputs import find
from allready.evidence.read import read_all

RUNS = Path(__file__).resolve().parents[1] / "fixtures" / "runs"


def test_readings_arrive_as_they_were_sent() -> None:
    transfer.register()
    sent = read_all(find([str(RUNS / "exception.tar.xz"), str(RUNS / "sigstop.tar.xz")]), workers=1)
    assert any(r.deaths for r in sent)
    assert any(r.dumps for r in sent)
    assert any(r.op_streams or r.stacks for r in sent)
    assert pickle.loads(ForkingPickler.dumps(sent)) == sent


def test_what_arrives_is_as_frozen_as_before() -> None:
    transfer.register()
    origin = model.Origin(source="a.log", line=3)
    event = pickle.loads(ForkingPickler.dumps(model.Event(signature="nccl.x", origin=origin, text="t")))
    assert event.origin == origin
    assert {f.name for f in fields(event)} <= set(dir(event))
    assert hash(event.origin) == hash(origin)
    stream = pickle.loads(ForkingPickler.dumps(contract.OpStream(origin=origin, comm="0x1")))
    stream.num_operations = 5
    assert stream.num_operations == 5


def test_readings_of_logs_are_packed_and_come_out_the_same() -> None:
    runs = [str(RUNS / f"{name}.tar.xz") for name in ("exception", "sigstop", "jax_ok", "wrong_ifname")]
    sent = read_all(find(runs), workers=1)
    packed = [transfer.packed(reading) for reading in sent]
    assert sum(isinstance(one, bytes) for one in packed) > 20
    assert any(reading.dumps for reading in packed if not isinstance(reading, bytes))
    for before, one in zip(sent, packed, strict=True):
        got = transfer.unpacked(one)
        assert got == before
        assert repr(got) == repr(before)


def test_what_cannot_be_packed_is_sent_as_it_is() -> None:
    name = b"caf\xe9.log".decode("utf-8", "surrogateescape")
    origin = model.Origin(source=name, line=3)
    for reading in (
        contract.Reading(source=model.SourceRecord(path=name, kind="log")),
        contract.Reading(
            source=model.SourceRecord(path="a", kind="log"), op_streams=[contract.OpStream(origin=origin, comm="0x1")]
        ),
        contract.Reading(source=model.SourceRecord(path="a", kind="log", size_bytes=1 << 70)),
        contract.Reading(source=model.SourceRecord(path="a", kind="ras")),
    ):
        assert transfer.packed(reading) is reading
        assert transfer.unpacked(reading) is reading


def test_a_value_that_is_not_what_its_field_says_is_told() -> None:
    wrong = contract.Reading(source=model.SourceRecord(path="a", kind="log", problem=3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected `str"):
        transfer.unpacked(transfer.packed(wrong))


def test_events_arrive_in_their_order_and_with_values_of_their_own() -> None:
    transfer.register()
    events = [
        model.Event(
            signature=f"nccl.{n}",
            origin=model.Origin(source="a.log", line=n, rank=n % 2),
            text=f"line {n}",
            values={"n": str(n)},
            extra=("more",) * (n % 3),
            role=list(model.Role)[n % 5],
        )
        for n in range(20)
    ]
    for some in (events, events[:1], []):
        sent = contract.Reading(source=model.SourceRecord(path="a.log", kind="log"), events=list(some))
        data = transfer.packed(sent)
        assert sent.events == some
        got, again = transfer.unpacked(data), transfer.unpacked(data)
        assert got == again == sent
        assert pickle.loads(bytes(ForkingPickler.dumps(sent))) == sent
        assert repr(got) == repr(sent)
        got.events.append(events[0])
        assert again == sent


def test_whatever_is_sent_has_slots() -> None:
    transfer.register()
    known = [cls for cls in vars(ForkingPickler)["_extra_reducers"] if cls.__module__.startswith("allready.")]
    assert contract.Reading in known
    assert all(len(transfer._setters(cls)) == len(fields(cls)) for cls in known)
