from typing import Any

from allready.model import PathProbe, Reachability
from allready.report.matrix import OUTCOMES, matrix
from tests.cases import cases
from tests.fleets import healthy_path, healthy_reach


def of(*paths: PathProbe) -> Reachability:
    return Reachability(paths=paths)


def test_a_cell_is_the_worst_of_its_paths() -> None:
    table = matrix(of(healthy_path(0, 1), healthy_path(0, 1, kind="master", outcome="refused", port=29500)))
    cell = table.cells[0, 1]
    assert (cell.outcome, cell.letter, cell.bad) == ("refused", "R", True)
    assert "master 10.0.0.2:29500 refused" in cell.detail("en")
    assert "1 ok (data), rtt 100 µs, 2 GB/s" in cell.detail("en")


@cases("worse", OUTCOMES[1:])
def test_every_outcome_is_worse_than_ok(worse: str) -> None:
    assert matrix(of(healthy_path(0, 1, outcome=worse), healthy_path(0, 1))).cells[0, 1].outcome == worse


def test_a_path_that_was_not_tried_is_no_trouble() -> None:
    table = matrix(of(healthy_path(0, 1, outcome="not_run", rtt_s=None)))
    assert (table.num_bad, table.rtt_s) == (0, None)


def test_an_outcome_of_a_later_version_counts_as_an_error() -> None:
    assert matrix(of(healthy_path(0, 1, outcome="vanished"))).cells[0, 1].outcome == "error"


def test_lost_datagrams_are_said_with_their_sizes_and_direction() -> None:
    lost = {"received_bytes": (92, 1428)}
    nothing: dict[str, Any] = {"received_bytes": ()}
    table = matrix(healthy_reach(2, datagrams={(0, 1): lost, (1, 0): nothing}))
    assert "UDP 10.0.0.2: 1500 9000 B lost, smaller ones arrived" in table.cells[0, 1].detail("en")
    assert "UDP 10.0.0.1: nothing arrived" in table.cells[1, 0].detail("en")


def test_a_datagram_that_never_left_is_not_called_lost() -> None:
    too_big = {"received_bytes": (92, 1428, 1500), "too_big_bytes": (9000,)}
    assert "UDP" not in matrix(healthy_reach(2, datagrams={(0, 1): too_big})).cells[0, 1].detail("en")


def test_of_many_nodes_only_those_with_trouble_are_drawn_and_the_common_one_is_named() -> None:
    bad = {(7, other): {"outcome": "filtered"} for other in range(100) if other != 7}
    table = matrix(healthy_reach(100, bad | {(20, 21): {"outcome": "refused"}}))
    assert (table.num_nodes, table.num_bad, table.num_cells) == (100, 100, 9900)
    assert [t.node_rank for t in table.tallies] == [7, 20]
    assert (table.tallies[0].bad_from, table.tallies[0].all_from, table.tallies[0].bad_to) == (99, 99, 0)
    assert {7, 20} <= set(table.shown)
    assert len(table.shown) == 32
    assert len(table.bad) == 64


def test_of_many_healthy_nodes_none_is_drawn() -> None:
    table = matrix(healthy_reach(70))
    assert (table.shown, table.cells, table.bad, table.letters) == ((), {}, (), ("ok",))
