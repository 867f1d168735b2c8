"""The mark of the agent's verdict, as a rank heeds it."""

import os
import time
from pathlib import Path

from allready.runtime.hang_watch import STILL_S, HangWatch


def test_a_rank_heeds_a_mark_once_and_only_while_it_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "hung"
    watch = HangWatch(str(path))
    now_s = time.monotonic()
    assert not watch.is_hang("first", now_s)
    path.touch()
    assert not watch.is_hang("first", now_s + STILL_S / 2)  # it may get on
    assert not watch.is_hang("second", now_s + 2 * STILL_S)  # it made progress
    assert not watch.is_hang("second", now_s + 2.5 * STILL_S)
    assert watch.is_hang("second", now_s + 4 * STILL_S)
    assert not watch.is_hang("second", now_s + 5 * STILL_S)
    old = time.time() - 100 * STILL_S
    os.utime(path, (old, old))
    assert not watch.is_hang("second", now_s + 8 * STILL_S)  # of something that was over before
