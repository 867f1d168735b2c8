from allready.model import FactMissing
from tests.fleets import check, fleet
from tests.rules.port.fleets import worker_alone


def test_names_the_node_without_ipv6() -> None:
    six = worker_alone("family_mismatch", master_addr="head", addresses=("fd00::1",), address="fd00::1")
    [hit] = check("NAM004", six).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["family"], hit.values["addresses"]) == ("IPv6", "fd00::1")


def test_names_the_node_without_ipv4() -> None:
    [hit] = check("NAM004", worker_alone("family_mismatch")).hits
    assert hit.values["family"] == "IPv4"


def test_a_refused_ipv6_address_is_no_mismatch() -> None:
    assert check("NAM004", worker_alone("refused", addresses=("fd00::1",), address="fd00::1")).state == "clear"


def test_is_clear_when_all_got_through() -> None:
    assert check("NAM004", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NAM004", fleet(2, master_contact={1: FactMissing("interrupted")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "interrupted"})
