"""NET027."""

from typing import Any

from msgspec.structs import replace

from allready.model import Confidence, Fleet, Loss, LossReason
from tests.cases import cases
from tests.fleets import check, fleet, healthy_roll
from tests.rules.net.made import SILENT, reached
from tests.rules.port.fleets import contact, worker_alone
from tests.rules.port.test_port_filtered import calling

CLOSED = Loss(reason=LossReason.CLOSED, text="the other side closed the connection")
LOSSY = replace(CLOSED, num_sent=20, num_resent=8)


def without(node: int, loss: Loss, **roll: Any) -> Fleet:
    return fleet(4, roll=replace(healthy_roll(4), lost=(node,), losses=(loss,), lost_why=(str(loss),), **roll))


def test_a_node_whose_packets_had_to_be_sent_again_did_not_die_its_path_loses_them() -> None:
    [hit] = check("NET027", without(2, LOSSY)).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((2, 0),))
    assert hit.confidence is Confidence.LIKELY
    assert (hit.values["resent"], hit.values["sent"]) == (8, 20)
    assert check("JOB009", without(2, LOSSY)).state == "clear"
    assert check("NET027", without(2, replace(LOSSY, reason=LossReason.SILENT, silent_s=10.0))).state == "hit"


def test_a_node_that_had_joined_and_calls_by_datagram_while_tcp_gets_no_answer_is_kept_off_by_no_filter() -> None:
    known = without(2, CLOSED, callers=(calling(hears_us=True),))
    assert check("NET027", known).hits[0].culprits.links == ((2, 0),)
    assert [check(code, known).state for code in ("JOB009", "PRT002")] == ["clear", "clear"]


def test_the_node_itself_knows_it_by_a_connection_that_was_made() -> None:
    broken = worker_alone("silent", num_broken=2, heard_by_datagram=True)
    [hit] = check("NET027", broken).hits
    assert (hit.culprits.links, hit.values["resent"]) == (((1, 0),), None)
    assert check("PRT002", broken).state == "clear"
    lost = worker_alone("lost", loss=LOSSY)
    assert check("NET027", lost).state == "hit"
    assert check("JOB010", lost).state == "clear"


@cases(
    "loss",
    [
        CLOSED,
        replace(CLOSED, num_sent=100, num_resent=15),  # a connection lives with these
        replace(CLOSED, num_sent=3, num_resent=2),
        Loss(
            reason=LossReason.SILENT, silent_s=10.0, num_sent=20
        ),  # what is sent to a machine that is gone never arrives
    ],
)
def test_who_ended_without_many_lost_packets_is_told_as_before(loss: Loss) -> None:
    assert check("NET027", without(2, loss)).state == "clear"
    assert check("JOB009", without(2, loss)).hits[0].culprits.nodes == (2,)


def test_who_never_got_through_is_another_matter() -> None:
    assert check("NET027", worker_alone("silent")).state == "clear"
    assert check("NET027", fleet(4, master_contact={2: contact("joined")})).state == "clear"


def test_a_connection_that_stands_and_repeats_much_counts_where_the_test_of_paths_failed() -> None:
    """Nor is a firewall accused of the failed connections of such a node."""
    roll = replace(healthy_roll(3), resent={1: (30, 2), 2: (44, 20)})
    for silent, code, links in (((0, 2), "NET027", ((2, 0),)), ((0, 1), "NET001", ((0, 1),))):
        known = reached(3, paths={silent: SILENT})
        known = replace(known, roll=roll)
        assert check(code, known).hits[0].culprits.links == links
        other = {"NET001", "NET027"} - {code}
        assert [check(c, known).state for c in other] == ["clear"]
    assert check("NET027", fleet(3, roll=roll)).state == "clear"
