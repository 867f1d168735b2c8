from allready.model import Confidence
from tests.rules.ruins import ask, death


def test_tells_the_exit_code_when_nothing_else_is_known() -> None:
    [hit] = ask("DTH004", deaths=(death(2, "exit", exit_code=3),)).hits
    assert (hit.culprits.ranks, hit.values["exit_code"], hit.confidence) == ((2,), 3, Confidence.LIKELY)


def test_a_traceback_at_the_same_moment_says_more() -> None:
    assert ask("DTH004", deaths=(death(2, "exit", exit_code=1), death(2))).state == "clear"


def test_an_exit_that_a_launcher_asked_for_is_none() -> None:
    assert ask("DTH004", deaths=(death(2, "exit", exit_code=1, by_launcher=True),)).state == "clear"


def test_nobody_died() -> None:
    assert ask("DTH004").state == "clear"
