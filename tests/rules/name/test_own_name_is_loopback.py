from typing import Any

from msgspec.structs import replace

from allready.model import (
    Collectives,
    FactMissing,
    Fleet,
    HostsLine,
    LaunchFacts,
    NameFacts,
    Severity,
    StageResult,
    TransportFacts,
)
from allready.model.facts import ChoiceStep
from tests.fleets import check, fleet, healthy_collectives, healthy_node
from tests.rules.port.fleets import contact, node_0_alone


def by_name(node: int, *own: str, error: str | None = None) -> dict[str, Any]:
    """Facts of a node whose host name leads Gloo to loopback."""
    healthy = healthy_node(node, 3)
    assert isinstance(healthy.names, NameFacts)
    assert isinstance(healthy.transport, TransportFacts)
    addresses = own or ("127.0.0.1",)
    gloo = replace(healthy.transport.gloo, interfaces=("lo",), addresses=addresses, step=ChoiceStep.HOST_NAME)
    return {
        "names": replace(healthy.names, own_addresses=own, own_error=error),
        "transport": replace(healthy.transport, gloo=gloo),
    }


def odd(node: int, *own: str, backend: str = "gloo", collectives: Collectives | None = None, **more: Any) -> Fleet:
    """Three nodes, of which `node` has its own name on loopback."""
    launch = healthy_node(0, 3).launch
    assert isinstance(launch, LaunchFacts)
    facts = by_name(node, *own, error=None if own else "Name or service not known")
    launches = {n: replace(launch, node_rank=n, backend=backend) for n in range(3)}
    return fleet(3, launch=launches, collectives=collectives, **({k: {node: v} for k, v in facts.items()} | more))


def failed_at(stage: str) -> Collectives:
    run = healthy_collectives(6).runs[0]
    bad = StageResult(name=stage, outcome="hung", deadline_s=30.0, duration_s=30.0)
    return Collectives(runs=(replace(run, stages=(bad,), points=()),))


def test_names_the_node_and_the_interface_to_export() -> None:
    [hit] = check("NAM005", odd(2, "127.0.1.1")).hits
    assert hit.culprits.nodes == (2,)
    assert (hit.values["interface"], hit.severity) == ("eth0", None)


def test_a_name_that_does_not_resolve_ends_at_loopback_too() -> None:
    [hit] = check("NAM005", odd(2)).hits
    assert hit.values["addresses"] == "Name or service not known"


def test_says_which_line_of_hosts_gives_the_address() -> None:
    names = by_name(2, "127.0.1.1")["names"]
    lines = (HostsLine(line=3, address="127.0.1.1"), HostsLine(line=9, address="10.0.0.3"))
    for own_lines, words in ((lines, "127.0.1.1 (/etc/hosts line 3); Gloo"), (lines[1:], "127.0.1.1; Gloo")):
        [hit] = check("NAM005", odd(2, "127.0.1.1", names={2: replace(names, own_lines=own_lines)})).hits
        assert words in hit.evidence[0].text


def test_with_nccl_it_is_a_warning_until_gloo_fails() -> None:
    [before] = check("NAM005", odd(2, "127.0.1.1", backend="nccl")).hits
    assert before.severity is Severity.WARNING
    [after] = check("NAM005", odd(2, "127.0.1.1", backend="nccl", collectives=failed_at("gloo_barrier"))).hits
    assert after.severity is None


def test_while_nodes_are_missing_it_is_a_warning() -> None:
    [hit] = check("NAM005", node_0_alone(3, facts=by_name(0, "127.0.1.1"))).hits
    assert hit.severity is Severity.WARNING


def test_is_harmless_when_gloo_has_worked_between_all_ranks() -> None:
    assert check("NAM005", odd(2, "127.0.1.1", collectives=healthy_collectives(6))).state == "clear"


def test_is_harmless_when_all_nodes_are_on_one_machine() -> None:
    same = healthy_node(0, 3).net
    assert check("NAM005", odd(2, "127.0.1.1", net=dict.fromkeys(range(3), same))).state == "clear"
    roll = odd(2, "127.0.1.1").roll
    assert roll is not None
    local = replace(roll, claims=tuple(replace(c, address="127.0.0.1") for c in roll.claims))
    met = {n: contact("joined", address="127.0.0.1") for n in (1, 2)}
    assert check("NAM005", odd(2, "127.0.1.1", roll=local, master_contact=met)).state == "clear"


def test_a_loopback_name_is_harmless_with_gloo_socket_ifname() -> None:
    loopback = NameFacts(
        own_name="gpu2", own_addresses=("127.0.1.1",), master_name="10.0.0.1", master_addresses=("10.0.0.1",)
    )
    assert check("NAM005", fleet(3, names={2: loopback}, collectives=None)).state == "clear"


def test_is_clear_when_names_lead_to_addresses() -> None:
    assert check("NAM005", fleet(3, collectives=None)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("NAM005", fleet(2, collectives=None, transport={1: FactMissing("no torch")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no torch"})


def test_says_nothing_where_localhost_was_asked_for() -> None:
    literal = replace(by_name(0, "127.0.1.1")["names"], master_name="127.0.0.1", master_addresses=("127.0.0.1",))
    facts = by_name(0, "127.0.1.1") | {"names": literal}
    assert check("NAM005", node_0_alone(3, facts=facts)).state == "clear"
