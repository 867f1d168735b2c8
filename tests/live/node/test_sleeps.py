"""What sleeps on purpose goes on by itself; what asks again and again may ask for ever."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from allready.live.node.sleeps import LONG_S, LONGEST_S, Sleeps
from allready.proc.process import wchan_of
from tests.clock import until


@contextmanager
def started(code: str) -> Iterator[int]:
    """A process in its own sleep; its pid."""
    with subprocess.Popen([sys.executable, "-c", f"import time\n{code}"]) as process:
        try:
            until(lambda: "nanosleep" in (wchan_of(process.pid) or ""))
            yield process.pid
        finally:
            process.kill()


def test_one_long_sleep_ends_by_itself_and_one_after_the_other_may_not() -> None:
    with started("time.sleep(60)") as sleeps, started("while True: time.sleep(0.02)") as asks:
        one, other = Sleeps(), Sleeps()
        assert not one.sample(sleeps, (), 0.0)
        assert not other.sample(asks, (), 0.0)
        time.sleep(0.1)
        assert one.sample(sleeps, (), LONG_S)
        assert not other.sample(asks, (), LONG_S)
        assert not one.sample(sleeps, (), LONGEST_S)


def test_a_loader_that_sleeps_goes_on_whatever_its_rank_waits_in() -> None:
    with started("time.sleep(60)") as loader, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as rank:
        assert Sleeps().sample(rank.pid, (loader,), 0.0)
        assert not Sleeps().sample(rank.pid, (), 0.0)
        rank.terminate()
