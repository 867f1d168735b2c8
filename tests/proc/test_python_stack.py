"""Stacks read from the memory of another process, which sleeps in native code, is stopped, or is no Python at all."""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from allready.proc import python_stack
from allready.proc.python_stack import InterpreterLayout, RawFrame, line_of

PLACE = """
import ctypes, os, sys
get = ctypes.pythonapi.PyThreadState_Get
get.restype = ctypes.c_void_p
print(get(), id(type), flush=True)
"""


@contextmanager
def process(text: str) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A Python that says where its main thread's state and `type` are, and then runs `text`."""
    words = [sys.executable, "-c", PLACE + textwrap.dedent(text)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    try:
        assert child.stdout is not None
        state, type_address = map(int, child.stdout.readline().split())
        yield child, state, type_address
    finally:
        child.kill()
        child.communicate()


def layout() -> InterpreterLayout:
    found = python_stack.learn()
    assert found is not None
    return found


def until_in(pid: int, state: int, type_address: int, function: str) -> list[python_stack.RawThread]:
    deadline = time.monotonic() + 30
    while True:
        try:
            stacks = python_stack.stacks(pid, state, layout(), type_address=type_address)
            if any(f.function == function for stack in stacks for f in stack.frames):
                return stacks
        except python_stack.StackUnreadable:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_frames_of_a_process_that_sleeps_in_native_code_and_keeps_the_gil() -> None:
    text = """
        def 内层():
            x = 1
            ctypes.PyDLL(None).usleep(600_000_000)
        def outer(): 内层()
        outer()
        """
    with process(text) as (child, state, type_address):
        (stack,) = until_in(child.pid, state, type_address, "内层")
        assert [(f.function, f.line) for f in stack.frames] == [("内层", 9), ("outer", 10), ("<module>", 11)]
        assert {f.file for f in stack.frames} == {"<string>"}
        assert stack.native_id == child.pid
        assert not stack.is_cut


def test_a_stopped_process_with_several_threads() -> None:
    text = """
        import threading, time
        def helps(): time.sleep(600)
        def main_waits(): time.sleep(600)
        threading.Thread(target=helps, daemon=True).start()
        main_waits()
        """
    with process(text) as (child, state, type_address):
        until_in(child.pid, state, type_address, "main_waits")
        child.send_signal(signal.SIGSTOP)
        main, helper = python_stack.stacks(child.pid, state, layout(), type_address=type_address)
        assert main.frames[0] == RawFrame("<string>", 9, "main_waits")
        assert helper.frames[0] == RawFrame("<string>", 8, "helps")


def test_deep_recursion_is_cut() -> None:
    text = """
        import time
        def down(n):
            if n: down(n - 1)
            else: time.sleep(600)
        down(400)
        """
    with process(text) as (child, state, type_address):
        (stack,) = until_in(child.pid, state, type_address, "down")
        deadline = time.monotonic() + 30
        while not stack.is_cut:
            assert time.monotonic() < deadline
            (stack,) = python_stack.stacks(child.pid, state, layout(), type_address=type_address)
        assert len(stack.frames) == python_stack.MAX_FRAMES


@pytest.mark.parametrize("shift", [8, 4096, 1 << 40])
def test_a_wrong_address_is_no_stack(shift: int) -> None:
    with process("import time; time.sleep(600)") as (child, state, type_address):
        until_in(child.pid, state, type_address, "<module>")
        try:
            found = python_stack.stacks(child.pid, state + shift, layout(), type_address=type_address)
        except python_stack.StackUnreadable:
            return
        assert not found[0].frames


def test_another_type_address_gives_no_frames() -> None:
    with process("import time; time.sleep(600)") as (child, state, type_address):
        until_in(child.pid, state, type_address, "<module>")
        (stack,) = python_stack.stacks(child.pid, state, layout(), type_address=type_address + 64)
        assert not stack.frames


def test_who_is_gone_is_unreadable() -> None:
    with process("") as (child, state, type_address):
        child.wait()
        with pytest.raises(python_stack.StackUnreadable):
            python_stack.stacks(child.pid, state, layout(), type_address=type_address)


@pytest.mark.jobs
def test_a_process_that_runs_is_read_or_refused() -> None:
    """What moves may be unreadable or torn; it never raises anything else, and never hangs."""
    text = """
        def f(n): return n if n < 2 else f(n - 1) + f(n - 2)
        while True: f(15)
        """
    with process(text) as (child, state, type_address):
        num_read = 0
        for _ in range(300):
            try:
                python_stack.stacks(child.pid, state, layout(), type_address=type_address)
                num_read += 1
            except python_stack.StackUnreadable:
                continue
        assert num_read
        assert child.poll() is None


def test_the_layout_is_learned_in_any_thread() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(python_stack.learn.__wrapped__()))
    thread.start()
    thread.join()
    assert found == [python_stack.learn()]
    assert found[0] is not None


@pytest.mark.jobs
def test_lines_are_those_of_python() -> None:
    """Of every instruction of a module of the standard library."""
    import argparse

    with open(argparse.__file__, encoding="utf-8") as file:  # noqa: PTH123
        todo = [compile(file.read(), "argparse.py", "exec")]
    num = 0
    while todo:
        code = todo.pop()
        todo += [part for part in code.co_consts if isinstance(part, type(code))]
        for start, end, line in code.co_lines():
            for at in range(start, end, 2):
                assert line_of(code.co_linetable, code.co_firstlineno, at) == line, (code.co_name, at)
                num += 1
    assert num > 10_000
