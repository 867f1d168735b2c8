from typing import Any

from allready.model import Confidence, Fleet, Loss, LossReason, World
from tests.fleets import check

from .wires import DEAD, NONE, NOW, ask

CUT = {(1, 2): DEAD}
SILENT = {2: 4.0}


def test_names_the_silent_node_to_which_data_goes_unanswered() -> None:
    [hit] = ask("LNK001", rows=CUT, heard_s=SILENT).hits
    assert (hit.culprits.nodes, hit.confidence) == ((2,), Confidence.CERTAIN)
    assert hit.values["who"] == "node 2 (gpu2)"
    assert any("agent heartbeats" in e.source for e in hit.evidence)


def test_names_node_0_when_it_hears_nobody() -> None:
    [hit] = ask("LNK001", rows={(0, 1): DEAD, (0, 3): DEAD}, heard_s={1: 4.0, 2: 4.0, 3: 4.0}).hits
    assert hit.culprits.nodes == (0,)


def test_names_a_node_that_speaks_and_whose_paths_to_two_others_are_dead() -> None:
    [hit] = ask("LNK001", rows={(1, 2): DEAD, (3, 2): DEAD}).hits
    assert hit.culprits.nodes == (2,)


def test_a_rack_that_fell_silent_together_is_named_together() -> None:
    [hit] = ask("LNK001", rows={(1, 2): DEAD}, heard_s={2: 4.0, 3: 4.5}).hits
    assert hit.culprits.nodes == (2, 3)


def test_waits_until_it_is_known_whether_the_node_or_only_the_path_is_gone() -> None:
    young = DEAD | {"last_received_s": 1.1, "backoff": 2, "rto_s": 0.8}
    assert ask("LNK001", rows={(1, 2): young}, heard_s={2: 1.4}).state == "clear"
    assert ask("LNK003", rows={(1, 2): young}, heard_s={2: 1.4}).state == "clear"
    assert ask("LNK003", rows={(1, 2): young}, heard_s={2: 0.3}).state == "hit"


def test_a_node_that_others_reach_is_not_cut_off_but_the_path_to_it_is() -> None:
    rows = {(0, 1): DEAD}
    heard = {1: 4.0}  # its agent speaks to node 0 over the same path
    reached = {0: {1: False, 3: True}, 2: {1: True, 3: True}}
    assert ask("LNK001", rows=rows, heard_s=heard, reached=reached).state == "clear"
    [hit] = ask("LNK003", rows=rows, heard_s=heard, reached=reached).hits
    assert hit.culprits.links == ((0, 1), (1, 0))


def test_an_answer_from_before_the_break_says_nothing_of_now() -> None:
    """Two nodes that cannot tell any more had reached node 0 when the job began."""
    rows, heard = {(0, 1): DEAD, (0, 2): DEAD}, {1: 4.0, 2: 4.0}
    before = {1: {0: True, 2: True}, 2: {0: True, 1: True}}
    [hit] = ask("LNK001", 3, rows=rows, heard_s=heard, reached=before, asked_s=NOW - 60).hits
    assert hit.culprits.nodes == (0,)
    assert ask("LNK003", 3, rows=rows, heard_s=heard, reached=before, asked_s=NOW - 60).state == "clear"
    assert ask("LNK001", 3, rows=rows, heard_s=heard, reached=before).state == "clear"


def test_of_two_nodes_neither_is_blamed_but_the_link() -> None:
    assert ask("LNK001", 2, rows={(0, 1): DEAD}, heard_s={1: 4.0}).state == "clear"
    [hit] = ask("LNK003", 2, rows={(0, 1): DEAD}, heard_s={1: 4.0}).hits
    assert (hit.culprits.nodes, hit.culprits.links) == ((), ((0, 1), (1, 0)))


def test_a_silent_node_that_nobody_reaches_is_named_while_the_job_stands() -> None:
    unreached = {0: {1: True, 2: False}, 1: {2: False}, 3: {2: False}}
    standing = {"heard_s": {2: 3.0}, "now_s": NOW + 3.0}
    [hit] = ask("LNK001", reached=unreached, **standing).hits
    assert (hit.culprits.nodes, hit.confidence) == ((2,), Confidence.CERTAIN)
    reached = {0: {1: True, 2: True}, 1: {2: False}}
    assert ask("LNK001", reached=reached, **standing).state == "clear"


def test_a_silent_node_that_nobody_tried_to_reach_is_only_likely() -> None:
    assert ask("LNK001", heard_s={2: 3.0}, now_s=NOW + 3.0).state == "clear"
    [hit] = ask("LNK001", heard_s={2: 5.0}, now_s=NOW + 5.0).hits
    assert (hit.culprits.nodes, hit.confidence) == ((2,), Confidence.LIKELY)


