from typing import Any

from allready.judging.loading import load
from allready.model import Confidence, Death, FaultClass
from tests.rules.runs import ask, death, group, one_missing

TIMED_OUT = "RuntimeError: Timed out waiting 1800000ms for recv operation to complete"


def gave_up(rank: int, site: str = "train.py:9 step", **changes: Any) -> Death:
    return death(rank, text=TIMED_OUT, is_collective_error=True, site=site, **changes)


def ranks(**others: str) -> tuple[Death, ...]:
    """Four ranks that gave up; `r2="eval.py:3 report"` says where another one stood."""
    return tuple(gave_up(r, others.get(f"r{r}", "train.py:9 step")) for r in range(4))


def test_names_the_one_that_waited_in_another_call_than_all_others() -> None:
    [hit] = ask("DSY007", deaths=ranks(r2="eval.py:3 report")).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)
    assert (hit.values["site"], hit.values["other"]) == ("eval.py:3 report", "train.py:9 step")
    assert load()["DSY007"].fault_class is FaultClass.DESYNC_FLOW


def test_of_two_halves_nobody_is_accused() -> None:
    [hit] = ask("DSY007", deaths=ranks(r2="eval.py:3 report", r3="eval.py:3 report")).hits
    assert not hit.culprits


def test_another_line_of_the_same_function_is_no_other_call() -> None:
    assert ask("DSY007", deaths=ranks(r2="train.py:12 step")).state == "clear"


def test_while_a_rank_is_missing_the_others_may_wait_anywhere() -> None:
    apart = ranks(r2="eval.py:3 report")
    assert ask("DSY007", deaths=apart[1:]).state == "clear"
    [hit] = ask("DSY007", deaths=apart[:3], expected_ranks=0).hits  # nobody knows whether there are more
    assert (bool(hit.culprits), hit.confidence) == (False, Confidence.POSSIBLE)
    killed = death(3, "signal", signal="SIGTERM", by_launcher=True)
    assert ask("DSY007", deaths=(*apart[:3], killed), expected_ranks=0).state == "clear"


def test_what_came_minutes_later_is_another_story() -> None:
    assert ask("DSY007", deaths=(*ranks()[:3], gave_up(3, "eval.py:3 report", time_s=1300.0))).state == "clear"


def test_a_cause_and_records_of_operations_tell_more() -> None:
    apart = ranks(r2="eval.py:3 report")
    assert ask("DSY007", deaths=(*apart[:3], death(3))).state == "clear"
    assert ask("DSY007", deaths=apart, progress=(one_missing(),)).state == "clear"
    assert ask("DSY007", deaths=apart, progress=(group({}),)).state == "clear"
    assert ask("DSY007").state == "clear"


def test_another_kind_of_call_in_the_same_function_is_another_call() -> None:
    """As with send_object and the collective behind it: the loop is one function."""
    calls = [gave_up(r, call="barrier" if r == 2 else "all_reduce") for r in range(4)]
    [hit] = ask("DSY007", deaths=tuple(calls)).hits
    assert (hit.culprits.ranks, hit.values["site"]) == ((2,), "barrier at train.py:9 step")
