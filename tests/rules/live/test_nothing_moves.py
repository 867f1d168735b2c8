"""LIV014."""

from typing import Any

import pytest
from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import RankStatus
from allready.model.fill import fill, in_english
from tests.cases import cases
from tests.fleets import check
from tests.rules.live.made import NOW, ask, behind, ended, job, mark, waiting

LONG = NOW - 45.0
RESTED = {"rested_s": dict.fromkeys(range(4), LONG)}
"""No main thread has used its processor since then."""


def idle(rank: int, **changes: Any) -> RankStatus:
    return behind(rank, **({"groups": (mark(63, pending=False, moved_s=LONG),), "site_since_s": LONG} | changes))


def test_ranks_that_all_stand_are_told_and_nobody_is_blamed() -> None:
    ranks = [idle(r, site="train.py:40 sleep") for r in range(4)]
    [hit] = ask("LIV014", *ranks).hits
    assert not hit.culprits
    assert hit.values["seconds"] == "45"
    assert hit.values["places"] == "rank 0-3 (gpu0, gpu1) @ train.py:40 sleep"
    assert hit.severity is None  # a warning, however long it lasts


def test_ranks_in_one_operation_whose_gpus_are_busy_or_silent_are_told() -> None:
    in_it = (mark(64, moved_s=LONG, waiting_s=45.0),)
    for share in (1.0, None):
        ranks = [waiting(r, groups=in_it, site_since_s=LONG, gpu_busy_share=share) for r in range(4)]
        [hit] = ask("LIV014", *ranks).hits
        assert not hit.culprits


def test_ranks_that_spin_stand_also_where_they_get_a_fraction_of_a_processor() -> None:
    """Seen on a machine with more work than CPUs: ranks that computed in one line for a minute were said to get on."""
    for gets, queued, is_told in ((1.0, 0.0, True), (0.2, 0.8, True), (0.2, 0.0, False)):
        fleet = job(*(idle(r, main_cpu_s=60.0 * gets, queued_share=queued, cpu_share=gets) for r in range(4)))
        assert fleet.live is not None
        history = {
            node: tuple(
                replace(w, ranks=tuple(replace(r, main_cpu_s=gets * (60.0 - (NOW - w.time_s))) for r in w.ranks))
                for w in words
            )
            for node, words in fleet.live.history.items()
        }
        told = check("LIV014", replace(fleet, live=replace(fleet.live, history=history)))
        assert (told.state == "hit") is is_told, (gets, queued)


def test_processes_of_jax_have_no_count_of_operations() -> None:
    ranks = [idle(r, framework="jax", num_operations=0) for r in range(4)]
    assert len(ask("LIV014", *ranks).hits) == 1


def test_those_that_ended_in_order_are_named_beside_those_that_stand() -> None:
    """Seen in JAX: a process left, the other one raised, and waited for a minute and a half in JAX's shutdown."""
    jax: dict[str, Any] = {"framework": "jax", "num_operations": 0, "groups": ()}
    stand = [idle(r, phase="ending", cpu_share=0.0, **jax) for r in range(3)]
    fleet: dict[str, Any] = {"live": RESTED | {"since_s": None}}
    [hit] = ask("LIV014", *stand, ended(3, **jax), **fleet).hits
    assert "rank 3" in str(hit.values["ended"])
    assert not hit.culprits
    assert ask("LIV014", *stand, ended(3, exit_code=1, **jax), **fleet).state == "clear"
    assert ask("LIV014", *stand, ended(3, exit_code=None, **jax), **fleet).state == "clear"
    working = [idle(r, phase="ending", cpu_share=0.9, **jax) for r in range(3)]
    assert ask("LIV014", *working, ended(3, **jax), **fleet).state == "clear"


def polling(rank: int, **changes: Any) -> RankStatus:
    """One that goes round in a call: its stack changed a second ago, and the call began long ago."""
    return idle(rank, **({"site_since_s": NOW - 1.0, "visit_since_s": LONG, "main_cpu_s": 1.0} | changes))


def test_ranks_that_only_go_round_in_a_poll_stand() -> None:
    """A loader looks every 5 s whether its workers live."""
    [hit] = ask("LIV014", *(polling(r, site="train.py:9 <module>") for r in range(4)), live=RESTED).hits
    assert hit.values["seconds"] == "45"


@cases(
    "other",
    [
        {"visit_since_s": NOW - 30.0},  # it returned, and was called again
        {"visit_since_s": None},  # a beacon that does not tell
        {"children_cpu_share": 0.4},  # workers that read
        {"cpu_share": 0.4},  # another thread works
        {"gpu_busy_share": 0.3},
        {"main_cpu_s": None},  # it is not known whether it works
        {"groups": (mark(63, pending=False, moved_s=NOW - 5.0),)},
    ],
)
def test_who_goes_round_and_works_gets_on(other: dict[str, Any]) -> None:
    assert ask("LIV014", *(polling(r) for r in range(3)), polling(3, **other), live=RESTED).state == "clear"


