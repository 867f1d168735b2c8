from allready.model import ONLY_HEARD, Confidence, FactMissing
from allready.testing import check, fleet
from tests.rules.port.fleets import worker_alone


def test_says_that_node_0_is_gone() -> None:
    [hit] = check("JOB010", worker_alone("lost", detail="the other side closed the connection")).hits
    assert hit.culprits.nodes == (0,)
    assert hit.confidence is Confidence.LIKELY
    assert hit.evidence[0].text == "the other side closed the connection"


def test_a_node_that_never_joined_has_lost_nothing() -> None:
    assert check("JOB010", worker_alone("silent")).state == "clear"


def test_is_clear_when_all_stayed() -> None:
    assert check("JOB010", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("JOB010", fleet(2, master_contact={1: FactMissing("not sent")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "not sent"})


def test_a_silence_names_the_way_that_certainly_does_not_work() -> None:
    [hit] = check("JOB010", worker_alone("lost", detail="no sign of life from node 0 for 10 s")).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 1),), Confidence.POSSIBLE)
    one_way = f"no sign of life from node 0 for 10 s; {ONLY_HEARD}"
    [hit] = check("JOB010", worker_alone("lost", detail=one_way)).hits
    assert hit.culprits.links == ((1, 0),)
