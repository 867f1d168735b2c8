from msgspec.structs import replace

from allready.model import Caller, Confidence, FactMissing, RollCall
from tests.fleets import check, claim, fleet
from tests.rules.port.fleets import contact, worker_alone


def calling(tcp: str) -> RollCall:
    caller = Caller(kind="datagram", address="10.0.0.2", node_rank=1, name="gpu1", tcp=tcp, hears_us=True)
    return RollCall(num_nodes=2, claims=(claim(0, 2),), callers=(caller,), waited_s=3.0, finished=False)


def test_a_refusal_by_a_node_0_that_answers_datagrams_is_a_filter() -> None:
    refused = replace(contact("refused"), heard_by_datagram=True, nearby=())
    [hit] = check("PRT010", worker_alone("refused", heard_by_datagram=True, nearby=())).hits
    assert (hit.culprits.links, hit.culprits.nodes, hit.confidence) == (((1, 0),), (), Confidence.CERTAIN)
    assert check("JOB011", fleet(2, roll=None, why_not={"roll": "x"}, master_contact={1: refused})).state == "clear"


def test_node_0_says_the_same_by_the_datagrams_that_it_hears() -> None:
    evidence = fleet(2, roll=calling("refused"), master_contact={1: FactMissing("never joined")})
    [hit] = check("PRT010", evidence).hits
    assert hit.culprits.links == ((1, 0),)
    assert "29500" in str(hit.values["command"])
    assert check("PRT002", evidence).state == "clear"
    assert check("JOB001", evidence).state == "clear"


def test_an_icmp_message_is_a_filters_although_datagrams_are_rejected_too() -> None:
    evidence = worker_alone("refused", heard_by_datagram=False, nearby=(), rejected_by="10.0.0.1")
    [hit] = check("PRT010", evidence).hits
    assert (hit.culprits.links, hit.culprits.nodes, hit.values["sender"]) == (((1, 0),), (), "10.0.0.1")
    assert [check(code, evidence).state for code in ("JOB011", "PRT001", "PRT002")] == ["clear"] * 3


def test_a_refusal_without_datagrams_is_left_to_the_rule_for_closed_ports() -> None:
    assert check("PRT010", worker_alone("refused", heard_by_datagram=False, nearby=())).state == "clear"


def test_silence_is_left_to_the_rule_for_filtered_ports() -> None:
    evidence = fleet(2, roll=calling("silent"))
    assert check("PRT010", evidence).state == "clear"
    assert check("PRT002", evidence).state == "hit"


def test_is_clear_when_everybody_came() -> None:
    assert check("PRT010", fleet(3)).state == "clear"


def test_is_not_checked_without_the_job() -> None:
    evidence = fleet(2, launch={0: FactMissing("gone"), 1: FactMissing("gone")})
    assert check("PRT010", evidence).state == "not_checked"
