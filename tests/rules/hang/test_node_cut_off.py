from allready.judging.loading import load
from allready.model import FaultClass
from tests.rules.runs import ask, at, death, event, group, stack


def ras(*missing: int) -> object:
    return group(
        {r: at(65) for r in range(4) if r not in missing}, "ras", absent=dict.fromkeys(missing, "unresponsive")
    )


LEVEL = group({r: at(65, 64) for r in range(4)}, "watchdog")


def test_names_the_node_whose_ranks_all_vanished() -> None:
    [hit] = ask("HNG003", progress=(LEVEL, ras(2, 3))).hits
    assert (hit.culprits.nodes, hit.culprits.ranks) == ((1,), ())
    assert load()["HNG003"].fault_class is FaultClass.NET_BROKEN


def test_a_process_that_stands_outside_of_a_collective_would_not_answer_anyway() -> None:
    one_each = {r: r for r in range(4)}
    assert ask("HNG003", progress=(LEVEL, ras(3)), node_of_rank=one_each).hits
    seen = stack(3, "user_code")
    assert ask("HNG003", progress=(LEVEL, ras(3)), node_of_rank=one_each, stacks=(seen,)).state == "clear"
    waits = stack(3, "in_collective")
    assert ask("HNG003", progress=(LEVEL, ras(3)), node_of_rank=one_each, stacks=(waits,)).hits


def test_half_a_node_is_no_node() -> None:
    assert ask("HNG003", progress=(LEVEL, ras(2))).state == "clear"


def test_all_nodes_are_no_node_either() -> None:
    assert ask("HNG003", progress=(LEVEL, ras(0, 1, 2, 3))).state == "clear"


def test_without_knowing_nodes_nothing_is_said() -> None:
    assert ask("HNG003", progress=(LEVEL, ras(2, 3)), node_of_rank={}).state == "clear"


def test_a_death_explains_it() -> None:
    assert ask("HNG003", progress=(LEVEL, ras(2, 3)), deaths=(death(3),)).state == "clear"


def test_a_closed_connection_means_that_processes_ended() -> None:
    closed = event(
        "torch.async_exception", 0, values={"last_error": "socketProgress: Connection closed by remote peer"}
    )
    assert ask("HNG003", progress=(LEVEL, ras(2, 3)), events=(closed,)).state == "clear"


def test_dumps_that_are_missing_are_no_network_that_is() -> None:
    half = group({0: at(65, 64), 1: at(65, 64)}, absent={2: "no dump", 3: "no dump"})
    assert ask("HNG003", progress=(half,), events=(event("torch.watchdog_timeout", 0),)).state == "clear"


def test_a_rank_that_answers_keeps_its_node_reachable() -> None:
    half = group({2: at(65, 64), 3: at(65, 64)}, absent={0: "no dump", 1: "no dump"})
    assert ask("HNG003", progress=(half, ras(1))).state == "clear"
    [hit] = ask("HNG002", progress=(half, ras(1))).hits
    assert hit.culprits.ranks == (1,)
