"""What ranks print: whole in their files, as lines on the terminal, and never in the job's way."""

import errno
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allready.launch import log_relay
from allready.launch.console_output import ConsoleOutput
from allready.launch.logs import (
    LONGEST_PIECE_BYTES,
    OUT,
    STDERR,
    STDOUT,
    Show,
    Splitter,
    Std,
    Terminal,
    prefixes,
    templated,
    torchrun_files,
)
from allready.launch.request import Note
from allready.launch.workers import WorkerGroup
from tests.clock import cpu_s, slowness, until
from tests.launch.processes import output, python, worker

pytestmark = pytest.mark.jobs

# -- bytes to lines


def split(*pieces: bytes) -> list[bytes]:
    splitter = Splitter()
    found = [line for piece in pieces for line in splitter.feed(piece, 0.0)]
    return found + splitter.tick(0.0, final=True)


def test_lines_come_out_as_they_went_in() -> None:
    assert split(b"a\nb\n\nc") == [b"a", b"b", b"", b"c"]
    assert split(b"a", b"b\n", b"c\n") == [b"ab", b"c"]


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\r", b"")), max_size=20))
def test_however_the_bytes_arrive_the_lines_are_the_same(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert split(*pieces) == split(whole)
    expected = whole.split(b"\n")
    assert split(whole) == (expected if expected[-1] else expected[:-1])


@given(st.binary(max_size=200))
def test_anything_at_all_is_taken(data: bytes) -> None:
    assert sum(map(len, split(data))) <= len(data)


def test_a_line_that_is_too_long_comes_in_pieces_and_whole() -> None:
    line = bytes(range(32, 127)) * 3000
    pieces = split(line[:100_000], line[100_000:] + b"\nend\n")
    assert b"".join(pieces[:-1]) == line
    assert max(map(len, pieces)) <= LONGEST_PIECE_BYTES
    assert pieces[-1] == b"end"


def test_windows_line_ends_are_line_ends() -> None:
    assert split(b"a\r\nb\r\n") == [b"a", b"b"]


def test_of_a_progress_bar_the_newest_state_is_shown_once_a_second() -> None:
    splitter = Splitter(hold_s=1.0)
    shown = []
    for step in range(100):  # ten seconds
        now = step * 0.1
        shown += splitter.feed(f"\r{step:3d}%|####".encode(), now)
        shown += splitter.tick(now)
    shown += splitter.feed(b"\r100%|####\ndone\n", 10.0)
    assert shown[-2:] == [b"100%|####", b"done"]
    assert 9 <= len(shown) - 2 <= 11
    assert all(line.endswith(b"%|####") for line in shown[:-2])


def test_a_bar_that_ends_its_states_with_a_carriage_return_is_understood_too() -> None:
    splitter = Splitter()
    assert splitter.feed(b" 1%\r 2%\r", 0.0) == []
    assert splitter.tick(1.5) == [b" 2%"]
    assert splitter.feed(b" 3%\r\n", 2.0) == [b" 3%"]


def test_a_line_without_an_end_is_shown_after_a_second_and_its_rest_later() -> None:
    splitter = Splitter()
    assert splitter.feed(b"loading ...", 5.0) == []
    assert splitter.tick(5.5) == []
    assert splitter.tick(6.1) == [b"loading ..."]
    assert not splitter.is_waiting
    assert splitter.feed(b" done\n", 7.0) == [b" done"]
    assert splitter.feed(b"x", 8.0) == []
    assert splitter.tick(9.5) == [b"x"]
    assert splitter.feed(b"\n", 10.0) == []  # its end alone is no line


# -- what is shown


def test_a_redirected_stream_is_shown_only_if_it_is_teed() -> None:
    show = Show(redirects={-1: Std.ALL}, tee={1: Std.ERR})
    assert show.streams(4, 0) == Std.NONE
    assert show.streams(5, 1) == Std.ERR
    assert Show().streams(0, 0) == Std.ALL
    assert Show(redirects={-1: Std.OUT}).streams(0, 0) == Std.ERR
    assert not Show().needs_split(0)
    assert show.needs_split(0)


def test_quiet_ranks_and_local_ranks_choose_who_is_shown() -> None:
    show = Show(quiet_ranks=frozenset({4}), local_ranks=frozenset({0, 1}))
    assert [bool(show.streams(4 + local, local)) for local in range(3)] == [False, True, False]


def test_files_lie_where_torchrun_would_put_them(tmp_path: Path) -> None:
    show = Show(redirects={0: Std.ALL}, tee={1: Std.ERR})
    assert torchrun_files(tmp_path, show, 0) == {
        STDOUT: tmp_path / "0" / "stdout.log",
        STDERR: tmp_path / "0" / "stderr.log",
    }
    assert torchrun_files(tmp_path, show, 1) == {STDERR: tmp_path / "1" / "stderr.log"}
    assert torchrun_files(tmp_path, show, 2) == {}


def test_prefixes_keep_columns_in_line() -> None:
    assert prefixes(0, [0, 1]) == {0: b"[rank0] ", 1: b"[rank1] "}
    template = "${role_name}:${rank}/${local_rank} $5 ${odd}|"
    assert templated(template, "trainer", {9: 1}) == {9: b"trainer:9/1 $5 ${odd}|"}
    assert templated("${hostname}> ", "", {0: 0}) == {0: f"{socket.gethostname()}> ".encode()}
    assert prefixes(3, [9, 10], num_nodes=4) == {9: b"[node3 rank9]  ", 10: b"[node3 rank10] "}


# -- the terminal


def make_terminal(fd: int, notes: list[Note] | None = None, streams: Std = Std.ALL) -> Terminal:
    on_problem = None if notes is None else notes.append
    return Terminal(fd, prefix=lambda r: b"[%d] " % r, streams=lambda _: streams, on_problem=on_problem)


def test_lines_are_written_with_their_prefix() -> None:
    reader, writer = os.pipe()
    terminal = make_terminal(writer)
    terminal.lines(1, OUT, [b"hello", b""])
    terminal.lines(2, STDERR, [b"\xff"])
    terminal.flush()
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"[1] hello\n[1] \n[2] \xff\n"


def test_only_the_chosen_stream_is_written() -> None:
    reader, writer = os.pipe()
    terminal = make_terminal(writer, streams=Std.ERR)
    terminal.lines(0, STDOUT, [b"no"])
    terminal.lines(0, STDERR, [b"yes"])
    terminal.flush()
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"[0] yes\n"


def test_many_lines_cost_the_launcher_little() -> None:
    """What ranks wrote faster than the launcher passes it on delays its end.  One by one: 60 ms."""
    target = os.open(os.devnull, os.O_WRONLY)
    terminal, splitter = make_terminal(target), Splitter()
    block = (b"x" * 199 + b"\n") * 1000

    def pass_on() -> None:
        for _ in range(50):
            terminal.lines(0, OUT, splitter.feed(block, 0.0))

    assert cpu_s(pass_on, enough_s=0.035) < 0.035
    os.close(target)


def test_a_closed_terminal_is_told_once_and_does_not_raise() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    notes: list[Note] = []
    terminal = make_terminal(writer, notes)
    for _ in range(3):
        terminal.lines(0, OUT, [b"x"])
        terminal.flush()
    os.close(writer)
    assert [n.key for n in notes] == ["workers.terminal_closed"]
    assert terminal.is_closed


def test_a_terminal_that_somebody_made_nonblocking_gets_everything() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    terminal = make_terminal(writer)
    got = bytearray()

    def drain() -> None:
        while data := os.read(reader, 65536):
            got.extend(data)

    thread = threading.Timer(0.1, drain)  # the pipe is full by then
    thread.start()
    for n in range(3000):
        terminal.lines(0, OUT, [b"%d" % n + b"x" * 100])
    terminal.flush()
    os.close(writer)
    thread.join(20)
    os.close(reader)
    assert got.count(b"\n") == 3000


# -- from real ranks


class Heard:
    """Lines of a group, by rank and stream."""

    def __init__(self, **more: object) -> None:
        self.lines: list[tuple[int, str, bytes]] = []
        self.notes: list[Note] = []
        self.group = WorkerGroup(
            on_lines=lambda r, s, texts: self.lines.extend((r, s, text) for text in texts),
            on_problem=self.notes.append,
            **more,  # type: ignore[arg-type]
        )

    def texts(self, rank: int = 0) -> list[bytes]:
        return [text for r, _, text in self.lines if r == rank]


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard()
    yield made
    made.group.close()


def test_stdout_and_stderr_are_in_one_file_in_their_order(tmp_path: Path, heard: Heard) -> None:
    code = """
        import sys
        for n in range(500):
            print(n, file=(sys.stdout, sys.stderr)[n % 2], flush=True)
    """
    heard.group.start([worker(tmp_path, python(code))])
    until(lambda: heard.group.poll())
    assert output(tmp_path) == b"".join(b"%d\n" % n for n in range(500))
    heard.group.stop(grace_s=1.0)
    heard.group.close()
    assert heard.texts() == [b"%d" % n for n in range(500)]


def test_bytes_that_are_no_text_arrive_as_written(tmp_path: Path, heard: Heard) -> None:
    blob = bytes(range(256)) * 40
    code = f"import os; os.write(1, {blob!r})"
    heard.group.start([worker(tmp_path, python(code))])
    until(lambda: heard.group.poll())
    assert output(tmp_path) == blob


def test_a_log_is_complete_when_the_end_of_its_rank_is_told(tmp_path: Path) -> None:
    sizes: list[int] = []
    group = WorkerGroup(on_end=lambda e: sizes.append(len(output(tmp_path, e.rank or 0))))
    code = "import os; os.write(1, b'x' * 300000); os.write(2, b'y' * 300000); os.kill(os.getpid(), 9)"
    group.start([worker(tmp_path, python(code), r) for r in range(4)])
    until(lambda: len(sizes) == 4)
    assert sizes == [600000] * 4
    group.close()


def test_split_streams_have_files_of_their_own_and_one_together(tmp_path: Path, heard: Heard) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    copies = {STDERR: tmp_path / "elsewhere" / "stderr.log"}
    heard.group.start([worker(tmp_path, python(code), split=True, copies=copies)])
    until(lambda: heard.group.poll())
    assert output(tmp_path, name="stdout.log") == b"out\n"
    assert copies[STDERR].read_bytes() == b"err\n"
    assert sorted(output(tmp_path).split()) == [b"err", b"out"]
    heard.group.stop(grace_s=1.0)
    heard.group.close()
    assert sorted(heard.lines) == [(0, STDERR, b"err"), (0, STDOUT, b"out")]


def test_lines_are_shown_while_the_rank_runs(tmp_path: Path, heard: Heard) -> None:
    heard.group.start([worker(tmp_path, python("import time; print('first'); time.sleep(600)"))])
    until(lambda: heard.texts() == [b"first"])


def test_output_of_an_earlier_attempt_is_kept_and_not_shown_again(tmp_path: Path, heard: Heard) -> None:
    for word in ("one", "two"):
        heard.group.start([worker(tmp_path, python(f"print('{word}')"))])
        until(lambda: heard.group.poll())
        heard.group.stop(grace_s=1.0)
        assert heard.group.drain(10.0)
    assert output(tmp_path) == b"one\ntwo\n"
    assert heard.texts() == [b"one", b"two"]


def test_a_log_that_somebody_empties_goes_on(tmp_path: Path, heard: Heard) -> None:
    code = """
        import os, sys, time
        print('a' * 100)
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)
        print('after'); time.sleep(600)
    """
    heard.group.start([worker(tmp_path, python(code, str(tmp_path / "go")))])
    until(lambda: heard.texts() == [b"a" * 100])
    os.truncate(tmp_path / "rank0" / "out.log", 0)
    (tmp_path / "go").touch()
    until(lambda: heard.texts()[-1] == b"after")
    assert output(tmp_path) == b"after\n"


def test_a_reader_that_takes_its_time_holds_no_rank_up(tmp_path: Path) -> None:
    gate = threading.Event()
    lines: list[bytes] = []

    def slow(_rank: int, _stream: str, texts: Sequence[bytes]) -> None:
        gate.wait(30)
        lines.extend(texts)

    group = WorkerGroup(on_lines=slow)
    group.start([worker(tmp_path, python("for n in range(300000): print(n)"))])
    until(lambda: group.poll(), 60.0)  # two million bytes, and the terminal has taken none
    assert lines == []
    gate.set()
    group.stop(grace_s=1.0)
    group.close()
    assert lines == [b"%d" % n for n in range(300000)]


def test_a_rank_that_prints_much_is_not_slowed_down(tmp_path: Path) -> None:
    """100 MB; against the same program writing to a pipe that another process empties."""
    code = "import os\nblock = (b'x' * 99 + b'\\n') * 640\nfor _ in range(1600): os.write(1, block)"
    begun = time.monotonic()
    with subprocess.Popen(python(code), stdout=subprocess.PIPE) as plain:
        assert plain.stdout is not None
        subprocess.run(["cat"], stdin=plain.stdout, stdout=subprocess.DEVNULL, check=True)
    plain_s = time.monotonic() - begun
    group = WorkerGroup()
    begun = time.monotonic()
    group.start([worker(tmp_path, python(code))])
    until(lambda: group.poll(), 60.0)
    ours_s = time.monotonic() - begun
    assert (tmp_path / "rank0" / "out.log").stat().st_size == 64000 * 1600
    group.close()
    assert ours_s < 10 * plain_s + 1.0 * slowness(), (ours_s, plain_s)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    mounted = (
        mounted
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=False, capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("no small disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stops_nothing_and_is_told_once(small_disk: Path, heard: Heard) -> None:
    code = """
        import os, sys, time
        for n in range(20000): print(n, '.' * 40)
        print('full')
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)
        print('room again'); print('end')
    """
    go = small_disk.parent / "go"
    heard.group.start([worker(small_disk, python(code, str(go)))])
    until(lambda: b"full" in heard.texts(), what=lambda: "the terminal shows what the disk does not take")
    (small_disk / "rank0" / "out.log").write_bytes(b"")
    go.touch()
    until(lambda: heard.group.poll())
    assert heard.group.poll()[0].is_success
    assert [n.key for n in heard.notes] == ["workers.log_not_written"]
    assert "No space left" in heard.notes[0].values["why"]
    text = output(small_disk)
    assert b"bytes are missing here: No space left on device]\nroom again\nend\n" in text


def test_a_file_that_can_be_written_again_goes_on_with_a_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it did not take goes to the terminal, with the place where it belongs."""
    with (tmp_path / "out.log").open("wb", buffering=0) as file:
        stream = log_relay.Stream(b"key1", -1, [file.fileno()])
        assert stream.write(b"one\n") == ([], 0)
        with monkeypatch.context() as full:
            full.setattr(log_relay, "_write_all", lambda _file, data: (len(data), errno.ENOSPC))
            assert stream.write(b"two\nth") == ([(4, b"two\nth")], errno.ENOSPC)
            assert stream.write(b"re") == ([(4, b"re")], 0)
        assert stream.write(b"e") == ([(4, b"e")], 0)  # there is room again, in the middle of a line
        assert stream.write(b"\nfour\n") == ([(4, b"\n")], 0)
    note = b"\n[allready: 10 bytes are missing here: No space left on device]\n"
    assert (tmp_path / "out.log").read_bytes() == b"one\n" + note + b"four\n"


def test_what_is_in_no_file_stands_in_its_place_on_the_terminal(tmp_path: Path) -> None:
    """Seen with a full disk: the file went on before its reader knew of what was missing, and lines were torn."""
    seen: list[bytes] = []
    console = ConsoleOutput(on_lines=lambda _r, _s, lines: seen.extend(lines), on_batch=None, on_problem=None)
    path = tmp_path / "out.log"
    path.touch()
    console.add(1, 0, "out", path)
    path.write_bytes(b"one\nthree\n")
    console.grown({1: 4, 9: 4})
    while console._read_dirty():
        pass
    assert seen == [b"one"]
    console.unsaved(1, 4, b"two\n")
    console.grown({1: 10})
    while console._read_dirty():
        pass
    assert seen == [b"one", b"two", b"three"]
    console.drop(1)
