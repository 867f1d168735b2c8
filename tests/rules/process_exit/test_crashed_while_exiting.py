"""A crash on the way out of a script that ended too early is no crash of native code."""

from allready.model import Confidence
from tests.rules.runs import ask, at, death, group

CRASHED = death(1, "signal", signal="SIGSEGV", first=True, while_exiting=True)
BEHIND = group({0: at(26, 25), 1: at(24), 2: at(26, 25), 3: at(26, 25)})
LEVEL = group({r: at(24) for r in range(4)})


def test_names_the_rank_that_left_before_the_others() -> None:
    [hit] = ask("DTH007", deaths=(CRASHED,), progress=(BEHIND,)).hits
    assert (hit.culprits.ranks, hit.confidence, hit.values["signal"]) == ((1,), Confidence.LIKELY, "SIGSEGV")
    assert ask("DTH002", deaths=(CRASHED,), progress=(BEHIND,)).state == "clear"


def test_where_nothing_counts_the_calls_it_is_only_possible() -> None:
    [hit] = ask("DTH007", deaths=(CRASHED,)).hits
    assert hit.confidence is Confidence.POSSIBLE


def test_a_crash_at_the_common_end_is_a_crash() -> None:
    assert ask("DTH007", deaths=(CRASHED,), progress=(LEVEL,)).state == "clear"
    [hit] = ask("DTH002", deaths=(CRASHED,), progress=(LEVEL,)).hits
    assert hit.culprits.ranks == (1,)


def test_a_crash_in_the_middle_of_the_script_is_a_crash() -> None:
    crashed = death(1, "signal", signal="SIGSEGV", first=True)
    assert ask("DTH007", deaths=(crashed,), progress=(BEHIND,)).state == "clear"
    [hit] = ask("DTH002", deaths=(crashed,), progress=(BEHIND,)).hits
    assert hit.culprits.ranks == (1,)


def test_an_exception_that_ended_the_script_is_the_cause() -> None:
    raised = death(1, "exception", signal="SIGSEGV", while_exiting=True)
    assert ask("DTH007", deaths=(raised,), progress=(BEHIND,)).state == "clear"
    [hit] = ask("DTH001", deaths=(raised,), progress=(BEHIND,)).hits
    assert hit.culprits.ranks == (1,)
