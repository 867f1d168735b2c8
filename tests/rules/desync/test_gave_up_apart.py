from typing import Any

from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import Confidence, Death, FaultClass, Frame, ThreadStack
from tests.cases import cases
from tests.rules.runs import ask, death, group, one_missing, stack

TIMED_OUT = "RuntimeError: Timed out waiting 1800000ms for recv operation to complete"


def gave_up(rank: int, site: str = "train.py:9 step", **changes: Any) -> Death:
    return death(rank, text=TIMED_OUT, is_collective_error=True, site=site, **changes)


def ranks(**others: str) -> tuple[Death, ...]:
    """Four ranks that gave up; `r2="eval.py:3 report"` says where another one stood."""
    return tuple(gave_up(r, others.get(f"r{r}", "train.py:9 step")) for r in range(4))


def test_names_the_one_that_waited_in_another_call_than_all_others() -> None:
    [hit] = ask("DSY007", deaths=ranks(r2="eval.py:3 report")).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)
    assert (str(hit.values["site"]), str(hit.values["other"])) == ("eval.py:3 report", "train.py:9 step")
    assert load()["DSY007"].fault_class is FaultClass.DESYNC_FLOW


def test_of_two_halves_nobody_is_accused() -> None:
    [hit] = ask("DSY007", deaths=ranks(r2="eval.py:3 report", r3="eval.py:3 report")).hits
    assert not hit.culprits


def test_another_line_of_the_same_function_is_no_other_call() -> None:
    assert ask("DSY007", deaths=ranks(r2="train.py:12 step")).state == "clear"


def test_while_a_rank_is_missing_the_others_may_wait_anywhere() -> None:
    apart = ranks(r2="eval.py:3 report")
    assert ask("DSY007", deaths=apart[1:]).state == "clear"
    [hit] = ask("DSY007", deaths=apart[:3], expected_ranks=0).hits  # it is not known whether there are more
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
    assert (hit.culprits.ranks, str(hit.values["site"])) == ((2,), "barrier at train.py:9 step")


def test_after_a_crash_over_sizes_stacks_show_where_ranks_stood() -> None:
    """JAX over Gloo: one is aborted by data that is too large, two lose it, and the fourth waits for them."""
    refused = death(
        2,
        "signal",
        signal="SIGABRT",
        text="killed by SIGABRT",
        is_collective_error=True,
        last_words="what(): op.preamble.length <= op.nbytes. 512 vs 2",
    )
    lost = tuple(gave_up(r, "train.py:12 step") for r in (1, 3))
    other = ThreadStack(name="MainThread", is_main=True, frames=(Frame(function="metric", file="train.py", line=17),))
    crashed, waits = stack(2, "in_collective", threads=(other,)), stack(0, "in_collective")
    [hit] = ask("DSY007", deaths=(refused, *lost), stacks=(crashed, waits)).hits
    assert (hit.culprits.ranks, str(hit.values["site"]), str(hit.values["other"])) == (
        (2,),
        "train.py:17 metric",
        "train.py:12 step",
    )
    assert ask("DSY007", deaths=(refused, *lost), stacks=(crashed, stack(0, "cpu_work"))).state == "clear"
    assert ask("DSY007", deaths=(refused, *lost), stacks=(crashed,)).state == "clear"


SEND, RECEIVE, REDUCE = "send", "recv", "all_reduce"


def exchange(*calls: str, **changes: Any) -> tuple[Death, ...]:
    """Ranks that all timed out, each in one of these calls."""
    return tuple(gave_up(r, f"train.py:{r} step", call=call, **changes) for r, call in enumerate(calls))


@cases(
    ("calls", "num_ranks"),
    [
        ((SEND, REDUCE), 2),
        ((REDUCE, RECEIVE), 2),
        ((SEND, REDUCE, SEND, REDUCE), 4),
        ((REDUCE, REDUCE, "isend", REDUCE), 4),
    ],
)
def test_where_all_ranks_waited_nobody_is_left_to_answer_a_send(calls: tuple[str, ...], num_ranks: int) -> None:
    [hit] = ask("DSY007", deaths=exchange(*calls), expected_ranks=num_ranks).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY)


@cases(
    ("calls", "num_ranks"),
    [
        ((SEND, REDUCE), 0),  # a third rank may be who both wait for
        ((SEND, REDUCE), 3),
        ((SEND, RECEIVE, REDUCE, REDUCE), 4),  # both halves are there: the way between them may be broken
        (("batch_isend_irecv", "batch_isend_irecv", REDUCE, REDUCE), 4),
        ((SEND, RECEIVE), 2),
        ((SEND, "isend"), 2),
        ((SEND, ""), 2),  # what the other one was in is not known
    ],
)
def test_stages_may_wait_at_different_places_for_one_that_is_missing(calls: tuple[str, ...], num_ranks: int) -> None:
    assert ask("DSY007", deaths=exchange(*calls), expected_ranks=num_ranks).state == "clear"


def test_who_lost_a_rank_that_gave_up_may_have_come_late_to_its_half() -> None:
    late = replace(exchange(SEND, REDUCE)[1], text="RuntimeError: Connection closed by peer")
    assert ask("DSY007", deaths=(exchange(SEND, REDUCE)[0], late), expected_ranks=2).state == "clear"
