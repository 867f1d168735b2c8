from msgspec.structs import replace

from allready.model import Claim, RollCall
from tests.fleets import check, claim, fleet, healthy_roll
from tests.rules.port.fleets import worker_alone

SECOND = claim(1, 4, name="gpu9", address="10.0.0.9", pid=4242, arrival_s=2.0, refused="duplicate_rank")


def with_claims(*more: Claim) -> RollCall:
    roll = healthy_roll(4)
    return replace(roll, claims=(*roll.claims, *more))


def test_names_both_parties_with_address_and_pid() -> None:
    [hit] = check("JOB003", fleet(4, roll=with_claims(SECOND))).hits
    assert hit.culprits.nodes == (1,)
    assert hit.values["parties"] == "gpu1, 10.0.0.2, pid 1001 / gpu9, 10.0.0.9, pid 4242"
    assert {e.text.split(" (")[0] for e in hit.evidence} == {"node 1"}


def test_offers_the_rank_that_nobody_has() -> None:
    roll = with_claims(SECOND)
    roll = replace(roll, claims=tuple(c for c in roll.claims if c.node_rank != 3))
    [hit] = check("JOB003", fleet(4, roll=roll)).hits
    assert hit.values["free"] == "3"


def test_the_refused_node_finds_the_same_by_the_roll_it_was_sent() -> None:
    roll = RollCall(num_nodes=4, claims=(claim(0, 4), claim(1, 4), SECOND), finished=False)
    [hit] = check("JOB003", worker_alone("rejected", roll=roll, detail="duplicate_rank")).hits
    assert hit.culprits.nodes == (1,)
    assert "pid 1001" in str(hit.values["parties"])
    assert "pid 4242" in str(hit.values["parties"])


def test_a_second_node_0_is_named_too() -> None:
    rival = claim(0, 4, name="gpu5", address="10.0.0.6", pid=5, refused="duplicate_rank")
    [hit] = check("JOB003", fleet(4, roll=with_claims(rival))).hits
    assert hit.culprits.nodes == (0,)


def test_the_same_process_that_asked_twice_and_got_in_is_no_duplicate() -> None:
    early = claim(2, 4, arrival_s=0.05, refused="duplicate_rank")
    assert check("JOB003", fleet(4, roll=with_claims(early))).state == "clear"


def test_a_node_that_was_started_again_and_let_in_is_no_duplicate() -> None:
    before = claim(2, 4, arrival_s=0.01, pid=7, refused="duplicate_rank")
    assert check("JOB003", fleet(4, roll=with_claims(before))).state == "clear"


def test_is_clear_when_every_rank_came_once() -> None:
    assert check("JOB003", fleet(4)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    assert check("JOB003", fleet(4, roll=None)).state == "not_checked"
