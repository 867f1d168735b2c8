from allready.model import ChoiceFault, FactMissing
from tests.cases import cases
from tests.fleets import check, commands, fleet
from tests.rules.net.made import choosing


@cases("pattern", ["^lo", "=eth0", "eth0,^docker0", "^docker0,lo"])
def test_names_node_variable_and_the_exact_name_to_set(pattern: str) -> None:
    transport = {2: choosing("gloo", 2, None, pattern=pattern, fault=ChoiceFault.NCCL_SYNTAX)}
    [hit] = check("NET011", fleet(4, transport=transport)).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((2,), ("GLOO_SOCKET_IFNAME",))
    assert commands("NET011", hit)[0] == "export GLOO_SOCKET_IFNAME=eth0"


def test_allows_nccl_its_own_syntax() -> None:
    transport = {2: choosing("nccl", 2, "eth0", "10.0.0.3", pattern="^lo,docker0")}
    assert check("NET011", fleet(4, transport=transport)).state == "clear"


def test_is_clear_when_gloo_gets_an_exact_name() -> None:
    transport = {2: choosing("gloo", 2, "eth0", "10.0.0.3", pattern="eth0")}
    assert check("NET011", fleet(4, transport=transport)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET011", fleet(2, transport={0: FactMissing("no interfaces")})).unchecked == {0: "no interfaces"}
