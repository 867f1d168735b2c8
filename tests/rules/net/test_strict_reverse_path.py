from allready.model import FactMissing, Interface, NetFacts
from tests.fleets import check, commands, fleet


def two(second: str, *, filter_: int, is_up: bool = True) -> NetFacts:
    rows = (("eth0", "10.0.0.1/24", True), ("eth1", second, is_up))
    return NetFacts(
        interfaces=tuple(
            Interface(name=name, is_up=up, is_loopback=False, mtu_bytes=1500, addresses=(address,))
            for name, address, up in rows
        ),
        rp_filter={"eth0": filter_, "eth1": filter_},
    )


def test_names_the_node_and_what_is_wrong_there() -> None:
    [hit] = check("NET022", fleet(2, net={1: two("10.0.0.2/24", filter_=1)})).hits
    assert hit.culprits.nodes == (1,)
    assert {name: hit.values[name] for name, _ in EXPECTED} == dict(EXPECTED)
    assert commands("NET022", hit) == ["sudo sysctl -w net.ipv4.conf.eth0.rp_filter=2 net.ipv4.conf.eth1.rp_filter=2"]


EXPECTED = (("interfaces", "eth0, eth1"),)


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "a subnet for each": two("10.0.1.2/24", filter_=1),
        "loose": two("10.0.0.2/24", filter_=2),
        "off": two("10.0.0.2/24", filter_=0),
        "down": two("10.0.0.2/24", filter_=1, is_up=False),
    }
    wrong = [name for name, facts in harmless.items() if check("NET022", fleet(2, net={0: facts, 1: facts})).hits]
    assert not wrong


def test_healthy_nodes_are_clear() -> None:
    assert check("NET022", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET022", fleet(2, net={1: FactMissing("no /proc")})).unchecked == {1: "no /proc"}
