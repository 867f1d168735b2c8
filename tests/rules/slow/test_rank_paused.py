from allready.rules.slow._pace import percents

from .moving import ask, late, paces

PAUSED = {3: {"paused_share": 0.3}}


def test_names_the_rank_that_is_stopped_again_and_again() -> None:
    [hit] = ask("SLW003", (late(3),), ranks=PAUSED).hits
    assert (hit.culprits.ranks, hit.values["paused"]) == ((3,), "30%")


def test_a_few_long_waits_are_enough_where_the_stops_are_seen() -> None:
    pulses = paces({0: 0.02, 1: 0.02, 2: 0.02, 3: 0.2}, {0: 6, 1: 7, 2: 5, 3: 9})
    [hit] = ask("SLW003", (pulses,), ranks=PAUSED).hits
    assert hit.culprits.ranks == (3,)
    assert ask("SLW006", (pulses,)).state == "clear"


def test_one_that_stays_stopped_is_a_hang() -> None:
    assert ask("SLW003", (late(3),), ranks={3: {"process_state": "stopped"}}).state == "clear"


def test_stops_that_make_nobody_wait_are_not_told() -> None:
    assert ask("SLW003", ranks=PAUSED).state == "clear"


def test_of_two_ranks_it_is_told_how_long_each_was_stopped() -> None:
    assert percents([0.4, 0.2]) == "20-40%"
    assert percents([0.2, 0.2]) == percents([0.2]) == "20%"
