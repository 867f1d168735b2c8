"""LIV013."""

from typing import Any

from allready.judging.engine import RuleOutcome
from allready.model import Loss, LossReason
from allready.model.fill import in_english
from tests.rules.live.made import NOW, ask, ended

CLOSED = Loss(reason=LossReason.CLOSED)


def ask_lost(*ranks: Any, loss: Loss = CLOSED) -> RuleOutcome:
    return ask("LIV013", *ranks, live={"lost": {1: loss}, "heard_s": {0: 0.0, 1: 3.0}})


def test_names_the_node_whose_agent_closed_its_connection() -> None:
    [hit] = ask_lost().hits
    assert hit.culprits.nodes == (1,)
    assert hit.values["who"] == "1 (gpu1)"
    assert in_english(hit.values["why"]) == "the connection was closed"


def test_ranks_that_fail_afterwards_do_not_excuse_the_node() -> None:
    [hit] = ask_lost(ended(0, exit_code=1, ended_s=NOW - 1.0)).hits
    assert hit.culprits.nodes == (1,)


def test_an_agent_that_ends_after_a_rank_failed_is_not_the_first_fault() -> None:
    assert ask_lost(ended(0, exit_code=1, ended_s=NOW - 5.0)).state == "clear"


def test_an_agent_whose_ranks_had_ended_has_nothing_left_to_do() -> None:
    assert ask_lost(ended(2), ended(3)).state == "clear"


def test_a_silent_node_is_the_networks_matter() -> None:
    assert ask_lost(loss=Loss(reason=LossReason.SILENT, silent_s=12.0)).state == "clear"


def test_a_node_that_gave_up_a_node_0_that_did_not_run_is_not_accused() -> None:
    assert ask_lost(loss=Loss(reason=LossReason.PEER_CLOSED, pause_s=21.0)).state == "clear"


def test_the_reason_that_an_agent_gave_is_quoted() -> None:
    [hit] = ask_lost(loss=Loss(reason=LossReason.LEFT, text="failed on that node: KeyError")).hits
    assert in_english(hit.values["why"]) == "failed on that node: KeyError"


def test_nothing_is_reported_of_nodes_that_are_connected() -> None:
    assert ask("LIV013").state == "clear"
