from allready.model import Confidence, FactMissing, Fleet
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.port.fleets import contact, worker_alone


def test_names_node_0_when_its_machine_is_silent_on_the_own_subnet() -> None:
    [hit] = check(
        "JOB011", worker_alone("no_route", detail="No route to host (EHOSTUNREACH)", error="EHOSTUNREACH")
    ).hits
    assert (hit.culprits.nodes, hit.confidence) == ((0,), Confidence.LIKELY)


def test_names_node_0_when_nothing_answers_near_a_refused_port() -> None:
    [hit] = check("JOB011", worker_alone("refused", nearby=())).hits
    assert (hit.culprits.nodes, hit.confidence) == ((0,), Confidence.LIKELY)


def test_a_refused_port_alone_makes_it_possible() -> None:
    [hit] = check("JOB011", worker_alone("refused")).hits
    assert hit.confidence is Confidence.POSSIBLE


@cases(
    "elsewhere",
    [
        worker_alone("refused", nearby=((29501, "allready"),)),
        worker_alone("silent", heard_by_datagram=False),
        worker_alone("no_route", detail="Network is unreachable (ENETUNREACH)", error="ENETUNREACH"),
        worker_alone("no_route", detail="No route to host (EHOSTUNREACH)", error="EHOSTUNREACH", address="192.168.7.7"),
        worker_alone("refused", address="10.0.0.2"),
        worker_alone("refused", heard_by_datagram=True),
    ],
    ids=["wrong port", "filtered", "no route", "beyond a router", "itself", "rejected by a filter"],
)
def test_leaves_other_causes_to_their_own_rules(elsewhere: Fleet) -> None:
    assert check("JOB011", elsewhere).state == "clear"


def test_node_0_is_not_absent_when_another_node_got_through() -> None:
    one_failed = fleet(3, roll=None, master_contact={1: contact("refused", nearby=())})
    assert check("JOB011", one_failed).state == "clear"


def test_is_clear_when_all_got_through() -> None:
    assert check("JOB011", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("JOB011", worker_alone("refused", facts={"master_contact": FactMissing("interrupted")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "interrupted"})
