"""A signal ends a command, whatever Python was doing when it came."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import weakref

import pytest

from allready.cli.interrupts import TOGETHER_S, Interrupts
from allready.cli.main import main
from tests.cases import cases


class _Thing:
    """Has weak references."""


def test_an_interrupt_that_a_callback_swallows_comes_again() -> None:
    """As in an import, whose locks are let go by the callback of a weak reference."""
    thing = _Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    with Interrupts(exit_code=3) as interrupts:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come in either line
            del thing
            time.sleep(30.0)
        assert reference() is None
        assert interrupts.caught == ["SIGINT"]


def test_other_errors_of_destructors_go_where_they_went(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[object] = []

    def fail(_: object) -> None:
        raise ValueError("in a callback")

    thing = _Thing()
    reference = weakref.ref(thing, fail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda one: seen.append(one.exc_type))
        with Interrupts(exit_code=3):
            del thing
    assert (seen, reference()) == ([ValueError], None)


def test_before_a_wait_an_interrupt_that_was_swallowed_is_raised() -> None:
    """As code in C does, around an import."""
    with Interrupts(exit_code=3) as interrupts:
        interrupts.raise_caught()
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30.0)
        with pytest.raises(KeyboardInterrupt):
            interrupts.raise_caught()


ROW = """
import asyncio, sys
from allready.cli.interrupts import Interrupts

async def work(interrupts):
    seen = asyncio.Event()
    with interrupts.cancelling(lambda: (seen.set(), print("seen", flush=True))):
        print("runs", flush=True)
        if {is_busy}:
            sys.stdin.readline()  # as in an import, the loop does not run
        await seen.wait()
        await asyncio.sleep({then_s})

with Interrupts(exit_code=9) as interrupts:
    asyncio.run(work(interrupts))
"""


@pytest.mark.parametrize("is_busy", [True, False])
def test_signals_in_a_row_that_are_seen_at_once_end_a_command_well(is_busy: bool) -> None:
    """The third one ends it at once, where it had the time to heed the first."""
    script = ROW.format(is_busy=is_busy, then_s=0.1 if is_busy else 30.0)
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        for number in range(3):
            process.send_signal(signal.SIGTERM)
            if not is_busy and number < 2:
                assert process.stdout.readline() == b"seen\n"
            time.sleep(2 * TOGETHER_S)
        process.communicate(b"\n", timeout=20)
        assert process.returncode == (0 if is_busy else 9)


@cases("command, number, code", [
    ("run", signal.SIGTERM, 143), ("run", signal.SIGINT, 130), ("check", signal.SIGTERM, 3),
])  # fmt: skip
def test_a_job_that_is_interrupted_before_it_begins_ends_as_one_that_has_begun(
    command: str, number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*_: object) -> int:
        os.kill(os.getpid(), number)
        time.sleep(30.0)
        return 0

    monkeypatch.setattr(f"allready.cli.{command}._run", begin)
    assert main([command, *(["train.py"] if command == "run" else [])]) == code
