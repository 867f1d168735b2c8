from msgspec.structs import replace

from allready.model import FactMissing, NetFacts, Severity
from tests.fleets import check, fleet, healthy_node


def queue(most: int | None) -> NetFacts:
    net = healthy_node(0, 1).net
    assert isinstance(net, NetFacts)
    return replace(net, somaxconn=most)


def test_names_the_node_whose_queue_is_short() -> None:
    [hit] = check("NET024", fleet(80, net={0: queue(128), 1: queue(4096)})).hits
    assert (hit.culprits.nodes, hit.values["most"], hit.values["ranks"]) == ((0,), 128, 160)


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "a small job": fleet(4, net={0: queue(128)}),
        "as many": fleet(64, net={0: queue(128)}),
        "one node": fleet(1, net={0: queue(128)}),
        "not told": fleet(80, net={0: queue(None)}),
    }
    assert not [name for name, made in harmless.items() if check("NET024", made).hits]


def test_a_queue_below_every_default_is_information_for_a_small_job() -> None:
    for num_nodes in (1, 2):
        [hit] = check("NET024", fleet(num_nodes, net={0: queue(6)})).hits
        assert (hit.severity, hit.values["ranks"], hit.values["least"]) == (Severity.INFO, None, 128), num_nodes


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET024", fleet(2, net={1: FactMissing("no netlink")})).unchecked == {1: "no netlink"}


def test_healthy_nodes_are_clear() -> None:
    assert check("NET024", fleet(3)).state == "clear"
