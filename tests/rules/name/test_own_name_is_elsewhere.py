from msgspec.structs import replace

from allready.model import FactMissing, Fleet, HostsLine, NameFacts
from tests.fleets import check, commands, fleet, healthy_node


def named(*addresses: str, num_nodes: int = 2) -> Fleet:
    names = healthy_node(0, 2).names
    assert isinstance(names, NameFacts)
    lines = (HostsLine(line=7, address="10.9.9.9"),)
    return fleet(num_nodes, names={0: replace(names, own_name="gpu0", own_addresses=addresses, own_lines=lines)})


def test_names_the_node_and_the_address_that_is_elsewhere() -> None:
    [hit] = check("NAM008", named("10.0.0.1", "10.9.9.9")).hits
    assert (hit.culprits.nodes, hit.values["own"], hit.values["others"]) == ((0,), "10.0.0.1", "10.9.9.9")
    assert "/etc/hosts line 7" in hit.evidence[0].text
    assert commands("NAM008", hit) == ["getent ahosts gpu0; grep -n -w gpu0 /etc/hosts"]


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "its own": named("10.0.0.1"),
        "loopback beside it": named("127.0.1.1", "10.0.0.1"),
        "none is here": named("10.9.9.9"),
        "one node": named("10.0.0.1", "10.9.9.9", num_nodes=1),
        "a family that this machine has no address of": named("10.0.0.1", "2001:db8::9"),
        "no answer": named(),
    }
    assert not [name for name, made in harmless.items() if check("NAM008", made).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("NAM008", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NAM008", fleet(2, names={1: FactMissing("no resolver")})).unchecked == {1: "no resolver"}
