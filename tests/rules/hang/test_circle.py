from typing import Any

from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import Frame
from allready.model.fill import fill, in_english
from tests.fleets import check
from tests.rules.live.made import job, stack, waiting
from tests.rules.runs import ask, at, group, one_missing


def two(first: int, second: int, name: str, waiting: int, **more: Any) -> object:
    positions = {r: at(5, 5) if r == waiting else at(4) for r in (first, second)}
    return group(positions, group=name, label=name, members=(first, second), **more)


def test_two_ranks_that_took_two_groups_in_opposite_order() -> None:
    [hit] = ask("HNG004", progress=(two(0, 1, "A", waiting=0), two(0, 1, "B", waiting=1))).hits
    assert hit.culprits.ranks == (0, 1)
    call = "#5 all_reduce [1024] float32"
    assert (
        in_english(hit.values["chain"])
        == f"rank 0 (node 0) in A: {call} for rank 1; rank 1 (node 0) in B: {call} for rank 0"
    )


def test_three_in_a_ring() -> None:
    ring = (two(0, 1, "A", waiting=0), two(1, 2, "B", waiting=1), two(0, 2, "C", waiting=2))
    [hit] = ask("HNG004", progress=ring).hits
    assert not hit.culprits  # at most one of them left the order, and no rank can tell which
    assert hit.values["who"] == "rank 0-2 (node 0, 1)"
    assert " in 3 different operations, and no order of calls has a majority: " in fill(
        load()["HNG004"].message, hit.values
    )


def test_who_only_waits_for_the_circle_is_not_in_it() -> None:
    pairs = (two(0, 1, "A", waiting=0), two(0, 1, "B", waiting=1), two(1, 2, "C", waiting=2))
    assert [hit.culprits.ranks for hit in ask("HNG004", progress=pairs).hits] == [(0, 1)]


def test_a_chain_with_an_end_is_no_circle() -> None:
    assert ask("HNG004", progress=(two(0, 1, "A", waiting=0), two(1, 2, "B", waiting=1))).state == "clear"


def test_one_group_is_no_circle() -> None:
    assert ask("HNG004", progress=(one_missing(2),)).state == "clear"


def test_receives_on_both_sides_of_a_running_job_whose_cells_count_them_with_their_group() -> None:
    """Two ranks post `recv` from each other: their cells say that both wait, their records say in what."""
    pairs = (
        two(0, 1, "0 send 0->1", waiting=1, base_name="0", pair=(0, 1)),
        two(0, 1, "0 send 1->0", waiting=0, base_name="0", pair=(1, 0)),
    )
    fleet = job(progress=pairs)
    [hit] = check("HNG004", fleet).hits
    assert hit.culprits.ranks == (0, 1)


def test_what_another_thread_waits_in_does_not_hold_up_the_main_thread() -> None:
    """Seen: a thread that saves has a group of its own, and the thread of a rank with slow storage came late to it."""
    pairs = (
        two(0, 1, "0 send 0->1", waiting=1, base_name="0", pair=(0, 1)),
        two(0, 1, "0 send 1->0", waiting=0, base_name="0", pair=(1, 0)),
    )
    for activity, state in (("cpu_work", "clear"), ("in_collective", "hit")):
        saving = stack(1, activity, others=("in_collective",))
        assert check("HNG004", job(progress=pairs, stacks=(saving,))).state == state
    joins = stack(1, "lock", others=("in_collective",))
    for others, state in ((("io",), "clear"), (("in_collective",), "hit"), ((), "hit")):
        assert (
            check("HNG004", job(progress=pairs, stacks=(joins, stack(0, "in_collective", others=others)))).state
            == state
        )
    both = (joins, stack(0, "in_collective"))
    timer = replace(
        joins.threads[1], activity="", frames=(Frame(function="run", file="asyncio/base_events.py", line=1),)
    )
    kinds: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({}, {}),
        ({"stacks": (replace(joins, threads=(*joins.threads, timer)), both[1])}, {}),
        ({}, {"cpu_share": 0.9}),  # a thread computes, and may make the call then
        ({"seen": {1: {"other_calls": ("read",)}}}, {}),
    )
    for changes, status in kinds:
        fleet = job(waiting(1, **status), **{"progress": pairs, "stacks": both, **changes})
        assert check("HNG004", fleet).state == ("clear" if changes or status else "hit")
