import pytest
from msgspec.structs import replace

from allready.model import ChoiceFault, FactMissing, LaunchFacts, Severity
from tests.fleets import check, commands, fleet, healthy_node
from tests.rules.net.made import choosing, interface, plus


@pytest.mark.parametrize("library", ["nccl", "gloo"])
def test_names_node_and_variable_and_what_to_type(library: str) -> None:
    transport = {1: choosing(library, 1, None, pattern="ens99", fault=ChoiceFault.NO_MATCH)}
    [hit] = check("NET010", fleet(4, transport=transport)).hits
    variable = f"{library.upper()}_SOCKET_IFNAME"
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1,), (variable,))
    assert commands("NET010", hit)[0] == f"export {variable}=eth0"
    assert hit.values["existing"] == "eth0 [1]"
    assert hit.severity is None


def test_advises_the_interface_that_node_0_sees() -> None:
    net = {1: plus(1, interface("eno1", "192.168.3.2/24"), interface("docker0", "172.17.0.1/16"))}
    transport = {1: choosing("nccl", 1, None, pattern="ens99", fault=ChoiceFault.NO_MATCH)}
    [hit] = check("NET010", fleet(4, transport=transport, net=net)).hits
    assert commands("NET010", hit)[0] == "export NCCL_SOCKET_IFNAME=eth0"


def test_only_warns_when_the_job_does_not_use_the_library() -> None:
    job = healthy_node(1, 2).launch
    assert isinstance(job, LaunchFacts)
    case = fleet(
        2,
        transport={1: choosing("nccl", 1, None, pattern="ens99", fault=ChoiceFault.NO_MATCH)},
        launch={1: replace(job, backend="gloo")},
    )
    [hit] = check("NET010", case).hits
    assert hit.severity is Severity.WARNING


def test_counts_a_list_for_gloo_of_which_one_name_is_missing() -> None:
    transport = {
        1: choosing("gloo", 1, "eth0", "10.0.0.2", pattern="eth0,ens99", fault=ChoiceFault.NO_SUCH_NAME, named="ens99")
    }
    assert check("NET010", fleet(2, transport=transport)).state == "hit"


def test_does_not_mind_prefixes_of_which_one_fits() -> None:
    transport = {1: choosing("nccl", 1, "eth0", "10.0.0.2", pattern="ib,eth")}
    assert check("NET010", fleet(2, transport=transport)).state == "clear"


def test_leaves_nccl_s_syntax_in_gloo_s_variable_to_another_rule() -> None:
    transport = {1: choosing("gloo", 1, None, pattern="^lo", fault=ChoiceFault.NCCL_SYNTAX)}
    assert check("NET010", fleet(2, transport=transport)).state == "clear"


def test_is_clear_when_nothing_was_named() -> None:
    assert check("NET010", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NET010", fleet(2, transport={0: FactMissing("no interfaces")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "no interfaces"})