def test_nobody_is_named_while_another_one_is_overdue() -> None:
    """Where node 0 itself is cut off the others fall silent one after the other."""
    assert ask("LNK001", heard_s={2: 5.0, 1: 2.0}, now_s=NOW + 5.0).state == "clear"
    everybody = {1: 5.0, 2: 5.0, 3: 5.0}
    assert ask("LNK001", heard_s=everybody, now_s=NOW + 5.0).hits[0].culprits.nodes == (0,)


def test_a_silent_agent_of_a_job_that_goes_on_accuses_nobody() -> None:
    assert ask("LNK001", heard_s={2: 60.0}).state == "clear"


def test_an_agent_that_closed_its_connection_has_ended_and_the_network_works() -> None:
    closed = {"heard_s": {2: 5.0}, "now_s": NOW + 5.0, "lost": {2: Loss(reason=LossReason.CLOSED)}}
    assert ask("LNK001", **closed).state == "clear"
    assert ask("LNK001", **(closed | {"lost": {2: Loss(reason=LossReason.SILENT, silent_s=10.0)}})).state == "hit"


def test_an_agent_that_is_stopped_is_no_broken_path() -> None:
    silent: dict[str, Any] = {"heard_s": {2: 5.0}, "now_s": NOW + 5.0}
    assert ask("LNK001", **silent, answering=frozenset({0, 1, 3})).state == "hit"
    assert ask("LNK001", **silent, answering=frozenset({0, 1, 2, 3})).state == "clear"
    stopped = Loss(reason=LossReason.AGENT_SILENT, silent_s=15.0)
    assert ask("LNK001", **silent, lost={2: stopped}).state == "clear"
    two: dict[str, Any] = {"heard_s": {1: 5.0}, "now_s": NOW + 5.0}
    assert ask("LNK003", 2, **two).state == "hit"
    assert ask("LNK003", 2, **two, answering=frozenset({1})).state == "clear"


def test_of_a_silent_node_and_a_stopped_agent_the_node_is_named() -> None:
    silent: dict[str, Any] = {"heard_s": {1: 5.0, 2: 5.0, 3: 5.0}, "now_s": NOW + 5.0}
    [hit] = ask("LNK001", **silent, answering=frozenset({1, 3})).hits
    assert hit.culprits.nodes == (2,)


def test_a_node_that_others_try_to_reach_in_vain_is_cut_off_from_them_though_it_answers_node_0() -> None:
    unreached = {1: {2: False}, 3: {2: False}}
    silent: dict[str, Any] = {"heard_s": {2: 5.0}, "now_s": NOW + 5.0, "reached": unreached}
    assert ask("LNK001", **silent, answering=frozenset({1, 2, 3})).state == "hit"


def test_a_stopped_process_still_acknowledges() -> None:
    full = {"unacked": 0, "unsent_bytes": 90_000, "send_queue_bytes": 90_000, "last_received_s": 20.0, "backoff": 0}
    assert ask("LNK001", rows={(1, 2): full, (3, 2): full}).state == "clear"


def test_idle_connections_and_one_lost_packet_are_healthy() -> None:
    idle = {"last_received_s": 900.0, "last_sent_s": 900.0}
    once = DEAD | {"backoff": 1, "last_received_s": 0.4}
    assert ask("LNK001", rows={(1, 2): idle, (3, 2): idle, (0, 3): once, (0, 1): once}).state == "clear"


def test_addresses_of_strangers_are_not_asked() -> None:
    elsewhere = DEAD | {"remote": "192.0.2.7"}
    assert ask("LNK001", rows={(1, 2): elsewhere, (3, 2): elsewhere}).state == "clear"


def test_says_nothing_of_a_job_that_does_not_run() -> None:
    assert check("LNK001", Fleet(world=World(num_nodes=2, world_size=2), inapplicable=NONE)).state == "clear"


def test_an_answer_from_after_a_node_fell_silent_counts_though_its_packets_still_come() -> None:
    """Packets that it sends again keep its connection's last data young."""
    rows = {(0, 1): DEAD | {"last_received_s": 1.5}}
    known: dict[str, Any] = {"rows": rows, "heard_s": {1: 6.0}, "reached": {2: {1: True}}, "asked_s": NOW - 3}
    assert ask("LNK001", 3, **known).state == "clear"
    assert ask("LNK003", 3, **known).state == "hit"
    known["asked_s"] = NOW - 5.5  # it may have been cut off just then
    assert ask("LNK001", 3, **known).state == "hit"
