from dataclasses import replace

from allready.model import Caller, Confidence
from allready.testing import check, fleet, healthy_roll


def without(*absent: int):  # type: ignore[no-untyped-def]
    roll = healthy_roll(4)
    return replace(roll, claims=tuple(c for c in roll.claims if c.node_rank not in absent))


def test_names_the_node_that_never_came() -> None:
    [hit] = check("JOB001", fleet(4, roll=without(2))).hits
    assert hit.culprits.nodes == (2,)
    assert hit.confidence is Confidence.LIKELY


def test_does_not_call_a_node_absent_whose_datagrams_arrive() -> None:
    roll = replace(without(2), callers=(Caller(kind="datagram", address="10.0.0.3", node_rank=2),))
    assert check("JOB001", fleet(4, roll=roll)).state == "clear"


def test_is_clear_when_everybody_came() -> None:
    assert check("JOB001", fleet(4)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    outcome = check("JOB001", fleet(4, roll=None, why_not={"roll": "one node"}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {None: "one node"})
