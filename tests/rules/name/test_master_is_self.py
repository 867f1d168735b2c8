from allready.model import FactMissing, PortHolder
from tests.fleets import check, fleet
from tests.rules.port.fleets import worker_alone


def test_names_the_node_that_was_given_its_own_address() -> None:
    holder = PortHolder(pid=7, command="sshd")
    itself = worker_alone("refused", address="10.0.0.2", addresses=("10.0.0.2",), local_holder=holder)
    [hit] = check("NAM006", itself).hits
    assert hit.culprits.nodes == (1,)
    assert "pid 7 sshd" in hit.evidence[0].text


def test_names_it_also_when_something_else_answers_there() -> None:
    assert check("NAM006", worker_alone("wrong_service", address="10.0.0.2", service="http")).state == "hit"


def test_a_node_that_shares_node_0s_machine_and_got_through_is_right() -> None:
    assert check("NAM006", worker_alone("joined", address="10.0.0.2")).state == "clear"


def test_loopback_is_another_rules_matter() -> None:
    assert check("NAM006", worker_alone("refused", address="127.0.0.1")).state == "clear"


def test_is_clear_when_the_address_is_another_machines() -> None:
    assert check("NAM006", worker_alone("refused")).state == "clear"
    assert check("NAM006", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NAM006", worker_alone("refused", facts={"net": FactMissing("no netlink")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no netlink"})
