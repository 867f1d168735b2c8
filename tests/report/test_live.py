import contextlib
import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest

from allready.report.live import LiveNarrator
from allready.text.ui import table
from tests.clock import Stopwatch

KEY = "report.culprit_node"  # any text with one value will do


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def piped(**options: object) -> tuple[LiveNarrator, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    return LiveNarrator(language="en", stream=stream, clock=clock, **options), stream, clock  # type: ignore[arg-type]


class Screen:
    """A pseudo-terminal and everything that was written to it."""

    def __init__(self, *, reading: bool = True) -> None:
        self.master, slave = pty.openpty()
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8", buffering=1)
        self.text = ""
        self.changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        if reading:
            self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 4096):
                with self.changed:
                    self.text += data.decode("utf-8", "replace")
                    self.changed.notify_all()

    def wait_for(self, text: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: text in self.text, timeout=10), self.text

    def close(self) -> None:
        """End the terminal; `text` is complete afterwards.  May be called again."""
        with contextlib.suppress(OSError):
            self.stream.close()
        if self._reader.ident is not None:
            self._reader.join(10)
        if self.master >= 0:
            with contextlib.suppress(OSError):
                os.close(self.master)
            self.master = -1


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    monkeypatch.setenv("TERM", "xterm")
    made = Screen()
    yield made
    made.close()


def test_a_pipe_gets_lines_with_the_elapsed_time() -> None:
    live, stream, clock = piped()
    clock.now = 2.0
    live.say(KEY, label=1)
    live.log(KEY, label=2)
    live.close()
    assert stream.getvalue() == "[  2.0 s] node 1\n[  2.0 s] node 2\n"


def test_an_unchanged_state_is_repeated_only_after_ten_seconds() -> None:
    live, stream, clock = piped()
    for tenth in range(211):
        clock.now = tenth / 10
        live.say(KEY, label=1)
    assert stream.getvalue().splitlines() == ["[  0.0 s] node 1", "[ 10.0 s] node 1", "[ 20.0 s] node 1"]


def test_a_state_that_only_counts_up_is_said_every_ten_seconds_and_its_last_value_is_not_lost() -> None:
    live, stream, clock = piped()
    for tenth in range(125):
        clock.now = tenth / 10
        live.say("live.elapsed", seconds=tenth)
    live.close()
    assert [line.split("] ")[1] for line in stream.getvalue().splitlines()] == ["[0 s]", "[100 s]", "[124 s]"]


def test_a_change_is_said_at_once() -> None:
    live, stream, clock = piped()
    for label in (1, 1, 2, 3):
        clock.now += 0.1
        live.say(KEY, label=label)
    assert [line.split("] ")[1] for line in stream.getvalue().splitlines()] == ["node 1", "node 2", "node 3"]


def test_quiet_says_nothing_and_starts_no_thread(screen: Screen) -> None:
    before = threading.active_count()
    live = LiveNarrator(language="en", stream=screen.stream, quiet=True)
    live.say(KEY, label=1)
    live.log(KEY, label=1)
    live.close()
    assert threading.active_count() == before
    assert screen.text == ""


def test_a_terminal_shows_one_changing_line_and_keeps_the_logged_ones(screen: Screen) -> None:
    with LiveNarrator(language="zh", stream=screen.stream) as live:
        live.say(KEY, label=1)
        screen.wait_for("节点 1")
        live.log(KEY, label=7)
        live.say(KEY, label=2)
        screen.wait_for("节点 2")
    live.close()
    assert not any(thread.name == "allready-live" for thread in threading.enumerate())
    screen.close()  # now everything that was written has been read
    # What is left on the screen: the logged line, and an empty one where the cursor stands.
    rows = [row.split("\x1b[K")[-1] for row in screen.text.split("\r\n")]
    assert len(rows) == 2
    assert rows[0].endswith("节点 7")
    assert rows[1] == ""
    assert "\x1b[?25l" not in screen.text


def test_the_line_goes_away_and_the_thread_ends_when_the_check_fails(screen: Screen) -> None:
    def fail() -> None:
        with LiveNarrator(language="en", stream=screen.stream) as live:
            live.say(KEY, label=1)
            screen.wait_for("node 1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not any(thread.name == "allready-live" for thread in threading.enumerate())
    screen.wait_for("\r\x1b[K")


@pytest.mark.jobs
def test_a_stopped_terminal_stops_neither_the_check_nor_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen(reading=False)
    live = LiveNarrator(language="en", stream=screen.stream)
    begin = Stopwatch()
    for number in range(20_000):
        live.log(KEY, label=number)
    live.close()
    assert begin.s < 10
    os.close(screen.master)
    screen.master = -1
    for stuck in (t for t in threading.enumerate() if t.name == "allready-live"):
        stuck.join(10)
        assert not stuck.is_alive()
    screen.close()


def test_a_stream_that_is_gone_is_no_error() -> None:
    live, stream, _ = piped()
    stream.close()
    live.say(KEY, label=1)
    live.log(KEY, label=1)
    live.close()


def test_a_strangers_name_cannot_steer_the_terminal() -> None:
    live, stream, _ = piped()
    live.log(KEY, label="\x1b]0;owned\x07\n\u202e")
    assert stream.getvalue() == "[  0.0 s] node \\x1b]0;owned\\x07\\n\\u202e\n"


def test_a_missing_text_does_not_end_the_check() -> None:
    live, stream, _ = piped()
    live.log("report.no_such_text", a=1)
    assert "report.no_such_text a=1" in stream.getvalue()


def test_a_pipe_does_not_pay_for_rich() -> None:
    code = (
        "import sys; from allready.report.live import LiveNarrator\n"
        "with LiveNarrator(language='en', stream=sys.stderr) as live: live.log('report.culprit_node', label=1)\n"
        "sys.exit(any(m.split('.')[0] in {'rich', 'jinja2', 'torch'} for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False).returncode == 0


def test_the_live_texts_are_the_same_in_both_languages() -> None:
    assert table("en", "live").keys() == table("zh", "live").keys()
