"""Processes as /proc shows them: this one, children that run, stop and end, and files that were made up."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.model import EndKind, ProcessState
from allready.model.process import FILE_LOCKS, SystemCall
from allready.proc import process
from allready.proc.kill import kill_all, reap, send_signal
from allready.proc.process import (
    ended_child,
    environ_of,
    has_handler,
    identify,
    is_running,
    main_thread_s,
    parse_command,
    parse_environ,
    parse_stat,
    read_regular,
    read_stat,
    socket_inodes,
    status_bits,
    status_field,
)
from allready.proc.syscalls import (
    file_lock_holder,
    limited_waits,
    other_calls,
    other_threads,
    parse_locks,
    parse_syscall,
    syscall_of,
)
from tests.clock import until

WAITS = [sys.executable, "-S", "-c", "input()"]


@contextmanager
def child(**environ: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, env={**os.environ, **environ}) as started:
        try:
            yield started
        finally:
            started.kill()


def test_names_with_brackets_and_blanks_do_not_confuse() -> None:
    line = "12 (a) b) (c) S 1 12 12 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 7 0 4242 1000 10 18446744073709551615"
    stat = parse_stat(12, line)
    assert stat is not None
    assert (stat.name, stat.state, stat.parent, stat.num_threads, stat.start_ticks) == (
        "a) b) (c",
        "sleeping",
        1,
        7,
        4242,
    )
    assert stat.cpu_s == 3.0
    assert parse_stat(12, "12 (a") is None
    assert parse_stat(12, "") is None


def test_calls_are_read_whatever_the_line_is() -> None:
    names = {0: "read", 23: "select", 202: "futex"}
    futex = SystemCall(name="futex")
    timed, shared = replace(futex, has_limit=True), replace(futex, is_shared=True)
    selects = SystemCall(name="select", has_descriptors=True)
    assert parse_syscall("0 0x7 0x1 0x2 0 0 0 0x7ff 0x7ff\n", names) == SystemCall(name="read", descriptor=7)
    assert parse_syscall("202 0x7f 0x0", names) == futex
    for operation in ("0x80", "0x189"):  # wait, and wait_bitset by the wall clock, both private
        assert parse_syscall(f"202 0x7f {operation} 0x0 0x7ffc 0x0 0xffffffff 0x7ff 0x7ff", names) == timed
        assert parse_syscall(f"202 0x7f {operation} 0x0 0x0 0x0 0xffffffff 0x7ff 0x7ff", names) == futex
    for operation in ("0x0", "0x109"):  # not private: other processes have the lock, too
        assert parse_syscall(f"202 0x7f {operation} 0x0 0x0 0x0 0xffffffff 0x7ff 0x7ff", names) == shared
        assert parse_syscall(f"202 0x7f {operation} 0x0 0x7ffc 0x0 0xffffffff 0x7ff 0x7ff", names) == timed
    assert parse_syscall("202 0x7f 0x85 0x1 0x1 0x7f 0x4000001 0x7ff 0x7ff", names) == futex  # wakes others
    assert parse_syscall("23 0x0 0x0 0x0 0x0 0x7ff 0x0 0x7ff 0x7ff", names) == SystemCall(name="select")  # a sleep
    assert parse_syscall("23 0x5 0x7ff 0x0 0x0 0x7ff 0x0 0x7ff 0x7ff", names) == selects
    assert parse_syscall("999 0x7f", names) == SystemCall(name="syscall 999")
    assert parse_syscall("running\n", names) == SystemCall(name="running")
    assert parse_syscall("-1 0x7ff 0x7ff", names) == SystemCall(name="page fault")
    assert parse_syscall("0 0xffffffffffffffff", names) == SystemCall(name="read")
    assert parse_syscall("", names) is None
    assert parse_syscall("x y", names) is None


def test_a_process_is_seen_running_stopped_and_gone() -> None:
    with child(NAME="a=b") as started:
        stat = read_stat(started.pid)
        assert stat is not None
        assert (stat.parent, stat.is_running) == (os.getpid(), True)
        # exec lets the parent go on a moment before the new environment is in its place
        assert until(lambda: environ_of(started.pid).get("NAME")) == "a=b"
        assert stat.age_s() < 60
        started.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, started.pid, os.WSTOPPED | os.WNOWAIT)
        stat = read_stat(started.pid)
        assert stat is not None
        assert stat.state is ProcessState.STOPPED
        assert not has_handler(started.pid, signal.SIGRTMIN + 7)
        assert ended_child(started.pid) is None
        started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert is_running(started.pid) is False
        end = ended_child(started.pid)
        assert end is not None
        assert (end.kind, end.signal, end.exit_code) == (EndKind.SIGNAL, "SIGKILL", None)
    assert read_stat(started.pid) is None
    assert environ_of(started.pid) == {}
    assert not has_handler(started.pid, signal.SIGINT)
    with pytest.raises(ChildProcessError):
        ended_child(started.pid)


def test_a_pid_that_was_reused_is_another_process() -> None:
    with child() as started:
        now = identify(started.pid)
        assert now is not None
        before = replace(now, start_ticks=now.start_ticks - 1)
        assert (is_running(now), is_running(before)) == (True, False)
        assert not send_signal(before, signal.SIGKILL)
        assert kill_all([before], timeout_s=1) == set()
        assert started.poll() is None
        assert kill_all([now], timeout_s=5) == set()
        reap(now)
        assert identify(started.pid) is None
        started.returncode = -signal.SIGKILL  # collected by `reap`


def test_own_sockets_are_found() -> None:
    import socket

    with socket.socket() as one:
        assert os.fstat(one.fileno()).st_ino in set(socket_inodes(os.getpid()))


def test_a_kernel_that_does_not_count_waiting_still_tells_cpu_time(tmp_path: Path) -> None:
    assert main_thread_s(os.getpid())[0]
    task = tmp_path / f"{os.getpid()}/task/{os.getpid()}"
    task.mkdir(parents=True)
    shutil.copyfile(f"/proc/self/task/{os.getpid()}/stat", task / "stat")
    cpu_s, queued_s = main_thread_s(os.getpid(), str(tmp_path))
    assert cpu_s
    assert queued_s is None


def test_fields_of_a_status() -> None:
    text = "Name:\tpython\nUid:\t1000\t1000\nSigCgt:\t0000000000000002\n"
    assert status_field(text, "Uid").split() == ["1000", "1000"]
    assert status_bits(text, "SigCgt") == 2
    assert status_field(text, "Sig") == ""
    assert status_bits(text, "Name") is None


def test_commands_and_environments() -> None:
    assert parse_command("python\0train.py\0--lr\0 1 \0", "python") == "python train.py --lr 1"
    assert parse_command("", "kworker/0\n") == "[kworker/0]"
    assert parse_command("\0", "") == ""
    assert parse_environ(b"A=1\0B=x=y\0broken\0=z\0") == {"A": "1", "B": "x=y", "": "z"}


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_stat(1, text)
    status_bits(text, "SigCgt")
    parse_syscall(text, {0: "read"})
    assert process.parse_command(text, text).strip() == process.parse_command(text, text)


def test_only_a_regular_file_is_read_and_only_so_much_of_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    assert read_regular(file, 100) == b"0123456789"
    assert read_regular(file, 4) == b"0123"
    assert read_regular(file, 4, end=True) == b"6789"
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
        for name in ("link", "zero", "fifo", "socket", ".", "none", "a\0b"):
            assert read_regular(tmp_path / name, 100) is None, name
    with file.open("r+b") as holes:
        holes.truncate(1 << 40)
    assert read_regular(file, 10) == b"0123456789"


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_who_holds_the_file_lock_that_a_process_waits_for_is_known(call: str, tmp_path: Path) -> None:
    path = tmp_path / "data.lock"
    text = f"import fcntl; f = open({str(path)!r}, 'w'); fcntl.{call}(f, fcntl.LOCK_EX)"
    with path.open("w") as file:
        getattr(fcntl, call)(file, fcntl.LOCK_EX)
        with subprocess.Popen([sys.executable, "-S", "-c", text]) as waits:
            try:
                assert until(lambda: file_lock_holder(waits.pid) == os.getpid())
                called, behind = syscall_of(waits.pid)
                assert called is not None
                assert (called.name in FILE_LOCKS, behind) == (True, str(path))
            finally:
                waits.kill()
        assert file_lock_holder(os.getpid()) is None


def test_a_holder_is_found_behind_any_number_of_locks(tmp_path: Path) -> None:
    """The kernel gives the table in parts: one read has its first 4 KiB."""
    text = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 1, int(sys.argv[2])); input()"
    path = tmp_path / "data.lock"
    with path.open("w") as file:
        for byte in range(0, 400, 2):
            fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
        waits = [
            subprocess.Popen([sys.executable, "-S", "-c", text, str(path), str(byte)], stdin=subprocess.PIPE)
            for byte in (0, 398)
        ]
        try:
            assert until(lambda: [file_lock_holder(w.pid) for w in waits] == [os.getpid()] * 2)
        finally:
            for process in waits:
                process.kill()
                process.communicate()


def test_waits_with_a_limit_are_known_by_what_a_stack_calls_their_thread() -> None:
    text = (
        "import select, threading\n"
        "timed = threading.Thread(target=threading.Event().wait, args=(60,), daemon=True)\n"
        "polls = threading.Thread(target=select.poll().poll, args=(60000,), daemon=True)\n"
        "other = threading.Thread(target=threading.Event().wait, daemon=True)\n"
        "for one in (timed, polls, other): one.start()\n"
        "print(timed.ident, polls.ident, other.ident, flush=True)\n"
        "threading.Event().wait()"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", text], stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            timed, polls, other = map(int, started.stdout.readline().split())
            limited = SystemCall(name="futex", has_limit=True)
            wanted = {f"0x{timed:016x}": limited, f"0x{polls:016x}": SystemCall(name="poll")}
            assert until(
                lambda: limited_waits(started.pid, other_threads(started.pid), (timed, polls, other)) == wanted
            )
            by_number = limited_waits(started.pid, other_threads(started.pid), ())
            assert sorted(map(repr, by_number.values())) == sorted(map(repr, wanted.values()))
            assert all(name.isdecimal() for name in by_number)
        finally:
            started.kill()


@pytest.mark.parametrize("shared", [False, True])
def test_a_lock_is_of_several_processes_where_its_memory_is(shared: bool) -> None:
    """Seen: `std::future` and the joining of a C++ thread wait for a futex that is not marked as private."""
    futex = 202 if os.uname().machine == "x86_64" else 98
    text = (
        "import ctypes, mmap, threading\n"
        f"memory = mmap.mmap(-1, 4096, mmap.MAP_{'SHARED' if shared else 'PRIVATE'})\n"
        "word = ctypes.c_int.from_buffer(memory)\n"
        f"wait = lambda: ctypes.CDLL(None).syscall({futex}, ctypes.byref(word), 0, 0, None)\n"
        "threading.Thread(target=wait, daemon=True).start()\n"
        "wait()"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", text]) as waits:
        try:
            call = SystemCall(name="futex", is_shared=shared)
            assert until(lambda: syscall_of(waits.pid)[0] == call)
            wanted = [call] if shared else []
            assert until(lambda: [*limited_waits(waits.pid, other_threads(waits.pid), ()).values()] == wanted)
        finally:
            waits.kill()


def test_locks_are_read_whatever_the_lines_are() -> None:
    text = (
        "1: POSIX  ADVISORY  WRITE 11 fe:00:7 0 EOF\n2: OFDLCK ADVISORY  WRITE -1 fe:00:8 0 EOF\n"
        "2: -> OFDLCK ADVISORY  WRITE 21 fe:00:8 0 EOF\n1: -> POSIX  ADVISORY  WRITE 12 fe:00:7 0 EOF\n"
        "1: -> POSIX  ADVISORY  WRITE 13 fe:00:7 0 EOF\n3: -> \n\nx\n4:"
    )
    assert [parse_locks(text, pid) for pid in (11, 12, 13, 21, 0)] == [None, 11, 11, None, None]


def calls(pid: int) -> tuple[str, ...]:
    return other_calls(pid, other_threads(pid).values())


def test_calls_of_other_threads_that_end_by_themselves_are_seen() -> None:
    text = (
        "import os, threading, time, socket\n"
        "one, two = socket.socketpair()\n"
        "for call in (lambda: time.sleep(60), lambda: one.recv(1), lambda: os.read(os.pipe()[0], 1),\n"
        "             threading.Event().wait): threading.Thread(target=call, daemon=True).start()\n"
        "threading.Event().wait()"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", text]) as started:
        try:
            assert until(lambda: calls(started.pid) == ("clock_nanosleep", "recvfrom")), calls(started.pid)
        finally:
            started.kill()
    assert calls(started.pid) == ()
