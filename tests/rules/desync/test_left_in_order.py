from typing import Any

from allready.judging.loading import load
from allready.model import Confidence, Culprits, Death, Event, FaultClass, Origin
from tests.rules.runs import ask, death, event, one_missing

CLOSED = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.2]:50339"


def lost(rank: int = 0, node: str = "node0", **changes: Any) -> Death:
    known: dict[str, Any] = {"text": CLOSED, "is_collective_error": True, "site": "train.py:9 step", "node": node}
    return death(rank, **(known | changes))  # at 1000 s


def waited(elapsed: str = "0.6", time_s: float = 1000.2, node: str = "node1") -> Event:
    origin = Origin(source=f"out.{node}.log", line=3, node=node)
    return event("elastic.exit_barrier_failed", origin=origin, time_s=time_s, values={"elapsed": elapsed})


def hits(*deaths: Death, events: tuple[Event, ...] = (waited(),), **changes: Any) -> list[Any]:
    return list(ask("DSY008", deaths=deaths, events=events, **changes).hits)


def test_names_the_node_whose_ranks_had_ended_without_an_error() -> None:
    [hit] = hits(lost(), lost(1))
    assert (hit.culprits.nodes, hit.culprits.ranks, hit.confidence) == ((1,), (2, 3), Confidence.LIKELY)
    assert (hit.values["left"], str(hit.values["site"])) == ("1", "train.py:9 step")
    assert load()["DSY008"].fault_class is FaultClass.DESYNC_FLOW


def test_which_ranks_these_are_need_not_be_known() -> None:
    [hit] = hits(lost(), node_of_rank={0: 0})
    assert (hit.culprits.nodes, hit.culprits.ranks) == ((1,), ())


def test_who_came_to_the_end_long_after_the_failure_did_not_bring_it_about() -> None:
    assert hits(lost(), events=(waited("300.0", 1305.0),)) == []
    assert len(hits(lost(), events=(waited("300.0", 1299.0),))) == 1
    assert hits(lost(), events=(waited(""),)) == []


def test_a_node_that_failed_itself_left_nobody() -> None:
    assert hits(lost(), lost(2, "node1")) == []


def test_a_failure_of_its_own_explains_more() -> None:
    assert hits(lost(), death(1, node="node0")) == []
    assert hits(lost(), progress=(one_missing(2),)) == []
    assert hits() == []


def test_where_most_nodes_had_ended_rather_the_few_made_a_call_more() -> None:
    three = {"node0": 0, "node1": 1, "node2": 2}
    [hit] = hits(lost(), events=(waited(), waited(node="node2")), node_numbers=three)
    assert (hit.values["left"], hit.culprits) == ("1, 2", Culprits())
