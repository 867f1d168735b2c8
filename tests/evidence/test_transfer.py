"""Records come out of another process as they went in."""

import pickle
from dataclasses import fields
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

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


def test_less_is_sent_than_pickle_would() -> None:
    transfer.register()
    sent = read_all(find([str(RUNS / "ok.tar.xz")]), workers=1)
    assert len(ForkingPickler.dumps(sent)) < 1.05 * len(pickle.dumps(sent, 5))


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


def test_events_arrive_in_their_order_and_with_values_of_their_own() -> None:
    transfer.register()
    events = [
        model.Event(
            signature=f"nccl.{n}", origin=model.Origin(source="a.log", line=n, rank=n % 2), text=f"line {n}",
            values={"n": str(n)}, extra=("more",) * (n % 3), role=list(model.Role)[n % 5],
        )
        for n in range(20)
    ]  # fmt: skip
    for some in (events, events[:1], []):
        sent = contract.Reading(source=model.SourceRecord(path="a.log", kind="log"), events=list(some))
        data = bytes(ForkingPickler.dumps(sent))
        assert sent.events == some
        got, again = pickle.loads(data), pickle.loads(data)
        assert got == again == sent
        assert repr(got) == repr(sent)
        got.events.append(events[0])
        assert again == sent


def test_whatever_is_sent_has_slots() -> None:
    transfer.register()
    known = [cls for cls in vars(ForkingPickler)["_extra_reducers"] if cls.__module__.startswith("allready.")]
    assert contract.Reading in known
    assert all(len(transfer._setters(cls)) == len(fields(cls)) for cls in known)
