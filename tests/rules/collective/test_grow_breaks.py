from msgspec.structs import replace

from allready.model import CollectiveRun, Collectives, FaultClass
from tests.fleets import check, fleet, healthy_collectives
from tests.rules.collective.made_up import run, stage, stopped_at

HUNG = stage("nccl_small", "hung", world_size=4)


def grown(num: int, *, works: bool) -> CollectiveRun:
    if works:
        return replace(healthy_collectives(num).runs[0], label=f"grow {num}", is_grown=True)
    return run(replace(HUNG, entered=tuple(range(num))), world_size=num, label=f"grow {num}", is_grown=True)


def test_names_the_node_that_joined_when_it_broke() -> None:
    runs = [grown(1, works=True), grown(2, works=True), grown(4, works=False)]
    [hit] = check("COL013", fleet(2, collectives=stopped_at(HUNG, *runs))).hits
    assert (hit.values["works"], hit.values["breaks"], hit.values["added"]) == (2, 4, "2,3")
    assert (hit.culprits.nodes, hit.culprits.ranks) == ((1,), (2, 3))


def test_names_the_one_rank_that_joined() -> None:
    runs = [grown(1, works=True), grown(2, works=False)]
    [hit] = check("COL013", fleet(1, collectives=stopped_at(HUNG, *runs))).hits
    assert (hit.culprits.ranks, hit.values["added"], hit.fault_class) == ((1,), "1 (gpu0)", FaultClass.HW_HANG)


def test_blames_nobody_when_ranks_of_several_nodes_joined_at_once() -> None:
    runs = [grown(2, works=True), grown(6, works=False)]
    [hit] = check("COL013", fleet(3, collectives=stopped_at(HUNG, *runs))).hits
    assert not hit.culprits


def test_blames_nobody_when_even_the_smallest_fails() -> None:
    [hit] = check("COL013", fleet(2, collectives=stopped_at(HUNG, grown(1, works=False)))).hits
    assert (hit.values["works"], hit.culprits.ranks) == (0, ())


def test_is_clear_when_every_size_works_or_none_was_tried() -> None:
    runs = (healthy_collectives(4).runs[0], grown(1, works=True), grown(2, works=True), grown(4, works=True))
    assert check("COL013", fleet(2, collectives=Collectives(runs=runs))).state == "clear"
    assert check("COL013", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL013", fleet(2, collectives=None)).state == "not_checked"
