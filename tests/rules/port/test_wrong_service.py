from allready.judging.loading import load
from allready.model import Confidence, FactMissing
from allready.model.fill import UNKNOWN, chosen
from tests.fleets import check, fleet
from tests.rules.port.fleets import worker_alone


def test_says_which_service_answered() -> None:
    [hit] = check("PRT006", worker_alone("wrong_service", service="ssh", detail="SSH-2.0-OpenSSH_9.2")).hits
    assert hit.culprits.nodes == (0,)
    assert (hit.values["service"], hit.values["banner"]) == ("ssh", "SSH-2.0-OpenSSH_9.2")
    assert hit.confidence is Confidence.CERTAIN


def test_a_service_without_words_is_said_as_such() -> None:
    [hit] = check("PRT006", worker_alone("wrong_service", service="silent", detail="silent")).hits
    assert hit.values["banner"] == UNKNOWN
    assert chosen(load()["PRT006"].message, {k: str(v) for k, v in hit.values.items()}).endswith(" instead of node 0")
    assert hit.confidence is Confidence.LIKELY, "it may be node 0, stopped: the kernel accepts for it"


def test_a_service_of_this_machine_is_no_clue_when_the_name_is_wrong() -> None:
    here = worker_alone("wrong_service", service="http", addresses=("127.0.1.1",), master_addr="gpu0")
    assert check("PRT006", here).state == "clear"


def test_is_clear_when_all_got_through() -> None:
    assert check("PRT006", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("PRT006", fleet(2, master_contact={1: FactMissing("interrupted")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "interrupted"})
