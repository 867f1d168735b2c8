from allready.model import SocketRow

from .wires import ask, row


def knock(src: int, dst: int, backoff: int = 3) -> SocketRow:
    return row(src, dst, local_port=7000 + dst, remote_port=41000, state="SYN_SENT", backoff=backoff, unacked=1)


def test_names_the_node_that_nobody_can_connect_to() -> None:
    [hit] = ask("LNK006", more=[knock(0, 2), knock(1, 2), knock(3, 2)]).hits
    assert (hit.culprits.nodes, hit.culprits.links, hit.values["ports"]) == ((2,), (), "41000")


def test_names_the_node_that_cannot_connect_to_anybody() -> None:
    [hit] = ask("LNK006", more=[knock(2, 0), knock(2, 1)]).hits
    assert hit.culprits.nodes == (2,)


def test_one_pair_is_a_link_and_no_node() -> None:
    [hit] = ask("LNK006", more=[knock(1, 2)]).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((1, 2),))


def test_a_first_packet_that_is_a_moment_old_is_healthy() -> None:
    assert ask("LNK006", more=[knock(1, 2, backoff=1)]).state == "clear"


def test_a_node_of_which_nothing_is_heard_is_more_than_a_filter() -> None:
    assert ask("LNK006", more=[knock(1, 2)], heard_s={2: 5.0}).state == "clear"


def half_open(at: int, caller: int) -> SocketRow:
    """The other end of `knock(caller, at)`."""
    return row(at, caller, local_port=41000, remote_port=7000 + at, state="SYN_RECV", retransmits=3)


def test_a_first_packet_that_came_has_lost_its_answer() -> None:
    [hit] = ask("LNK006", more=[knock(1, 2), half_open(2, 1)]).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((2, 1),))
    assert "whose answers are lost" in hit.evidence[0].text


def test_both_ends_of_one_lost_direction_agree() -> None:
    """1 -> 2 loses everything: what 2 opens to 1 comes and is not answered, what 1 opens to 2 never comes."""
    [hit] = ask("LNK006", more=[knock(1, 2), knock(2, 1), half_open(1, 2)]).hits
    assert hit.culprits.links == ((1, 2),)
