from allready.model import FirewallFacts
from tests.fleets import check, commands, fleet, healthy_path
from tests.rules.net.made import SILENT, not_looked_at, reached


def range_path(src: int, dst: int, port: int, **changes: object):  # type: ignore[no-untyped-def]
    return healthy_path(src, dst, **{"kind": "range", "port": port, **changes})


def test_names_the_ports_and_the_node_that_closes_them() -> None:
    case = reached(
        2,
        range_path(0, 1, 40000),
        range_path(0, 1, 40001, **SILENT),
        range_path(1, 0, 40000),
        range_path(1, 0, 40001),
        firewall={1: FirewallFacts(tool="nft")},
    )
    [hit] = check("NET007", case).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((1,), ((0, 1),))
    assert hit.values["ports"] == "40001"
    assert commands("NET007", hit)[0].startswith("nft insert rule inet filter input ip saddr 10.0.0.1 ")


def test_leaves_a_direction_to_the_other_rule_whose_data_ports_are_closed_too() -> None:
    case = reached(2, range_path(0, 1, 40001, **SILENT), range_path(1, 0, 40001), paths={(0, 1): SILENT})
    assert check("NET007", case).state == "clear"
    assert check("NET001", case).state == "hit"


def test_blames_nobody_when_both_nodes_close_them() -> None:
    case = reached(2, range_path(0, 1, 40001, **SILENT), range_path(1, 0, 40001, **SILENT))
    [hit] = check("NET007", case).hits
    assert hit.culprits.nodes == ()


def test_is_clear_when_the_range_is_open_or_was_not_given() -> None:
    assert check("NET007", reached(2, range_path(0, 1, 40000), range_path(1, 0, 40000))).state == "clear"
    assert check("NET007", fleet(4)).state == "clear"


def test_is_not_checked_without_probes() -> None:
    assert check("NET007", not_looked_at()).state == "not_checked"
