from msgspec.structs import replace

from allready.model import Confidence
from tests.fleets import check, fleet, healthy_reach
from tests.rules.net.made import SILENT, UNHEARD, both, datagrams_of, elsewhere, not_looked_at, reached


def test_names_the_direction_that_swallows_packets() -> None:
    # Node 2 drops what comes from node 1: no TCP connection either way, datagrams arrive only at node 1.
    case = reached(3, paths=both(1, 2, SILENT), datagrams={(1, 2): UNHEARD})
    [hit] = check("NET004", case).hits
    assert (hit.culprits.links, hit.culprits.nodes) == (((1, 2),), ())
    assert hit.confidence is Confidence.CERTAIN  # node 2 hears node 0
    assert check("NET001", case).state == check("NET005", case).state == "clear"


def test_is_less_sure_of_two_nodes_only() -> None:
    case = reached(2, paths=both(0, 1, SILENT), datagrams={(0, 1): UNHEARD}, roll=elsewhere(2))
    [hit] = check("NET004", case).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 1),), Confidence.LIKELY)


def test_leaves_a_stateful_firewall_to_another_rule() -> None:
    # TCP from 1 to 2 is silent, the reverse connects: packets do pass both ways.
    case = reached(3, paths={(1, 2): SILENT}, datagrams={(1, 2): UNHEARD})
    assert check("NET004", case).state == "clear"
    assert check("NET001", case).state == "hit"


def test_does_not_guess_without_datagrams() -> None:
    reach = datagrams_of(healthy_reach(3, both(1, 2, SILENT)))
    assert check("NET004", fleet(3, reach=reach)).state == "clear"


def test_does_not_count_datagrams_that_were_too_big_to_send() -> None:
    none_sent = {"sent_bytes": (), "received_bytes": (), "too_big_bytes": (9000,)}
    case = reached(3, paths=both(1, 2, SILENT), datagrams={(1, 2): none_sent})
    assert check("NET004", case).state == "clear"


def test_is_clear_when_both_directions_pass() -> None:
    assert check("NET004", fleet(4)).state == "clear"


def test_is_not_checked_without_probes() -> None:
    assert check("NET004", not_looked_at()).state == "not_checked"


def test_judges_each_evidence_anew() -> None:
    broken = reached(3, paths=both(1, 2, SILENT), datagrams={(1, 2): UNHEARD})
    assert check("NET004", broken).state == "hit"
    assert check("NET004", replace(broken, reach=healthy_reach(3))).state == "clear"
    assert check("NET004", broken).state == "hit"
