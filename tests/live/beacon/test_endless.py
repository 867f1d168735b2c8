"""A loop without end is known by its instructions, and none that has a way out is taken for one."""

import dis
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any, cast

from allready.evidence.stacks.meaning import describe
from allready.evidence.stacks.read import read_stacks
from allready.live.beacon.endless import is_endless
from allready.live.beacon.stacks import all_stacks
from tests.cases import cases
from tests.clock import Deadline


class _Out(BaseException):
    """How the test leaves a loop that has no way out of its own."""


def passes() -> None:
    while True:
        pass


def counts() -> None:
    number = 0
    while True:
        number += 1


def turns() -> None:
    number = 1
    while True:
        number = -number if number > 0 else 1 + number * 2


def nested(flag: bool = True) -> None:
    while True:
        for_ever = flag
        while for_ever is flag:
            for_ever = not for_ever


def beside_a_handler() -> None:
    try:
        sorted([])
    except ValueError:
        return
    while True:
        pass


def waits_for_a_flag() -> None:
    global _flag
    while not _flag:
        pass


def is_limited() -> None:
    number = 0
    while number < 10**12:
        number += 1


def walks() -> None:
    for _ in iter(int, 1):
        pass


def calls() -> None:
    while True:
        len(())


def breaks() -> None:
    number = 0
    while True:
        number += 1
        if number == 10**12:
            break


def ends_with_a_list(rows: list[int] | None = None) -> None:
    rows, at = rows or [0] * 10**3, 0
    while True:
        at = (at + 1) % 1000
        rows[at]


def catches_what_computing_raises() -> None:
    number = 1.0
    try:
        while True:
            number = number * 1.0 + 0.0
    except OverflowError:
        return


def yields() -> None:
    def endless() -> Any:
        while True:
            yield

    for _ in endless():
        pass


_flag = False


@cases(
    ("loop", "expected"),
    [
        (passes, True),
        (counts, True),
        (turns, True),
        (nested, True),
        (beside_a_handler, True),
        (waits_for_a_flag, False),
        (is_limited, False),
        (walks, False),
        (calls, False),
        (breaks, False),
        (ends_with_a_list, False),
        (catches_what_computing_raises, False),
        (yields, False),
    ],
)
def test_a_loop(loop: Callable[[], None], expected: bool) -> None:
    """Wherever in it the process is."""
    steps = list(dis.get_instructions(loop))
    back = next(step for step in steps if "BACKWARD" in step.opname)
    inside = [step.offset for step in steps if back.argval <= step.offset <= back.offset]
    found = {at: is_endless(cast("FrameType", SimpleNamespace(f_code=loop.__code__, f_lasti=at))) for at in inside}
    assert set(found.values()) == {expected}, found


def test_what_the_beacon_writes_of_a_main_thread_is_read_as_that() -> None:
    """By another thread, while the loop runs; the test is the signal that ends it."""
    found: list[bytes] = []
    main = threading.main_thread().ident or 0

    def stop(*_: object) -> None:
        raise _Out

    def look() -> None:
        end = Deadline(20)
        text = b""
        try:
            while b"in passes" not in text and not end.passed():
                text = all_stacks(main, "/nowhere/")
            found.append(text)
        finally:
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        passes()
    except _Out:
        pass
    finally:
        thread.join(20)
        signal.signal(signal.SIGUSR1, before)
    read = read_stacks(found[0], "x")
    assert read.source.num_unknown == 0
    (stack,) = read.stacks
    assert stack.threads[-1].is_endless
    activity = describe(stack)
    assert activity.site is not None
    assert (activity.kind, activity.site.function) == ("endless_loop", "passes")


def test_of_a_running_thread_it_is_known_from_outside() -> None:
    is_over = False

    def counted() -> None:
        number = 0
        while not is_over:
            number += 1

    thread = threading.Thread(target=counted)
    thread.start()
    try:
        frame = sys._current_frames()[thread.ident or 0]
        assert not is_endless(frame)
    finally:
        is_over = True
        thread.join()
