from allready.model import PathSize

from .wires import DEAD, Pair, ask

HOLE = PathSize(passed_bytes=1280, lost_bytes=1450)
FINE = PathSize(passed_bytes=1500)


def both(a: int, b: int) -> dict[Pair, PathSize]:
    return {(a, b): HOLE, (b, a): HOLE}


def test_names_the_node_behind_the_hole() -> None:
    stuck = {(1, 2): DEAD, (2, 1): DEAD, (2, 3): DEAD}
    [hit] = ask("LNK008", rows=stuck, sizes=both(1, 2) | both(2, 3)).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((2,), ())
    assert (hit.values["passed"], hit.values["lost"], hit.values["ping"]) == (1280, 1450, 1422)
    for other in ("LNK001", "LNK003", "LNK004"):
        assert ask(other, rows=stuck, sizes=both(1, 2) | both(2, 3)).state == "clear"


def test_of_one_pair_only_the_path_is_named() -> None:
    [hit] = ask("LNK008", rows={(1, 2): DEAD}, sizes=both(1, 2)).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((1, 2),))


def test_a_path_that_lets_all_packets_pass_is_broken_in_another_way() -> None:
    stuck = {(1, 2): DEAD, (2, 3): DEAD}
    assert ask("LNK008", rows=stuck, sizes={(1, 2): HOLE, (2, 3): FINE}).state == "clear"
    assert ask("LNK003", rows={(1, 2): DEAD}, sizes={(1, 2): FINE}).hits


def test_without_stuck_data_nobody_asks() -> None:
    assert ask("LNK008", sizes=both(1, 2)).state == "clear"


def test_where_no_datagram_is_answered_nothing_is_known() -> None:
    assert ask("LNK008", rows={(1, 2): DEAD}).state == "clear"