@cases(
    "other",
    [
        {"site_since_s": NOW - 39.0},  # another line since
        {"groups": (mark(63, pending=False, moved_s=NOW - 5.0),)},  # an operation since
        {"phase": "compiling", "cpu_share": 0.9},
        {"num_operations": 0, "cpu_share": 0.9},  # it has not begun, and works
    ],
)
def test_one_rank_that_gets_on_is_enough(other: dict[str, Any]) -> None:
    ranks = [idle(r) for r in range(3)]
    last = {"groups": (mark(63, pending=False, moved_s=LONG),), "site_since_s": LONG} | other
    assert ask("LIV014", *ranks, behind(3, **last)).state == "clear"


@pytest.mark.parametrize("start", [{"phase": "importing"}, {"phase": "compiling"}, {"num_operations": 0}])
def test_a_start_in_which_no_rank_uses_a_processor_is_told_as_well(start: dict[str, Any]) -> None:
    """All wait for a file server, or for the lock of a compiler's cache."""
    assert len(ask("LIV014", *(idle(r, cpu_share=0.0, **start) for r in range(4))).hits) == 1


def test_a_rank_that_left_or_is_waited_for_is_another_matter() -> None:
    assert ask("LIV014", *(idle(r) for r in range(3)), ended(3)).state == "clear"
    late = [waiting(r, groups=(mark(64, moved_s=LONG, waiting_s=45.0),), site_since_s=LONG) for r in range(3)]
    assert ask("LIV014", *late, idle(3)).state == "clear"


@cases(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"phase": "evaluating"}, False),
        ({"groups": (mark(64, moved_s=NOW - 640.0),)}, False),
        ({"groups": (mark(63, pending=False, moved_s=NOW - 500.0),)}, False),
    ],
)
def test_ranks_that_all_compute_without_an_operation_are_told_after_very_long(
    changes: dict[str, Any], is_told: bool
) -> None:
    """Each goes from line to line, so that none stands; an evaluation, or one that made an operation, is none of it."""
    quiet: dict[str, Any] = {"groups": (mark(63, pending=False, moved_s=NOW - 640.0),), "site_since_s": NOW - 0.1}
    ranks = [behind(r, **(quiet | {"cpu_share": 1.0} | (changes if r == 1 else {}))) for r in range(4)]
    told = ask("LIV014", *ranks, live={"hang_after_s": 60.0})
    assert (told.state == "hit") is is_told
    for hit in told.hits:
        said = fill(load()["LIV014"].message, hit.values)
        assert said.startswith("no rank has begun an operation for 640 s, 11 times --hang-after, though all compute: ")
        assert (hit.severity, bool(hit.culprits)) == (None, False)


def test_ranks_that_all_wait_for_one_key_of_a_store_are_told_sooner_and_with_the_key() -> None:
    since = NOW - 12.0
    still: dict[str, Any] = {"site_since_s": since, "groups": (mark(63, pending=False, moved_s=since),)}
    rested = {"rested_s": dict.fromkeys(range(4), since)}
    ranks = [idle(r, awaits=("tokenizer/ready", ""), **still) for r in range(4)]
    [hit] = ask("LIV014", *ranks, live=rested).hits
    assert (hit.fault_class, hit.culprits.ranks) == ("DESYNC-FLOW", ())
    said = fill(load()["LIV014"].message, {**hit.values, "awaited": in_english(hit.values["awaited"])})
    assert said.endswith("; each waits for the key 'tokenizer/ready' of a store")
    others = [idle(r, awaits=("a" if r else "b", ""), **still) for r in range(4)]
    assert ask("LIV014", *others, live=rested).state == "clear"


def bare(rank: int, **changes: Any) -> RankStatus:
    """One without a beacon: a program that is not Python's, or a beacon that could not get its memory."""
    known = {"site": "", "site_since_s": None, "phase": "unknown", "groups": (), "num_operations": 0, "cpu_share": 0.0}
    return idle(rank, **(known | {"heartbeat_age_s": None, "main_cpu_s": 1.0, "framework": ""} | changes))


def test_ranks_whose_line_nothing_shows_stand_where_neither_they_nor_a_child_nor_a_gpu_works() -> None:
    rested: dict[str, Any] = {"live": RESTED | {"since_s": None}}
    [hit] = ask("LIV014", *map(bare, range(4)), **rested).hits
    assert hit.values["seconds"] == "45"
    assert hit.values["places"] == "rank 0-3 (gpu0, gpu1)"
    for works in ({"cpu_share": 0.03}, {"children_cpu_share": 0.5}, {"gpu_busy_share": 0.9}, {"cpu_share": None}):
        told = ask("LIV014", *(bare(r, **(works if r == 3 else {})) for r in range(4)), **rested)
        assert told.state == "clear", works
