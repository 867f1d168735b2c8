from msgspec.structs import replace

from allready.model import FactMissing, NetFacts
from tests.fleets import check, fleet, healthy_node


def net(retries: int | None) -> NetFacts:
    healthy = healthy_node(0, 1).net
    assert isinstance(healthy, NetFacts)
    return replace(healthy, tcp_retries2=retries)


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check("NET023", fleet(2, net={1: net(3)})).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)


EXPECTED = (("retries", 3), ("seconds", "3"))


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {"usual": net(15), "of databases": net(8), "not known": net(None)}
    wrong = [name for name, facts in harmless.items() if check("NET023", fleet(2, net={0: facts, 1: facts})).hits]
    assert not wrong


def test_healthy_nodes_are_clear() -> None:
    assert check("NET023", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET023", fleet(2, net={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}
