"""The mark of the agent's verdict, as a rank heeds it."""

import os
import time
from pathlib import Path

from allready.live.beacon.names import ASLEEP, HANGS
from allready.runtime.hang_watch import ASLEEP_S, MIN_OPERATIONS, STILL_S, USUAL, HangWatch


def test_a_rank_heeds_a_mark_once_and_only_while_it_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "hung"
    watch = HangWatch(str(path))
    now_s = time.monotonic()
    assert not watch.is_hang("first", now_s)
    path.write_text(HANGS)
    assert not watch.is_hang("first", now_s + STILL_S / 2)  # it may get on
    assert not watch.is_hang("second", now_s + 2 * STILL_S)  # it made progress
    assert not watch.is_hang("second", now_s + 2.5 * STILL_S)
    assert watch.is_hang("second", now_s + 4 * STILL_S)
    assert not watch.is_hang("second", now_s + 5 * STILL_S)
    old = time.time() - 100 * STILL_S
    os.utime(path, (old, old))
    assert not watch.is_hang("second", now_s + 8 * STILL_S)  # of something that was over before


def test_a_rank_that_sleeps_ends_a_call_only_where_the_wait_is_longer_than_any_before(tmp_path: Path) -> None:
    path = tmp_path / "hung"
    path.write_text(ASLEEP)
    for usual_s in (0.5, 2.0):  # how long a step takes
        watch = HangWatch(str(path))
        patience_s = max(ASLEEP_S, USUAL * usual_s)
        now_s = time.monotonic()
        for step in range(MIN_OPERATIONS + 3):
            now_s += usual_s
            assert not watch.is_hang(step, now_s, num_operations=step, recovers=True)
        since_s = now_s
        assert not watch.is_hang(step, since_s + patience_s - 0.2, num_operations=step, recovers=True)
        assert watch.is_hang(step, since_s + patience_s + 0.2, num_operations=step, recovers=True)
        assert not watch.is_hang(step, since_s + patience_s + 0.4, num_operations=step, recovers=True)  # heeded once


def test_before_the_first_steps_nothing_is_known_of_how_long_a_wait_is_usual(tmp_path: Path) -> None:
    path = tmp_path / "hung"
    path.write_text(ASLEEP)
    watch = HangWatch(str(path))
    now_s = time.monotonic()
    assert not watch.is_hang("first", now_s, num_operations=MIN_OPERATIONS - 1, recovers=True)
    assert not watch.is_hang("first", now_s + 10 * ASLEEP_S, num_operations=MIN_OPERATIONS - 1, recovers=True)
    path.write_text(HANGS)  # the verdict says that it hangs
    assert watch.is_hang("first", now_s + 11 * ASLEEP_S, num_operations=MIN_OPERATIONS - 1, recovers=True)


def test_what_has_a_limit_of_its_own_teaches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hung"
    path.write_text(ASLEEP)
    watch = HangWatch(str(path))
    now_s = time.monotonic()
    assert not watch.is_hang("training", now_s, num_operations=MIN_OPERATIONS, recovers=True)
    watch.rest()  # an evaluation of half an hour
    now_s += 1800.0
    assert not watch.is_hang("training again", now_s, num_operations=MIN_OPERATIONS, recovers=True)
    assert watch.is_hang("training again", now_s + ASLEEP_S + 0.1, num_operations=MIN_OPERATIONS, recovers=True)


def test_a_sleep_ends_no_call_whose_failure_ends_the_job(tmp_path: Path) -> None:
    path = tmp_path / "hung"
    path.write_text(ASLEEP)
    watch = HangWatch(str(path))
    now_s = time.monotonic()
    assert not watch.is_hang("first", now_s, num_operations=MIN_OPERATIONS)
    assert not watch.is_hang("first", now_s + 10 * ASLEEP_S, num_operations=MIN_OPERATIONS)
    assert watch.is_hang("first", now_s + 10 * ASLEEP_S, num_operations=MIN_OPERATIONS, recovers=True)


def test_a_sleep_ends_no_call_before_the_time_that_the_user_lets_a_wait_last(tmp_path: Path) -> None:
    path = tmp_path / "hung"
    path.write_text(f"{ASLEEP} {4 * ASLEEP_S}")
    watch = HangWatch(str(path))
    now_s = time.monotonic()
    for later_s, is_over in ((0.0, False), (4 * ASLEEP_S - 0.1, False), (4 * ASLEEP_S + 0.1, True)):
        assert watch.is_hang("first", now_s + later_s, num_operations=MIN_OPERATIONS, recovers=True) == is_over


def test_a_mark_without_its_word_says_nothing_yet(tmp_path: Path) -> None:
    path = tmp_path / "hung"
    watch = HangWatch(str(path))
    now_s = time.monotonic()
    assert not watch.is_hang("first", now_s, num_operations=MIN_OPERATIONS, recovers=True)
    for text in ("", "asle", "asleep x", "other"):
        path.write_text(text)
        assert not watch.is_hang("first", now_s + 10 * ASLEEP_S, num_operations=MIN_OPERATIONS, recovers=True), text
