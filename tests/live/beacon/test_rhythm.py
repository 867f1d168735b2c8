"""A job's speed as its counters tell it."""

import pytest

from allready.live.beacon.rhythm import CALM_WINDOWS, WINDOW_S, BeaconRhythm
from tests.cases import cases


def run(rhythm: BeaconRhythm, begin_s: float, windows: int, per_s: float, operations: int = 0) -> tuple[float, int]:
    """Looks every 0.2 s at a job of so many operations a second; when it ended, and with how many."""
    looks = round(windows * WINDOW_S / 0.2)
    for look in range(1, looks + 1):
        rhythm.note(begin_s + look * 0.2, operations + int(look * 0.2 * per_s))
    return begin_s + looks * 0.2, operations + int(looks * 0.2 * per_s)


def test_calm_after_some_windows_at_one_speed() -> None:
    rhythm = BeaconRhythm()
    now_s, operations = run(rhythm, 100.0, CALM_WINDOWS, 48.0)
    was_calm = rhythm.is_calm
    run(rhythm, now_s, 3, 48.0, operations)
    assert (was_calm, rhythm.is_calm) == (False, True)
    assert rhythm.per_s == pytest.approx(48.0, rel=0.05)


@cases("factor", [0.0, 0.5, 0.92, 1.1, 3.0])
def test_another_speed_ends_it_within_two_windows(factor: float) -> None:
    rhythm = BeaconRhythm()
    now_s, operations = run(rhythm, 100.0, 10, 48.0)
    assert rhythm.is_calm
    run(rhythm, now_s, 2, factor * 48.0, operations)
    assert not rhythm.is_calm


def test_small_differences_and_single_operations_are_nothing() -> None:
    rhythm = BeaconRhythm()
    now_s, operations = run(rhythm, 100.0, 10, 48.0)
    now_s, operations = run(rhythm, now_s, 4, 49.5, operations)
    assert rhythm.is_calm
    slow = BeaconRhythm()
    run(slow, 100.0, 40, 0.7)  # one operation in this window, two in the next
    assert slow.is_calm


def test_a_creeping_change_is_one_in_the_end() -> None:
    rhythm = BeaconRhythm()
    now_s, operations, per_s = *run(rhythm, 100.0, 10, 50.0), 50.0
    was_calm = []
    for _ in range(6):
        per_s *= 0.98
        now_s, operations = run(rhythm, now_s, 1, per_s, operations)
        was_calm.append(rhythm.is_calm)
    assert not all(was_calm)


def test_a_clock_that_was_set_and_a_group_that_is_gone_begin_anew() -> None:
    for jump_s, lost in ((-50.0, 0), (0.0, 400)):
        rhythm = BeaconRhythm()
        now_s, operations = run(rhythm, 100.0, 10, 48.0)
        rhythm.note(now_s + jump_s + 0.1, operations - lost)
        assert not rhythm.is_calm
        run(rhythm, now_s + jump_s + 0.1, 10, 48.0, operations - lost)
        assert rhythm.is_calm
