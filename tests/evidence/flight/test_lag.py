"""Who is always last, with clocks that differ and watchdogs that look ten times a second."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from allready.model import Lag
from tests.cases import cases
from tests.evidence.flight.make import dump, entry, joined

pytestmark = pytest.mark.thorough

LOOK_S = 0.1


def run(
    late: Callable[[int, int, random.Random], float],
    *,
    ranks: int = 4,
    steps: int = 120,
    step_s: float = 0.5,
    clocks: dict[int, float] | None = None,
    held_up: dict[int, tuple[int, float]] | None = None,
) -> Lag | None:
    """Simulate a loop: in each step every rank enters `late(rank, step)` after the first, and leaves with the last.

    Args:
        clocks: rank -> seconds its clock is ahead.
        held_up: rank -> (step, seconds) at which its watchdog does not look for so long.
    """
    chance = random.Random(7)
    looks = [chance.random() * LOOK_S for _ in range(ranks)]
    entries: list[list[dict[str, Any]]] = [[] for _ in range(ranks)]
    now = 1.0
    for step in range(1, steps + 1):
        entered = [now + late(rank, step, chance) + chance.random() * 1e-4 for rank in range(ranks)]
        left = max(entered) + 0.002
        for rank in range(ranks):
            ahead = (clocks or {}).get(rank, 0.0)
            held = held_up[rank][1] if held_up and rank in held_up and held_up[rank][0] == step else 0.0
            found = left + (looks[rank] - left) % LOOK_S + held
            entries[rank].append(entry(step, at_s=entered[rank] + ahead, done_s=found + ahead))
        now = left + step_s * (0.9 + 0.2 * chance.random())
    lags = joined({r: dump(entries[r], members=range(ranks)) for r in range(ranks)}).lags
    return lags[0] if lags else None


def slow(rank: int, seconds: float) -> Callable[[int, int, random.Random], float]:
    return lambda r, step, chance: seconds if r == rank else 0.0


def test_a_rank_that_is_always_late_is_always_last() -> None:
    lag = run(slow(2, 0.4))
    assert lag is not None
    assert lag.last_share == {0: 0.0, 1: 0.0, 2: 1.0, 3: 0.0}
    assert lag.median_late_s[2] == pytest.approx(0.4, abs=0.01)
    assert lag.noise_s < 0.4 / 3
    assert lag.median_period_s == pytest.approx(0.9, rel=0.1)
    assert lag.num_operations == 117


def test_two_late_ranks_are_both_last() -> None:
    lag = run(lambda rank, step, chance: 0.4 if rank in (2, 3) else 0.0, ranks=6)
    assert lag is not None
    assert {r for r, share in lag.last_share.items() if share > 0.9} == {2, 3}


def test_lateness_that_goes_round_is_nobodys() -> None:
    lag = run(lambda rank, step, chance: 0.4 if step % 4 == rank else 0.0)
    assert lag is not None
    assert max(lag.last_share.values()) < 0.3


def test_lateness_by_chance_is_nobodys() -> None:
    lag = run(lambda rank, step, chance: chance.random() * 0.5)
    assert lag is not None
    assert max(lag.last_share.values()) < 0.5


@cases("ahead_s", [-3600.0, -0.4, -0.05, 0.05, 0.4, 3600.0])
def test_a_clock_that_is_wrong_makes_nobody_late(ahead_s: float) -> None:
    lag = run(lambda rank, step, chance: chance.random() * 0.01, clocks={1: ahead_s})
    assert lag is not None
    assert max(lag.last_share.values()) < 0.5


@cases("ahead_s", [-3600.0, -0.4, 0.4, 7.0])
def test_a_late_rank_is_found_behind_a_wrong_clock(ahead_s: float) -> None:
    lag = run(slow(2, 0.4), clocks={0: ahead_s, 2: -ahead_s})
    assert lag is not None
    assert max(lag.last_share, key=lambda r: lag.last_share[r]) == 2
    assert lag.last_share[2] > 0.9
    assert lag.median_late_s[2] == pytest.approx(0.4, abs=0.15)


def test_a_watchdog_that_was_held_up_makes_nobody_late() -> None:
    lag = run(lambda rank, step, chance: 0.0, held_up={3: (60, 2.5)})
    assert lag is not None
    assert max(lag.last_share.values()) < 0.1
    assert lag.noise_s < 0.2


def test_a_loop_that_is_faster_than_the_watchdog_says_nothing() -> None:
    assert run(slow(2, 0.0005), steps=60, step_s=0.001) is None


def test_few_operations_say_nothing() -> None:
    assert run(slow(2, 0.4), steps=9) is None


def test_two_ranks_are_enough() -> None:
    lag = run(slow(1, 0.4), ranks=2)
    assert lag is not None
    assert lag.last_share == {0: 0.0, 1: 1.0}


def test_without_completion_times_clocks_cannot_be_compared() -> None:
    made = {r: dump([entry(i, time_discovered_completed_ns=None) for i in range(1, 50)]) for r in range(2)}
    assert joined(made).lags == []


def test_a_broadcast_is_no_meeting() -> None:
    made = {
        r: dump([entry(i, "nccl:broadcast", at_s=i + r, done_s=i + r + 0.1) for i in range(1, 50)]) for r in range(2)
    }
    assert joined(made).lags == []
