"""What the beacon writes of this process."""

import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from allready.evidence.stacks.read import read_stacks
from allready.live.beacon.stacks import MAX_FRAMES, MAX_THREADS, all_stacks, can_read_stacks
from allready.model import ThreadStack
from tests.cases import cases
from tests.clock import Deadline

MAIN = threading.main_thread().ident or 0


@contextmanager
def threads(work: Callable[[threading.Event], object], number: int = 1, name: str = "") -> Iterator[list[int]]:
    """Threads that are in `work` until the end."""
    enough, are_there = threading.Event(), threading.Barrier(number + 1)

    def run() -> None:
        are_there.wait(20)
        work(enough)

    made = [threading.Thread(target=run, name=name or None, daemon=True) for _ in range(number)]
    for thread in made:
        thread.start()
    are_there.wait(20)
    try:
        yield [thread.ident or 0 for thread in made]
    finally:
        enough.set()
        for thread in made:
            thread.join(20)


def told_by(teller: Callable[[], bytes]) -> bytes:
    """What a thread of its own tells, as the beacon's does."""
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(teller()))
    thread.start()
    thread.join(20)
    return found[0]


def block_of(ident: int, function: str) -> bytes:
    """What is sent of one thread, as soon as it waits in this function; every line is read back."""
    end = Deadline(20)
    while True:
        text = told_by(lambda: all_stacks(MAIN, "/nowhere/"))
        block = next(part for part in text.split(b"\n\n") if f"0x{ident:016x}".encode() in part)
        if block.splitlines()[1].endswith(b" in wait") and f" in {function}\n".encode() in block:
            assert read_stacks(text, "x").source.num_unknown == 0
            return block
        assert not end.passed(), block


def waits(enough: threading.Event) -> None:
    enough.wait(20)


def deep(enough: threading.Event, depth: int = MAX_FRAMES + 50) -> None:
    if depth:
        deep(enough, depth - 1)
    else:
        enough.wait(20)


def test_all_threads_are_told_the_main_one_last_and_not_the_one_that_tells() -> None:
    with threads(waits, 2, "worker") as idents:
        text = told_by(lambda: all_stacks(MAIN, "/nowhere/"))
    (stack,) = read_stacks(text, "x").stacks
    assert [t.is_main for t in stack.threads].count(True) == 1
    assert stack.threads[-1].is_main
    assert any(f.function.startswith("test_all_threads_are_told") for f in stack.threads[-1].frames)
    assert all(f"0x{ident:016x} [worker]".encode() in text for ident in idents)
    assert b"in told_by" in text  # the main thread waits for the one that tells, whose own frames are not there
    assert b"all_stacks" not in text


def test_threads_that_begin_in_our_folder_are_left_out() -> None:
    with threads(waits, 1, "worker"):
        own = threading.__file__.rpartition("/")[0] + "/"  # every thread of `threading` begins there
        text = told_by(lambda: all_stacks(MAIN, own))
    assert b"worker" not in text
    assert b"MainThread" in text


def test_a_deep_stack_is_cut_at_its_outer_end() -> None:
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2000))
    with threads(deep) as (ident,):
        block = block_of(ident, "deep")
    assert block.count(b"in deep") in range(MAX_FRAMES - 10, MAX_FRAMES)
    assert block.endswith(b"\n  ...")


def test_too_many_threads_are_counted_and_the_main_one_is_there() -> None:
    with threads(waits, MAX_THREADS + 20):
        text = told_by(lambda: all_stacks(MAIN, "/nowhere/"))
    assert text.count(b"most recent call first") == MAX_THREADS + 1
    assert text.startswith(b"(")
    assert b" more threads)\n" in text.split(b"\n")[0] + b"\n"
    assert read_stacks(text, "x").stacks[0].threads[-1].is_main


@cases("name", ["two\nlines] (most recent call first):", "\udcff", "x" * 500, "训练"])
def test_odd_names_stay_on_one_line(name: str) -> None:
    source = "def f(enough):\n    enough.wait(20)\n"
    scope: dict[str, Callable[[threading.Event], object]] = {}
    exec(compile(source, "/job/od\nd\udcff.py", "exec"), scope)
    with threads(scope["f"], 1, name) as (ident,):
        block = block_of(ident, "f")
    lines = block.splitlines()
    assert all(line.startswith((b"Thread 0x", b'  File "')) for line in lines)
    assert b'File "/job/od?d' in block
    assert len(lines[0]) < 300


