from allready.model import Confidence
from tests.fleets import check, fleet, healthy_path, healthy_reach
from tests.rules.net.made import NO_ROUTE, SILENT, UNHEARD, both, datagrams_of, elsewhere, not_looked_at, reached


def test_names_both_directions_of_a_pair_that_hears_nothing() -> None:
    case = reached(4, paths=both(1, 2, SILENT), datagrams=both(1, 2, UNHEARD))
    [hit] = check("NET005", case).hits
    assert (hit.culprits.links, hit.culprits.nodes) == (((1, 2), (2, 1)), ())
    assert hit.confidence is Confidence.CERTAIN
    assert hit.values["num_pairs"] == 1


def test_counts_a_next_hop_that_does_not_answer() -> None:
    case = reached(4, paths=both(1, 2, NO_ROUTE), datagrams=both(1, 2, UNHEARD))
    assert check("NET005", case).state == "hit"
    assert check("NET006", case).state == "clear"


def test_names_the_node_that_all_mute_pairs_share() -> None:
    paths = {**both(3, 0, SILENT), **both(3, 1, SILENT), **both(3, 2, SILENT)}
    case = reached(4, paths=paths, datagrams=dict.fromkeys(paths, UNHEARD), roll=elsewhere(4))
    [hit] = check("NET005", case).hits
    assert hit.culprits.nodes == (3,)


def test_blames_no_node_of_two() -> None:
    case = reached(2, paths=both(0, 1, SILENT), datagrams=both(0, 1, UNHEARD), roll=elsewhere(2))
    [hit] = check("NET005", case).hits
    assert hit.culprits.nodes == ()


def test_is_only_likely_without_datagrams() -> None:
    reach = datagrams_of(healthy_reach(4, both(1, 2, SILENT)))
    [hit] = check("NET005", fleet(4, reach=reach)).hits
    assert hit.confidence is Confidence.LIKELY


def test_tells_two_networks_of_the_same_nodes_apart() -> None:
    # On ib0 nothing passes between 1 and 2; on eth0 everything does, and that must not hide it.
    more = [
        healthy_path(a, b, interface="ib0", address=f"10.1.0.{b + 1}", src_address=f"10.1.0.{a + 1}")
        for a in range(3)
        for b in range(3)
        if a != b and {a, b} != {1, 2}
    ]
    dead = [
        healthy_path(a, b, **{**SILENT, "interface": "ib0", "address": f"10.1.0.{b + 1}"}) for a, b in ((1, 2), (2, 1))
    ]
    [hit] = check("NET005", reached(3, *more, *dead)).hits
    assert hit.culprits.links == ((1, 2), (2, 1))


def test_is_clear_when_a_firewall_only_closes_ports() -> None:
    assert check("NET005", reached(4, paths=both(1, 2, SILENT))).state == "clear"  # datagrams arrive


def test_is_clear_when_all_paths_are_open() -> None:
    assert check("NET005", fleet(4)).state == "clear"


def test_is_not_checked_without_probes() -> None:
    assert check("NET005", not_looked_at()).state == "not_checked"
