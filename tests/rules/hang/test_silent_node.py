from typing import Any

import pytest

from allready.judging.engine import finding_of
from allready.judging.loading import load
from allready.model import Confidence, Death, FaultClass, Origin
from allready.text.catalog import say
from tests.rules.runs import ask, death, event, one_missing

WAITED = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete"


def gave_up(rank: int | None = 0, node: str = "node0", **changes: Any) -> Death:
    known: dict[str, Any] = {"text": WAITED, "is_collective_error": True, "site": "train.py:9 step", "node": node}
    return death(rank, **(known | changes))  # at 1000 s


def ended(time_s: float = 1030.0, node: str = "node1", **changes: Any) -> Death:
    known: dict[str, Any] = {"signal": "SIGTERM", "by_launcher": True, "node": node, "time_s": time_s}
    return death(None, "signal", **(known | changes))


def line(signature: str = "gloo.recv_timeout", node: str = "node0") -> Any:
    return event(signature, origin=Origin(source=f"out.{node}.log", node=node), values={"timeout_ms": "10000"})


def hits(*deaths: Death, events: tuple[Any, ...] = (line(),), **changes: Any) -> list[Any]:
    known = {"node_of_rank": {0: 0, 1: 0}, "expected_ranks": 0}
    return list(ask("HNG014", deaths=deaths, events=events, **(known | changes)).hits)


def test_names_the_node_whose_processes_had_to_be_ended_much_later() -> None:
    [hit] = hits(gave_up(), gave_up(1), ended())
    assert (hit.culprits.nodes, hit.culprits.ranks, hit.confidence) == ((1,), (), Confidence.LIKELY)
    assert (hit.values["silent"], hit.values["more"]) == (1, 30)
    assert load()["HNG014"].fault_class is FaultClass.CPU_STUCK


def test_those_that_gave_up_need_no_name() -> None:
    [hit] = hits(gave_up(rank=None), ended())
    found = finding_of(load()["HNG014"], hit)
    assert found.message.endswith("without output after others had timed out in train.py:9 step")
    assert "在其他进程超时（" in say(found, "message", "zh")


def test_which_ranks_these_are_is_told_where_it_is_known() -> None:
    [hit] = hits(gave_up(), ended(), node_of_rank={0: 0, 1: 1})
    assert hit.culprits.ranks == (1,)


@pytest.mark.parametrize(("time_s", "confidence"), [(1011.0, "likely"), (1008.0, "possible"), (1003.0, None)])
def test_who_waited_elsewhere_would_have_given_up_as_well_in_time(time_s: float, confidence: str | None) -> None:
    assert [h.confidence.value for h in hits(gave_up(), ended(time_s))] == ([confidence] if confidence else [])


def test_a_node_that_says_something_is_not_silent() -> None:
    assert hits(gave_up(), ended(), events=(line(), line(node="node1"))) == []
    assert hits(gave_up(), ended(), gave_up(2, "node1")) == []
    assert len(hits(gave_up(), ended(), events=(line(), line("elastic.death_signal", "node1")))) == 1


def test_of_several_silent_nodes_none_is_accused() -> None:
    three = {"node0": 0, "node1": 1, "node2": 2}
    assert hits(gave_up(), ended(), ended(node="node2"), node_numbers=three) == []


def test_whoever_starts_a_communicator_of_nccl_waits_without_a_time_out() -> None:
    assert hits(gave_up(), ended(), events=(line(), line("torch.store_get_failed"))) == []


def test_records_and_failures_tell_more() -> None:
    assert hits(gave_up(), ended(), progress=(one_missing(2),)) == []
    assert hits(gave_up(), ended(), death(1, node="node0")) == []
    assert hits(ended()) == []


def test_before_the_group_is_there_the_node_did_not_come() -> None:
    [hit] = hits(gave_up(), ended(), events=(line("store.wait_timeout"),))
    assert hit.fault_class is FaultClass.START_ABSENT


def test_output_of_ranks_in_files_of_their_own_may_lack() -> None:
    own = Origin(source="rank0.log", node="node0")
    assert hits(gave_up(origin=own), ended(origin=Origin(source="agent.log", node="node1"))) == []


def test_who_waits_in_nccl_has_another_time_out() -> None:
    [hit] = hits(gave_up(), ended(), events=(line(), line("nccl.socket_used", "node0")))
    assert hit.confidence is Confidence.POSSIBLE
