from msgspec.structs import replace

from allready.model import Claim, RollCall, WorldNode
from allready.model.fill import in_english
from tests.fleets import check, claim, fleet
from tests.rules.port.fleets import worker_alone


def roll(*claims: Claim, num_nodes: int = 4) -> RollCall:
    return RollCall(num_nodes=num_nodes, claims=claims)


def test_names_the_one_node_with_another_nnodes() -> None:
    odd = claim(2, 3, refused="num_nodes_differs")
    [hit] = check("JOB004", fleet(4, roll=roll(claim(0, 4), claim(1, 4), odd, claim(3, 4)))).hits
    assert hit.culprits.nodes == (2,)
    assert (
        in_english(hit.values["split"])
        == "--nnodes is 3 on node 2 (gpu2); --nnodes is 4 on node 0 (gpu0), 1 (gpu1), 3 (gpu3)"
    )


def test_names_node_0_when_the_others_agree_against_it() -> None:
    others = (claim(r, 4, refused="num_nodes_differs") for r in (1, 2, 3))
    [hit] = check("JOB004", fleet(3, roll=roll(claim(0, 3), *others, num_nodes=3))).hits
    assert hit.culprits.nodes == (0,)


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check(
        "JOB004", fleet(2, roll=roll(claim(0, 2), claim(1, 3, refused="num_nodes_differs"), num_nodes=2))
    ).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), ("nnodes",))
    assert in_english(hit.values["split"]) == "--nnodes is 2 on node 0 (gpu0); --nnodes is 3 on node 1 (gpu1)"


def test_the_refused_node_sees_both_values_in_a_roll_without_node_0s_claim() -> None:
    partial = roll(claim(1, 3, refused="num_nodes_differs"), num_nodes=2)
    [hit] = check("JOB004", worker_alone("rejected", num_nodes=3, roll=partial)).hits
    assert in_english(hit.values["split"]) == "--nnodes is 2 on node 0; --nnodes is 3 on node 1 (gpu1)"


def test_a_node_that_came_again_with_the_right_number_is_forgiven() -> None:
    before = claim(1, 3, arrival_s=0.05, refused="num_nodes_differs")
    assert check("JOB004", fleet(2, roll=roll(claim(0, 2), before, claim(1, 2, arrival_s=9.0), num_nodes=2))).state == (
        "clear"
    )


def test_a_node_of_another_job_has_no_say() -> None:
    stray = claim(1, 8, job_id="other", refused="job_id_differs")
    assert check("JOB004", fleet(2, roll=roll(claim(0, 2), claim(1, 2), stray, num_nodes=2))).state == "clear"


def test_is_clear_when_all_agree() -> None:
    assert check("JOB004", fleet(4)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    assert check("JOB004", fleet(4, roll=None)).state == "not_checked"


def test_a_host_is_called_as_it_is_called() -> None:
    partial = roll(claim(1, 3, refused="num_nodes_differs"), num_nodes=2)
    known = worker_alone("rejected", num_nodes=3, roll=partial)
    named = replace(known, world=replace(known.world, nodes=(WorldNode(node_rank=0, name="gpu(a)"),)))
    [hit] = check("JOB004", named).hits
    assert in_english(hit.values["split"]) == "--nnodes is 2 on node 0 (gpu(a)); --nnodes is 3 on node 1 (gpu1)"
