from allready.model import FactMissing, RollCall
from tests.fleets import check, claim, fleet
from tests.rules.port.fleets import worker_alone


def test_names_a_node_with_another_version() -> None:
    claims = (claim(0, 2), claim(1, 2, refused="version"))
    [hit] = check("JOB008", fleet(2, roll=RollCall(num_nodes=2, claims=claims))).hits
    assert hit.culprits.nodes == (1,)
    assert hit.values["reason"] == "version"


def test_the_refused_node_says_it_even_without_a_roll() -> None:
    [hit] = check("JOB008", worker_alone("rejected", detail="version")).hits
    assert (hit.culprits.nodes, hit.values["reason"]) == ((1,), "version")


def test_leaves_a_refusal_that_has_its_own_rule_to_that_rule() -> None:
    roll = RollCall(num_nodes=4, claims=(claim(0, 4), claim(1, 4), claim(1, 4, pid=9, refused="duplicate_rank")))
    assert check("JOB008", worker_alone("rejected", roll=roll, detail="duplicate_rank")).state == "clear"


def test_is_clear_when_nobody_was_refused() -> None:
    assert check("JOB008", fleet(2)).state == "clear"


def test_is_not_checked_when_the_job_is_not_known() -> None:
    outcome = check("JOB008", worker_alone("rejected", facts={"launch": FactMissing("no flags")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no flags"})
