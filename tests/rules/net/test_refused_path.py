from msgspec.structs import replace

from allready.model import Confidence
from tests.fleets import check, fleet, healthy_reach, healthy_roll
from tests.rules.net.made import NO_ROUTE, REFUSED, not_looked_at, reached


def test_names_the_node_whose_listeners_are_refused() -> None:
    [hit] = check("NET006", reached(3, paths={(0, 1): REFUSED, (2, 1): REFUSED})).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((1,), ((0, 1), (2, 1)))
    assert hit.confidence is Confidence.CERTAIN


def test_knows_firewalld_s_way_of_refusing() -> None:
    [hit] = check("NET006", reached(3, paths={(0, 1): NO_ROUTE})).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 1),), Confidence.LIKELY)


def test_blames_nobody_when_both_nodes_refuse() -> None:
    [hit] = check("NET006", reached(2, paths={(0, 1): REFUSED, (1, 0): REFUSED})).hits
    assert hit.culprits.nodes == ()


def test_says_nothing_of_an_address_that_several_nodes_have() -> None:
    shared = {(a, b): {**REFUSED, "address": "172.17.0.1"} for a in range(3) for b in range(3) if a != b}
    assert check("NET006", fleet(3, reach=healthy_reach(3, shared))).state == "clear"


def test_says_nothing_of_a_node_that_was_lost() -> None:
    roll = replace(healthy_roll(3), lost=(1,))
    assert check("NET006", reached(3, paths={(0, 1): REFUSED}, roll=roll)).state == "clear"


def test_is_clear_when_nothing_is_refused() -> None:
    assert check("NET006", fleet(4)).state == "clear"


def test_is_not_checked_without_probes() -> None:
    assert check("NET006", not_looked_at()).state == "not_checked"
