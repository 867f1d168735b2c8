from allready.model import RollCall
from tests.fleets import check, claim, fleet


def test_names_the_node_that_counts_from_one() -> None:
    claims = (claim(0, 2), claim(2, 2, refused="num_nodes_differs"))
    [hit] = check("JOB007", fleet(2, roll=RollCall(num_nodes=2, claims=claims))).hits
    assert hit.culprits.nodes == (2,)
    assert (hit.values["last"], hit.values["free"]) == (1, "1")


def test_a_node_with_another_nnodes_is_judged_by_that_alone() -> None:
    claims = (claim(0, 2), claim(2, 3, refused="num_nodes_differs"))
    assert check("JOB007", fleet(2, roll=RollCall(num_nodes=2, claims=claims))).state == "clear"


def test_is_clear_when_all_ranks_exist() -> None:
    assert check("JOB007", fleet(2)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    assert check("JOB007", fleet(2, roll=None)).state == "not_checked"
