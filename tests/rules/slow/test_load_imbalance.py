from allready.judging.loading import load
from allready.model import Severity

from .moving import SLOW_JOB, ask, late


def test_a_rank_with_a_little_more_work_is_a_remark_that_blames_nobody() -> None:
    [hit] = ask("SLW012", (late(0, 0.15),)).hits
    assert not hit.culprits
    assert load()["SLW012"].severity is Severity.INFO


def test_a_rank_that_saves_for_long_is_a_remark() -> None:
    assert ask("SLW012", (late(0, 0.5),), ranks={0: {"phase": "saving"}}).state == "hit"


def test_who_is_late_over_a_slow_link_has_no_more_work() -> None:
    assert ask("SLW012", (late(3, 0.15),), flows=SLOW_JOB).state == "clear"


def test_a_few_percent_are_not_worth_a_word() -> None:
    assert ask("SLW012", (late(0, 0.05),)).state == "clear"
