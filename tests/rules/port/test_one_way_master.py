import pytest

from allready.model import Caller, Confidence, FactMissing, FirewallFacts
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.firewalls import drops_of
from tests.rules.port.fleets import node_0_alone, worker_alone

DEAF = Caller(kind="datagram", address="10.0.0.3", node_rank=2, name="gpu2", detail="silent", hears_us=False)
HALF_OPEN = Caller(kind="half_open", address="10.0.0.3")


def test_names_the_direction_to_a_node_that_calls_and_does_not_hear() -> None:
    [hit] = check("PRT007", node_0_alone(4, present=(0, 1, 3), callers=(DEAF,))).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 2),), Confidence.CERTAIN)
    assert hit.values["back"] == "10.0.0.3"


def test_the_only_missing_node_sent_the_half_open_connection() -> None:
    [hit] = check("PRT007", node_0_alone(4, present=(0, 1, 3), callers=(HALF_OPEN,))).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 2),), Confidence.LIKELY)


def test_both_signs_of_one_node_are_one_finding() -> None:
    [hit] = check("PRT007", node_0_alone(4, present=(0, 1, 3), callers=(DEAF, HALF_OPEN))).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 2),), Confidence.CERTAIN)


def test_does_not_guess_which_of_two_missing_nodes_it_was() -> None:
    assert check("PRT007", node_0_alone(4, present=(0, 1), callers=(HALF_OPEN,))).state == "clear"


def test_a_node_that_hears_us_is_filtered_and_not_one_way() -> None:
    hearing = Caller(kind="datagram", address="10.0.0.3", node_rank=2, hears_us=True)
    assert check("PRT007", node_0_alone(4, present=(0, 1, 3), callers=(hearing, HALF_OPEN))).state == "clear"


def test_an_open_handshake_of_a_node_that_is_here_means_nothing() -> None:
    again = Caller(kind="half_open", address="10.0.0.2")
    assert check("PRT007", node_0_alone(4, present=(0, 1, 3), callers=(again,))).state == "clear"


@pytest.mark.parametrize(
    "rule",
    [
        "inet filter input: ip saddr 10.0.0.1 drop",
        "inet filter input: ip saddr { 10.0.0.1, 10.0.0.9 } counter packets 3 bytes 180 drop",
        "-A INPUT -s 10.0.0.0/30 -j DROP",
    ],
)
def test_a_node_that_drops_what_node_0_sends_names_its_own_rule(rule: str) -> None:
    own = {"firewall": FirewallFacts(tool="nft", drops=drops_of(rule))}
    alone = worker_alone("silent", heard_by_datagram=False, facts=own)
    [hit] = check("PRT007", alone).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 1),), Confidence.LIKELY)
    assert rule.replace("counter packets 3 bytes 180 ", "") in str(hit.values["seen"])
    assert check("PRT002", alone).state == "clear"


@cases(
    "rule",
    [
        "inet filter input: ip saddr 10.0.0.9 drop",
        "inet filter input: ip saddr != 10.0.0.1 drop",
        "inet filter input: ip saddr 10.0.0.1 tcp dport 22 drop",
        "inet filter input: ip saddr 10.0.0.1 udp dport 53 drop",
        "inet filter input: ip saddr 10.0.0.1 ct state invalid drop",
        "inet filter input: policy drop",
        "-A INPUT ! -s 10.0.0.1 -j DROP",
    ],
)
def test_a_rule_about_something_else_explains_nothing(rule: str) -> None:
    own = {"firewall": FirewallFacts(tool="nft", drops=drops_of(rule))}
    assert check("PRT007", worker_alone("silent", heard_by_datagram=False, facts=own)).state == "clear"


def test_is_clear_when_all_got_through() -> None:
    assert check("PRT007", fleet(4)).state == "clear"


def test_is_not_checked_when_the_job_is_not_known() -> None:
    outcome = check("PRT007", worker_alone("silent", facts={"launch": FactMissing("no flags")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no flags"})
