from allready.model import FactMissing, NameFacts
from tests.fleets import check, fleet
from tests.rules.port.fleets import contact

MISSING = FactMissing("not sent")


def names(*addresses: str, master: str = "head") -> NameFacts:
    return NameFacts(own_name="x", own_addresses=("10.0.0.2",), master_name=master, master_addresses=addresses)


def unmet(*nodes: int):  # type: ignore[no-untyped-def]
    return {n: contact("silent") for n in nodes}


def test_names_the_node_whose_address_node_0_does_not_have() -> None:
    [hit] = check("NAM003", fleet(4, names={2: names("10.0.0.99")}, master_contact=unmet(2))).hits
    assert hit.culprits.nodes == (2,)
    assert str(hit.values["split"]) == "10.0.0.1 [0,1,3], 10.0.0.99 [2]"


def test_names_the_minority_when_node_0s_interfaces_are_not_known() -> None:
    [hit] = check(
        "NAM003", fleet(4, net={0: MISSING}, names={2: names("10.0.0.99")}, master_contact=unmet(1, 2, 3))
    ).hits
    assert hit.culprits.nodes == (2,)


def test_blames_nobody_on_a_tie() -> None:
    tie = fleet(2, net={0: MISSING}, names={1: names("10.0.0.99")}, master_contact=unmet(1))
    [hit] = check("NAM003", tie).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), ("MASTER_ADDR",))


def test_order_and_spelling_do_not_matter() -> None:
    same = fleet(
        3,
        net={0: MISSING},
        names={1: names("fd00::1", "10.0.0.1"), 2: names("10.0.0.1", "fd00::1", master="gpu0.cluster")},
        master_contact=unmet(1, 2),
    )
    assert check("NAM003", same).state == "clear"


def test_loopback_on_node_0_alone_is_harmless() -> None:
    assert check("NAM003", fleet(3, names={0: names("127.0.1.1")}, master_contact=unmet(1, 2))).state == "clear"


def test_a_node_that_got_through_another_network_is_right() -> None:
    assert check("NAM003", fleet(3, names={2: names("192.168.9.1")})).state == "clear"


def test_is_clear_when_all_agree() -> None:
    assert check("NAM003", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NAM003", fleet(2, names={1: MISSING}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "not sent"})