def test_no_frame_is_kept() -> None:
    """A frame that were kept would keep everything that the script has in its variables."""

    class Big:
        alive = 0

        def __init__(self) -> None:
            Big.alive += 1

        def __del__(self) -> None:
            Big.alive -= 1

    def holds(enough: threading.Event) -> None:
        big = Big()
        enough.wait(20)
        del big

    import gc

    gc.disable()
    try:
        with threads(holds):
            told_by(lambda: all_stacks(MAIN, "/nowhere/"))
        assert Big.alive == 0
        tracemalloc.start()
        for _ in range(20):
            all_stacks(MAIN, "/nowhere/")
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(200):
            all_stacks(MAIN, "/nowhere/")
        after, _ = tracemalloc.get_traced_memory()
        assert after - before < 20_000
    finally:
        tracemalloc.stop()
        gc.enable()


def test_while_others_run_their_stacks_are_told_again_and_again() -> None:
    def runs(enough: threading.Event) -> None:
        def down(depth: int) -> int:
            return depth and down(depth - 1)

        while not enough.is_set():
            down(50)

    with threads(runs, 3):
        for _ in range(200):
            assert all_stacks(MAIN, "/nowhere/")


def test_without_a_gil_nothing_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_read_stacks() is getattr(sys, "_is_gil_enabled", lambda: True)()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert not can_read_stacks()


class GroupMember:
    """Where torch keeps the group of all ranks."""

    WORLD = object()


@cases(
    ("function", "argument", "given", "group", "peer", "has_peer_group"),
    [
        ("recv", "src", 3, None, 3, False),
        ("recv", "src", 3, GroupMember.WORLD, 3, False),
        ("send", "dst", 0, "of two", 0, True),
        ("recv", "src", None, None, None, False),
        ("isend", "dst", 1, "of two", None, False),
    ],
)
def test_for_which_rank_a_send_or_receive_waits_is_read_back(
    function: str, argument: str, given: int | None, group: object, peer: int | None, has_peer_group: bool
) -> None:
    made: dict[str, Any] = {"GroupMember": GroupMember}
    source = f"def {function}(lock, {argument}, group):\n    lock.acquire()\n"
    exec(compile(source, "/site-packages/torch/distributed/distributed_c10d.py", "exec"), made)
    main = seen_in(made[function], function, given, group)
    assert (main.peer, main.has_peer_group) == (peer, has_peer_group)


class Number:
    """One of a script's own, as a tensor on a GPU is: to ask it may wait for the GPU, or raise."""

    asked: ClassVar[list[str]] = []

    @classmethod
    def all(cls) -> "list[Number]":
        """Of a group of two."""
        return [cls(), cls()]

    def __int__(self) -> int:
        self.asked.append("int")
        return 1


@cases(
    ("ranks", "name", "is_local", "makes"),
    [
        ([1, 3], "2", False, "1,3 name=2"),
        ([0, 1, 2, 3], "1", False, "all name=1"),
        (None, "1", False, "all name=1"),
        ([0, 1, 2], "6f1c" * 8, False, "0-2"),
        ([1, 3], "2", True, ""),
        (Number.all(), "2", False, ""),
        (iter(Number.all()), "2", False, ""),
    ],
)
def test_of_which_ranks_the_group_is_that_is_being_made_is_read_back(
    ranks: object, name: str, is_local: bool, makes: str
) -> None:
    made: dict[str, Any] = {}
    arguments = "lock, ranks, group_name, use_local_synchronization, global_world_size=4"
    source = f"def _new_group_with_tag({arguments}):\n    lock.acquire()\n"
    exec(compile(source, "/site-packages/torch/distributed/distributed_c10d.py", "exec"), made)
    main = seen_in(made["_new_group_with_tag"], "_new_group_with_tag", ranks, name, is_local)
    assert main.makes == makes
    assert not Number.asked


def seen_in(call: Callable[..., object], name: str, *given: object) -> ThreadStack:
    """The main thread's stack while it is in a call that waits for the lock that it is given first."""
    lock, found = threading.Lock(), list[bytes]()
    lock.acquire()

    def look() -> None:
        deadline = Deadline(20)
        while not deadline.passed() and f" in {name}\n".encode() not in b"".join(found[-1:]):
            found.append(all_stacks(MAIN, "-"))
        lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    call(lock, *given)
    thread.join(20)
    reading = read_stacks(found[-1], "stacks.txt")
    [main] = (t for s in reading.stacks for t in s.threads if t.is_main)
    return main
