"""Blocking calls that may never return must not keep any rank: not the waiter, not the process."""

import asyncio
import errno
import logging
import subprocess
import sys
import threading

import pytest

from allready.errors import DeadlineExceeded
from allready.preflight.check.waits import in_daemon_thread, say_exhaustion_once
from tests.clock import Stopwatch


async def test_gives_the_result_of_the_work() -> None:
    assert await in_daemon_thread(lambda: 6 * 7, timeout_s=5.0, what="sum") == 42


async def test_hands_on_what_the_work_raises() -> None:
    def work() -> None:
        raise LookupError("made up")

    with pytest.raises(LookupError, match="made up"):
        await in_daemon_thread(work, timeout_s=5.0, what="failing")


async def test_a_call_that_does_not_return_ends_at_the_deadline_with_its_name() -> None:
    release = threading.Event()
    began = Stopwatch()
    with pytest.raises(DeadlineExceeded, match="sick driver: no answer within 0 s"):
        await in_daemon_thread(release.wait, timeout_s=0.1, what="sick driver")
    assert began.s < 20.0
    release.set()


async def test_a_late_result_disturbs_nobody() -> None:
    release = threading.Event()
    with pytest.raises(DeadlineExceeded):
        await in_daemon_thread(release.wait, timeout_s=0.05, what="late")
    release.set()
    await asyncio.sleep(0.1)  # warnings are errors: an exception in the loop or the thread would show


async def test_cancelling_the_waiter_leaves_at_once() -> None:
    release = threading.Event()
    waiting = asyncio.create_task(in_daemon_thread(release.wait, timeout_s=60.0, what="long"))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()


def test_a_result_after_the_loop_is_closed_disturbs_nobody() -> None:
    release = threading.Event()

    async def leave_early() -> None:
        with pytest.raises(DeadlineExceeded):
            await in_daemon_thread(release.wait, timeout_s=0.05, what="left behind")

    asyncio.run(leave_early())
    [left] = [t for t in threading.enumerate() if "left behind" in t.name]
    release.set()
    left.join(5.0)
    assert not left.is_alive()


def test_a_hanging_call_does_not_keep_the_process_alive() -> None:
    code = (
        "import asyncio, threading\n"
        "from allready.errors import DeadlineExceeded\n"
        "from allready.preflight.check.waits import in_daemon_thread\n"
        "async def main():\n"
        "    try:\n"
        "        await in_daemon_thread(threading.Event().wait, timeout_s=0.1, what='x')\n"
        "    except DeadlineExceeded:\n"
        "        print('left')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("left\n", "")


async def test_exhaustion_is_said_once_and_other_errors_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    say_exhaustion_once(loop)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            loop.call_exception_handler(
                {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")}
            )
        loop.call_exception_handler({"message": "something else", "exception": ValueError("made up")})
    assert [r.getMessage().split(":")[0] for r in caplog.records] == ["a connection has to wait", "something else"]
