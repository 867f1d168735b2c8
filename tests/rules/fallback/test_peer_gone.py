from typing import Any

from allready.model import Confidence, Event, FaultClass, Origin, ProcessRecord, Role, Severity
from tests.cases import cases
from tests.rules.runs import ask, event


def closed(peer: str, rank: int | None = None, line: int = 1, **changes: Any) -> Event:
    origin = Origin(
        source="out.log", line=line, rank=rank, host=changes.pop("host", None), pid=changes.pop("pid", None)
    )
    known: dict[str, Any] = {"role": Role.CASCADE, "values": {"peer": peer}, "origin": origin}
    return event(changes.pop("signature", "nccl.peer_closed"), **(known | changes))


def chain(rank: int | None = None, line: int = 2) -> Event:
    values = {"file": "misc/socket.cc:80", "result": "6"}
    origin = Origin(source="out.log", line=line, rank=rank)
    return event("nccl.back_trace", role=Role.CASCADE, values=values, origin=origin)


def test_names_the_address_of_the_counterpart_and_accuses_nobody_that_is_not_known() -> None:
    [hit] = ask("RES002", events=(closed("10.9.9.9", 0), chain(0))).hits
    assert (hit.values["peer"], hit.confidence, hit.severity) == ("10.9.9.9", Confidence.POSSIBLE, None)
    assert not hit.culprits


def test_two_victims_of_one_address_make_it_likely() -> None:
    lines = (closed("10.0.0.2", 0), chain(0), closed("10.0.0.2", 1, 3), chain(1, 4))
    [hit] = ask("RES002", events=lines, peers={"10.0.0.2": (2, 3)}).hits
    assert (hit.confidence, hit.culprits.nodes, hit.culprits.ranks) == (Confidence.LIKELY, (1,), ())


def test_two_addresses_are_a_tie() -> None:
    lines = (closed("10.9.9.1", 0), closed("10.9.9.2", 1, 3), chain(0, 4))
    [hit] = ask("RES002", events=lines).hits
    assert (hit.values["peer"], hit.confidence) == ("10.9.9.1, 10.9.9.2", Confidence.POSSIBLE)
    assert not hit.culprits


@cases(
    ("lost", "peers", "shown", "nodes"),
    [
        ("2211", {"10.0.0.2": (4,)}, "10.0.0.2, 10.0.0.1", ()),
        ("2213", {"10.0.0.2": (4,)}, "10.0.0.2, 10.0.0.1, 10.0.0.3", ()),
        ("2221", {"10.0.0.2": (4,)}, "10.0.0.2", (2,)),
        ("2231", {"10.0.0.2": (4,), "10.0.0.3": (5,)}, "10.0.0.2, 10.0.0.3", (2,)),  # two addresses of one node
    ],
)
def test_the_node_that_most_have_lost_is_accused_and_no_plurality(
    lost: str, peers: dict[str, tuple[int, ...]], shown: str, nodes: tuple[int, ...]
) -> None:
    lines = [line for r, at in enumerate(lost) for line in (closed(f"10.0.0.{at}", r, 2 * r + 1), chain(r, 2 * r + 2))]
    nodes_of = dict(enumerate((0, 0, 1, 1, 2, 2)))
    [hit] = ask("RES002", events=lines, peers=peers, node_of_rank=nodes_of).hits
    assert (hit.values["peer"], hit.culprits.nodes) == (shown, nodes)
    assert hit.confidence is (Confidence.LIKELY if nodes else Confidence.POSSIBLE)


def test_who_complains_himself_is_not_named() -> None:
    """A ring of victims: rank 2 lost rank 0, and rank 0 lost rank 2."""
    lines = (closed("10.0.0.2", 0), closed("10.0.0.1", 2, 3), chain(0, 4))
    assert ask("RES002", events=lines, peers={"10.0.0.1": (0, 1), "10.0.0.2": (2, 3)}).state == "clear"
    own = (closed("gpu7.cluster", host="gpu7", pid=3), closed("127.0.0.1", host="gpu7", pid=3, line=2))
    assert ask("RES002", events=own).state == "clear"


def test_words_without_a_failure_are_a_warning_only() -> None:
    [hit] = ask("RES002", events=(closed("10.9.9.9", 0),)).hits
    assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.POSSIBLE)
    raised = closed("10.9.9.9", text="RuntimeError: Connection closed by peer", signature="gloo.peer_closed")
    [hit] = ask("RES002", events=(raised,)).hits
    assert hit.severity is None


def test_who_ended_well_or_went_on_lost_nothing() -> None:
    assert ask("RES002", events=(closed("10.9.9.9", 0),), ended_well=frozenset({0})).state == "clear"
    last = Origin(source="out.log", line=90, rank=0)
    moving = ProcessRecord(rank=0, last_line_class="operation", last_origin=last)
    assert ask("RES002", events=(closed("10.9.9.9", 0),), processes=(moving,)).state == "clear"
    assert ask("RES002").state == "clear"


def test_flushed_requests_are_of_the_network() -> None:
    [hit] = ask("RES002", events=(closed("10.9.9.9", 0, signature="nccl.ib_flushed"), chain(0))).hits
    assert hit.fault_class is FaultClass.NET_BROKEN


def test_a_connection_that_ends_while_the_job_is_ended_by_order_is_not_asked() -> None:
    order = event("elastic.death_signal", origin=Origin(source="out.log", line=3))
    assert ask("RES002", events=(order, closed("10.9.9.9", 0, 5), chain(0, 6))).state == "clear"
