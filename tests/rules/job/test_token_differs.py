from allready.model import Caller, TokenGap
from tests.fleets import check, fleet
from tests.rules.port.fleets import node_0_alone, worker_alone


def came(node: int, gap: TokenGap) -> Caller:
    return Caller(kind=gap, address=f"10.0.0.{node + 1}", node_rank=node, name=f"gpu{node}", detail=gap)


def test_node_0_names_the_missing_node_that_came_without_the_token() -> None:
    alone = node_0_alone(3, present=(0, 1), callers=(came(2, TokenGap.MISSING),))
    [hit] = check("JOB013", alone).hits
    assert (hit.culprits.nodes, hit.confidence, hit.values["without"]) == ((2,), "likely", "2")
    assert "gpu2, 10.0.0.3" in hit.evidence[0].text
    absent = check("JOB001", alone)
    assert all(2 not in h.culprits.nodes for h in absent.hits), "it is no silent node"


def test_with_two_tokens_and_no_other_node_none_is_named() -> None:
    [hit] = check("JOB013", node_0_alone(2, callers=(came(1, TokenGap.DIFFERS),))).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), ("ALLREADY_TOKEN",))


def test_the_odd_one_of_several_is_named() -> None:
    [hit] = check("JOB013", node_0_alone(3, present=(0, 1), callers=(came(2, TokenGap.DIFFERS),))).hits
    assert hit.culprits.nodes == (2,)


def test_node_0_without_a_token_is_named_by_both_sides() -> None:
    [hit] = check("JOB013", node_0_alone(2, callers=(came(1, TokenGap.NOT_ASKED),))).hits
    assert (hit.culprits.nodes, hit.values["without"]) == ((0,), "0 (gpu0)")
    [hit] = check("JOB013", worker_alone("rejected", detail="token_not_asked")).hits
    assert (hit.culprits.nodes, hit.confidence) == ((0,), "certain")


def test_the_node_itself_says_that_it_has_none() -> None:
    fleet_of_one = worker_alone("rejected", detail="token_missing")
    [hit] = check("JOB013", fleet_of_one).hits
    assert (hit.culprits.nodes, hit.confidence) == ((1,), "certain")
    assert check("JOB008", fleet_of_one).state == "clear"


def test_a_stranger_that_takes_the_name_of_a_node_that_is_here_accuses_nobody() -> None:
    assert check("JOB013", node_0_alone(3, present=(0, 1, 2), callers=(came(2, TokenGap.MISSING),))).state == "clear"


def test_is_clear_when_all_came() -> None:
    assert check("JOB013", fleet(4)).state == "clear"
