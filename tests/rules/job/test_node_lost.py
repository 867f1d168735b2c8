from msgspec.structs import replace

from allready.model import Confidence, FaultClass, Loss, LossReason
from allready.model.fill import in_english
from tests.fleets import check, fleet, healthy_roll
from tests.rules.port.fleets import contact


def test_names_the_node_whose_connection_broke() -> None:
    [hit] = check("JOB009", fleet(4, roll=replace(healthy_roll(4), lost=(2,)))).hits
    assert hit.culprits.nodes == (2,)
    assert hit.fault_class is None


def test_repeats_why_they_left() -> None:
    def why(lost: tuple[int, ...], said: tuple[str, ...]) -> object:
        [hit] = check("JOB009", fleet(4, roll=replace(healthy_roll(4), lost=lost, lost_why=said))).hits
        return hit.values["why"]

    assert why((2,), ("node 2 was interrupted",)) == "node 2 was interrupted"
    assert why((1, 2), ("the connection was closed",) * 2) == "the connection was closed"
    assert why((1, 2, 3), ("closed", "killed", "closed")) == "1,3: closed; 2: killed"
    assert why((2,), ()) is None


def test_names_the_path_when_the_node_is_alive_and_lost_node_0() -> None:
    lost = fleet(4, roll=replace(healthy_roll(4), lost=(2,)), master_contact={2: contact("lost")})
    [hit] = check("JOB009", lost).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((2, 0),))
    assert hit.fault_class is FaultClass.NET_BROKEN
    assert check("JOB010", lost).state == "clear"


def test_a_stopped_agent_is_no_broken_path() -> None:
    def class_of(reason: LossReason) -> object:
        loss = Loss(reason=reason, silent_s=15.0)
        roll = replace(healthy_roll(4), lost=(2,), lost_silently=(2,), losses=(loss,))
        [hit] = check("JOB009", fleet(4, roll=roll)).hits
        return hit.fault_class, hit.confidence, hit.culprits.nodes

    assert class_of(LossReason.AGENT_SILENT) == (FaultClass.CPU_STUCK, Confidence.LIKELY, (2,))
    assert class_of(LossReason.SILENT) == (FaultClass.NET_BROKEN, Confidence.POSSIBLE, (2,))


def test_a_node_0_that_did_not_run_is_named_and_not_who_gave_it_up() -> None:
    """No node was named, and the check called a job healthy that had lost one."""
    closed = Loss(reason=LossReason.PEER_CLOSED, pause_s=21.0)
    [hit] = check("JOB009", fleet(4, roll=replace(healthy_roll(4), lost=(2,), losses=(closed,)))).hits
    assert (hit.culprits.nodes, hit.fault_class, hit.confidence) == ((0,), FaultClass.CPU_STUCK, Confidence.LIKELY)
    assert in_english(hit.values["why"]) == "node 0's own agent did not run for 21 s, and was given up"


def test_is_clear_when_nobody_left() -> None:
    assert check("JOB009", fleet(4)).state == "clear"


def test_a_node_that_came_back_is_not_lost() -> None:
    roll = healthy_roll(4)
    again = replace(roll, claims=tuple(replace(c, arrival_s=c.arrival_s + 9.0) for c in roll.claims))
    assert check("JOB009", fleet(4, roll=again)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    assert check("JOB009", fleet(4, roll=None)).state == "not_checked"
