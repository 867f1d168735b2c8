from allready.model import ChoiceFault, FactMissing
from tests.fleets import check, fleet
from tests.rules.net.made import choosing


def test_names_the_node_where_nothing_was_found() -> None:
    transport = {1: choosing("nccl", 1, None, fault=ChoiceFault.NO_INTERFACE)}
    [hit] = check("NET014", fleet(3, transport=transport)).hits
    assert hit.culprits.nodes == (1,)
    assert hit.values["library"] == "NCCL"


def test_counts_a_bootstrap_address_in_no_subnet_of_the_node() -> None:
    transport = {
        1: choosing("nccl", 1, "eth0", "10.0.0.2", pattern="eth0", fault=ChoiceFault.NOT_IN_SUBNET, named="10.9.0.1:5")
    }
    assert check("NET014", fleet(3, transport=transport)).state == "hit"


def test_leaves_a_name_that_the_user_gave_to_another_rule() -> None:
    transport = {1: choosing("nccl", 1, None, pattern="ens99", fault=ChoiceFault.NO_MATCH)}
    assert check("NET014", fleet(3, transport=transport)).state == "clear"


def test_is_clear_when_both_libraries_found_one() -> None:
    assert check("NET014", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET014", fleet(2, transport={0: FactMissing("unreadable")})).unchecked == {0: "unreadable"}
