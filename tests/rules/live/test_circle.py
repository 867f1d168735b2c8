"""HNG004 of a running job: who waits for each other over groups, sends and receives; and who only seems to."""

from typing import Any

from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import GroupMark, ProcessStack, RankStatus
from allready.model.fill import fill, in_english
from allready.model.process import SystemCall
from tests.cases import cases
from tests.rules.live.made import NOW, ask, behind, mark, stack, waiting
from tests.rules.live.test_all_receive import half


def in_group(name: str, *members: int, pending: bool = True) -> GroupMark:
    done = mark(64 if pending else 63, pending=pending)
    return mark(done.enqueued, pending=pending, group=name, label="", members=members)


def job_of(one: int, *, over: str) -> list[RankStatus]:
    """Rank 0 waits for 1 in group a, rank 2 for 0 in group c, and rank 3 is elsewhere; rank 1 is `over` to rank 2."""
    own: tuple[GroupMark, ...] = (in_group("a", 0, 1, pending=False),)
    if over == "group":
        own = (*own, in_group("b", 1, 2))
    return [
        waiting(0, groups=(in_group("a", 0, 1), in_group("c", 0, 2, pending=False))),
        waiting(one, groups=own) if over == "group" else behind(one, groups=own, phase="communicating"),
        waiting(2, groups=(in_group("c", 0, 2), *((in_group("b", 1, 2, pending=False),) if over == "group" else ()))),
        behind(3, groups=()),
    ]


def sentence(code: str, values: Any) -> str:
    return fill(load()[code].message, {**values, "chain": in_english(values["chain"])})


def test_a_circle_over_a_receive_shows_it_and_accuses_no_rank_of_it() -> None:
    """Seen: rank 2 took its group before its send, and rank 1, which received as always, was the one (LIV008)."""
    stacks = (half(1, "recv", 2),)
    [hit] = ask("HNG004", *job_of(1, over="recv"), stacks=stacks).hits
    assert not hit.culprits
    said = sentence("HNG004", hit.values)
    for who in ("rank 0 (node 0) in", "rank 1 (node 0) in recv (/home/u/train.py:7 exchange) for rank 2"):
        assert who in said
    for code in ("LIV008", "HNG010"):
        assert ask(code, *job_of(1, over="recv"), stacks=stacks).state == "clear"


def test_of_such_a_circle_the_one_that_left_its_loop_is_named() -> None:
    turns = {0: True, 1: True, 2: False}
    [hit] = ask("HNG010", *job_of(1, over="recv"), stacks=(half(1, "recv", 2),), turns=turns).hits
    assert hit.culprits.ranks == (2,)


def test_the_one_for_whom_a_receive_waits_in_the_end_is_looked_at_and_not_the_one_that_receives() -> None:
    """A stage of a pipeline computes; the one behind it receives, and a third waits for that one in a group."""
    ranks = [
        waiting(0, groups=(in_group("a", 0, 1),)),
        behind(1, groups=(in_group("a", 0, 1, pending=False),), phase="communicating"),
        behind(2, groups=()),
        behind(3, groups=(), cpu_share=1.0, process_state="running"),
    ]
    stacks = (half(1, "recv", 2), half(2, "recv", 3), stack(3, "cpu_work"))
    [hit] = ask("LIV006", *ranks, stacks=stacks, seen={3: {"syscall": SystemCall(name="running")}}).hits
    assert hit.culprits.ranks == (3,)
    assert in_english(hit.values["waiting"]) == "3 ranks"
    assert ask("LIV008", *ranks, stacks=stacks).state == "clear"


def test_a_rank_that_has_just_begun_to_receive_is_in_no_circle_and_not_accused() -> None:
    first, one, *rest = job_of(1, over="recv")
    fresh = behind(1, groups=one.groups, phase="communicating", site_since_s=NOW - 1.0)
    for code in ("HNG004", "LIV008"):
        assert ask(code, first, fresh, *rest, stacks=(half(1, "recv", 2),)).state == "clear"


@cases(
    ("stacks", "is_told"),
    [
        ((), True),
        ((stack(1, "lock"),), True),  # C++ waits, as in `backward()`
        ((stack(1, "cpu_work"),), False),  # computes between `async_op=True` and `wait()`
        ((stack(1, "sleep"),), False),
        ((stack(1, "data_loading"),), False),
        ((stack(1, "user_code", others=("in_collective",)),), False),
    ],
)
def test_who_does_something_else_while_its_operation_is_under_way_is_in_no_circle(
    stacks: tuple[ProcessStack, ...], is_told: bool
) -> None:
    """Seen: two ranks began two groups' operations in opposite orders, computed for 8 s, and waited for both then."""
    told = ask("HNG004", *job_of(1, over="group"), stacks=stacks)
    assert (told.state == "hit") is is_told, stacks


def test_a_circle_on_gpus_and_one_that_lasts_are_told_whatever_the_processes_do() -> None:
    """A rank that waits for its GPU in its own line spins, and looks as if it computed."""
    first, one, *rest = job_of(1, over="group")
    for rank, live in ((replace(one, gpu_busy_share=1.0), {}), (one, {"hang_after_s": 5.0})):
        told = ask("HNG004", first, rank, *rest, stacks=(stack(1, "cpu_work"),), live=live)
        assert told.state == "hit"
