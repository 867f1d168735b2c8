from typing import Any

from allready.model import NodeStatus

from .wires import ARRIVED, DEAD, NOT_ARRIVED, NOW, ask, row, status


def retried(src: int, dst: int, *, arrives: bool = True) -> dict[str, Any]:
    """What `src` sends again for two seconds, and whether it still reaches `dst`, which has got the data once."""
    old = {
        src: status(src, [row(src, dst, **DEAD, total_retransmits=3)], NOW - 2),
        dst: status(dst, [row(dst, src, **ARRIVED, segments_received=50)], NOW - 2),
    }
    rows = {
        (src, dst): DEAD | {"total_retransmits": 5},
        (dst, src): ARRIVED | {"segments_received": 52 if arrives else 50},
    }
    return {"rows": rows, "history": {n: (word,) for n, word in old.items()}}


def test_data_that_arrived_without_an_answer_shows_that_the_way_back_is_broken() -> None:
    [hit] = ask("LNK004", **retried(2, 1)).hits
    assert hit.culprits.links == ((1, 2),)
    assert any("acknowledgement is lost" in e.text for e in hit.evidence)


def test_data_that_never_arrived_says_nothing_of_the_way_back() -> None:
    rows = {(1, 2): DEAD, (2, 1): NOT_ARRIVED}
    assert ask("LNK004", rows=rows).state == "clear"
    [hit] = ask("LNK003", rows=rows).hits
    assert hit.culprits.links == ((1, 2), (2, 1))


def test_data_that_arrived_once_and_does_not_any_more_is_lost() -> None:
    assert ask("LNK004", **retried(2, 1, arrives=False)).state == "clear"
    assert ask("LNK003", **retried(2, 1, arrives=False)).hits[0].culprits.links == ((1, 2), (2, 1))


def test_a_path_that_loses_some_of_what_is_sent_again_is_accused_of_no_direction() -> None:
    """Of two tries one arrived."""
    known = retried(2, 1)
    known["rows"][1, 2] = ARRIVED | {"segments_received": 51}
    assert ask("LNK004", **known).state == "clear"
    assert ask("LNK003", **known).hits[0].culprits.links == ((1, 2), (2, 1))


def test_after_one_look_nobody_knows_whether_it_still_arrives() -> None:
    rows = {(2, 1): DEAD, (1, 2): ARRIVED | {"segments_received": 50}}
    assert ask("LNK004", rows=rows).state == "clear"
    assert ask("LNK003", rows=rows).state == "hit"


def test_a_kernel_that_does_not_count_segments_is_taken_at_its_word() -> None:
    assert ask("LNK004", rows={(2, 1): DEAD, (1, 2): ARRIVED}).state == "hit"


def test_both_ends_together_name_one_direction() -> None:
    """1 does not get its own data across; what 2 sends again still arrives, and its answer does not."""
    known = retried(2, 1)
    known["rows"] |= {(1, 2): known["rows"][1, 2] | DEAD | ARRIVED, (2, 1): known["rows"][2, 1] | NOT_ARRIVED}
    [hit] = ask("LNK004", **known).hits
    assert hit.culprits.links == ((1, 2),)


def test_the_first_packet_of_the_side_that_connected_counts_as_one_byte() -> None:
    rows = {(1, 2): DEAD | {"bytes_acked": 1001} | NOT_ARRIVED, (2, 1): DEAD | NOT_ARRIVED}
    assert ask("LNK004", rows=rows).state == "clear"
    assert ask("LNK003", rows=rows).state == "hit"


def test_the_other_end_as_it_was_before_proves_nothing() -> None:
    rows = {(2, 1): DEAD | {"last_received_s": 1.2}, (1, 2): ARRIVED}
    assert ask("LNK004", rows=rows, heard_s={1: 1.4}).state == "clear"


def test_a_path_that_broke_one_way_and_then_the_other_is_broken_both_ways() -> None:
    """What was sent first did arrive; what is sent again since then does not."""

    def seen(i: int, got: int) -> dict[int, NodeStatus]:
        time_s = NOW - 4 + 2 * i
        old = DEAD | {"last_received_s": 3.0 + 2 * i, "total_retransmits": 3 + i}
        return {
            2: status(2, [row(2, 1, **old)], time_s),
            1: status(1, [row(1, 2, **ARRIVED, segments_received=got)], time_s),
        }

    for got, code in (((50, 50, 50), "LNK003"), ((50, 51, 51), "LNK003"), ((50, 51, 52), "LNK004")):
        looks = [seen(0, got[0]), seen(1, got[1])]
        history = {n: tuple(look[n] for look in looks) for n in (1, 2)}
        newest = DEAD | {"last_received_s": 7.0, "total_retransmits": 5}
        rows = {(2, 1): newest, (1, 2): ARRIVED | {"segments_received": got[2]}}
        assert ask(code, rows=rows, history=history).state == "hit"


def test_is_clear_without_anything_on_its_way() -> None:
    assert ask("LNK004").state == "clear"


def test_data_that_came_since_shows_from_one_end_which_direction_is_lost() -> None:
    """Nothing arrives at node 1: what it sends still comes to node 0, and does not acknowledge what node 0 sent
    before."""
    heard = DEAD | {"last_received_s": 1.1}  # the first three time-outs took 0.2 + 0.4 + 0.8 s
    silent = {"heard_s": {1: 3.0}, "reached": {2: {1: True}}}
    [hit] = ask("LNK004", 3, rows={(0, 1): heard}, **silent).hits
    assert hit.culprits.links == ((0, 1),)
    before = DEAD | {"last_received_s": 1.3}
    assert ask("LNK004", 3, rows={(0, 1): before}, **silent).state == "clear"
    assert ask("LNK003", 3, rows={(0, 1): before}, **silent).state == "hit"
    untold = heard | {"rto_s": None}
    assert ask("LNK004", 3, rows={(0, 1): untold}, **silent).state == "clear"


def test_packets_that_just_came_without_an_acknowledgement_show_it_already() -> None:
    """The other end tries again as well, so that something came half a second ago; a closed window is no such proof."""
    rows = {(1, 2): DEAD | ARRIVED | {"last_received_s": 0.5}, (2, 1): DEAD | NOT_ARRIVED}
    [hit] = ask("LNK004", rows=rows).hits
    assert hit.culprits.links == ((1, 2),)
    probing = {"last_received_s": 0.5, "unacked": 0}
    assert ask("LNK004", rows={(1, 2): DEAD | probing, (2, 1): ARRIVED}).state == "clear"
