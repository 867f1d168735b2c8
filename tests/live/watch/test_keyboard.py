"""A terminal is given back also when a signal comes in the moment in which it is taken."""

import io
import os
import pty
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest

from allready.live.watch.keyboard import Keyboard, Screen


class Interrupted(io.StringIO):
    """A signal comes while its first text is written out."""

    is_first = True

    def flush(self) -> None:
        if self.is_first:
            self.is_first = False
            raise KeyboardInterrupt


def test_a_screen_that_is_interrupted_while_it_is_entered_is_left() -> None:
    stream = Interrupted()
    with pytest.raises(KeyboardInterrupt), Screen(stream):
        raise AssertionError("it was not entered")
    assert stream.getvalue().endswith("\x1b[?25h\x1b[?1049l")


def test_keys_that_are_interrupted_while_they_are_taken_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    kept = os.dup(0)
    try:
        os.dup2(theirs, 0)
        before = termios.tcgetattr(0)
        real = termios.tcsetattr

        def interrupted(fd: int, when: int, mode: list[object]) -> None:
            real(fd, when, mode)  # type: ignore[arg-type]
            if mode[3] != before[3]:
                raise KeyboardInterrupt

        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr("os.tcgetpgrp", lambda _fd: os.getpgrp())
        monkeypatch.setattr("termios.tcsetattr", interrupted)
        with pytest.raises(KeyboardInterrupt), Keyboard():
            raise AssertionError("it was not entered")
        assert termios.tcgetattr(0) == before
    finally:
        os.dup2(kept, 0)
        for fd in (kept, ours, theirs):
            os.close(fd)


READ_A_KEY = """\
from allready.live.watch.keyboard import Keyboard
with Keyboard() as keyboard:
    print("ready", flush=True)
    key = ""
    while not key:
        key = keyboard.key(timeout_s=0.2)
    print(f"key {key}", flush=True)
"""


def test_keys_are_read_from_a_terminal_of_another_session() -> None:
    """As of a process that `ip netns exec` or another session leader started: it has no controlling terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", READ_A_KEY], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.write(master, b"\r")
        assert process.stdout.readline() == "key enter\n"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(master)
        os.close(slave)
