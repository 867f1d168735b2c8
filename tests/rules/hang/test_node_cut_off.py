from allready.model import FaultClass
from allready.rules.registry import load
from tests.rules.ruins import ask, at, death, group


def ras(*missing: int) -> object:
    return group(
        {r: at(65) for r in range(4) if r not in missing}, "ras", absent=dict.fromkeys(missing, "unresponsive")
    )


LEVEL = group({r: at(65, 64) for r in range(4)}, "watchdog")


def test_names_the_node_whose_ranks_all_vanished() -> None:
    [hit] = ask("HNG003", progress=(LEVEL, ras(2, 3))).hits
    assert (hit.culprits.nodes, hit.culprits.ranks) == ((1,), ())
    assert load()["HNG003"].fault_class is FaultClass.NET_BROKEN


def test_half_a_node_is_no_node() -> None:
    assert ask("HNG003", progress=(LEVEL, ras(2))).state == "clear"


def test_all_nodes_are_no_node_either() -> None:
    assert ask("HNG003", progress=(LEVEL, ras(0, 1, 2, 3))).state == "clear"


def test_without_knowing_nodes_nothing_is_said() -> None:
    assert ask("HNG003", progress=(LEVEL, ras(2, 3)), node_of_rank={}).state == "clear"


def test_a_death_explains_it() -> None:
    assert ask("HNG003", progress=(LEVEL, ras(2, 3)), deaths=(death(3),)).state == "clear"
