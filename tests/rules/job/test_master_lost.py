from allready.model import Confidence, FactMissing, FaultClass, Loss, LossReason
from tests.fleets import check, fleet
from tests.rules.port.fleets import worker_alone


def test_says_that_node_0_is_gone() -> None:
    closed = Loss(reason=LossReason.CLOSED, text="the other side closed the connection")
    [hit] = check("JOB010", worker_alone("lost", detail=str(closed), loss=closed)).hits
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
    silent = Loss(reason=LossReason.SILENT, silent_s=10.0)
    [hit] = check("JOB010", worker_alone("lost", loss=silent)).hits
    assert (hit.culprits.links, hit.confidence) == (((0, 1),), Confidence.POSSIBLE)
    one_way = Loss(reason=LossReason.ONE_WAY, silent_s=10.0)
    [hit] = check("JOB010", worker_alone("lost", loss=one_way)).hits
    assert hit.culprits.links == ((1, 0),)


def test_a_node_that_was_stopped_itself_accuses_nobody() -> None:
    given_up = Loss(reason=LossReason.BROKEN, text="Broken pipe", pause_s=15.2)
    assert check("JOB010", worker_alone("lost", loss=given_up)).state == "clear"


def test_an_agent_that_is_stopped_is_no_broken_path() -> None:
    stopped = Loss(reason=LossReason.AGENT_SILENT, silent_s=15.0)
    [hit] = check("JOB010", worker_alone("lost", loss=stopped)).hits
    assert (hit.culprits.nodes, hit.culprits.links, hit.fault_class) == ((0,), (), FaultClass.CPU_STUCK)
    assert hit.evidence[0].text == "no heartbeat for 15 s; its machine answers, its agent does not"
