"""A loop without end is known by its instructions, and none that has a way out is taken for one."""

import _thread
import dis
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from allready.evidence.stacks.meaning import describe
from allready.evidence.stacks.read import read_stacks
from allready.live.beacon import endless
from allready.live.beacon.endless import is_endless
from allready.live.beacon.stacks import all_stacks
from allready.runtime.stopping import StopSignals
from tests.cases import cases
from tests.clock import Deadline


@pytest.fixture(autouse=True)
def _without_the_time_limit_of_the_test() -> Iterator[None]:
    """Which is a timer with a handler, or a timer's thread."""
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, before)
    signal.setitimer(signal.ITIMER_REAL, left_s)


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
    while not _never:
        pass


def waits_for_a_callback() -> None:
    while not _flag:
        pass


def waits_for_a_hook() -> None:
    while not _hooked:
        pass


def hooks(at_last: Callable[[], None]) -> Callable[[], None]:
    return lambda: at_last()


class Hooks:
    @staticmethod
    @hooks
    def hook() -> None:
        setattr(sys.modules[__name__], "_hooked", True)  # noqa: B010


def turns_the_flag() -> None:
    global _flag
    while not _flag:
        _flag = not _flag


def calls_until_a_flag_is_set() -> None:
    while not _never:
        _nothing()


def asks(flag: Any = True, number: Any = 0) -> None:
    while flag:
        number = number + number


def asks_of_two(flag: Any = True, number: Any = 0, step: Any = 10) -> None:
    while flag is not None and number < step:
        for_ever = number
        number = for_ever


def forgets_to_count(number: Any = 0) -> None:
    while number < 7:
        pass


def breaks_on_a_flag(flag: Any = False) -> None:
    while True:
        if flag:
            break


def asks_what_it_changes(flag: Any = True, number: Any = 0) -> None:
    while flag:
        number += 1
        flag = number != 10**12


def asks_what_may_change(flag: Any = True) -> Any:
    def change() -> None:
        nonlocal flag
        flag = False

    while flag:
        pass
    return change


def asks_in_two_ways(flag: Any = True, number: Any = 0) -> None:
    while flag if number else number == 0:
        pass


def is_limited() -> None:
    number = 0
    while number < 10**12:
        number += 1


def walks() -> None:
    for _ in iter(int, 1):
        pass


def looks_at_the_clock(number: Any = 1) -> None:
    while True:
        time.monotonic()
        number = number is monotonic()


def measures(number: Any = 1, step: Any = ()) -> None:
    while True:
        number = len(step) + number


def calls_what_is_given(measure: Any = max) -> None:
    while True:
        measure(())


def sleeps() -> None:
    while True:
        time.sleep(3600)


def appends(step: Any = ()) -> None:
    while True:
        step.append(1)


def measures_a_result(step: Any = ()) -> None:
    while True:
        len(step.copy())


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


def adds_one(number: Any, step: int = 1) -> Any:
    more = number + step
    return more if more > 0 else step


def does_nothing() -> None:
    time.monotonic()


def goes_deeper(number: Any) -> Any:
    return adds_one(adds_one(number), number * 2)


def calls_itself(number: Any) -> Any:
    return calls_itself(number) if number else number


def may_be_unbound(number: Any) -> Any:
    if number:
        more = number
    return more


def takes_anything(*numbers: Any) -> Any:
    return numbers


def looks_into(number: Any) -> Any:
    return _rows[number]


def says(number: Any) -> None:
    sys.stdout.write(str(number))


def gives_a_word(number: Any) -> Any:
    return "a" if number else "b"


_rows: list[Any] = []


def calls_functions(number: Any = 1) -> None:
    while True:
        number = adds_one(number)
        does_nothing()
        adds_one(number, goes_deeper(number) + 1)


def calls_what_computes(number: Any = 1, inner: Any = None) -> None:
    while True:
        number = inner(number)


def names_itself(number: Any = 1) -> None:
    other: Any = None
    while True:
        other = number
        number = other


def adds(number: Any = 1, step: Any = 1) -> None:
    while True:
        number = number + step


def multiplies(number: Any = 1, step: Any = 1) -> None:
    while True:
        number = number * step


def multiplies_by_a_constant(number: Any = 1, step: Any = 1) -> None:
    while True:
        number = step + 3 * number
        number *= 7


def squares(number: Any) -> Any:
    return number * number


def compares(number: Any = 1, step: Any = 1) -> None:
    while True:
        number = number if number == step else step


def divides(number: int = 1, step: int = 7) -> None:
    while True:
        number = number % step


def shifts(number: int = 1, step: int = 7) -> None:
    while True:
        number = number >> step


_flag = _hooked = _never = False


def stands(loop: Callable[..., None], **values: object) -> list[FrameType]:
    """Frames as of one that is inside of the loop, at each of its instructions."""
    steps = list(dis.get_instructions(loop))
    back = next(step for step in steps if "BACKWARD" in step.opname)
    inside = [step.offset for step in steps if back.argval <= step.offset <= back.offset]
    known = {"number": 1, "flag": True, "for_ever": True, **values}
    place = {"f_code": loop.__code__, "f_locals": known, "f_globals": globals()}
    return [cast("FrameType", SimpleNamespace(f_lasti=at, **place)) for at in inside]


class Whole(int):
    """What counts as a number, and may do anything where it is added to."""


@cases(
    ("loop", "expected"),
    [
        (passes, True),
        (counts, True),
        (turns, True),
        (nested, True),
        (beside_a_handler, True),
        (asks, True),
        (forgets_to_count, True),
        (asks_what_it_changes, False),
        (asks_what_may_change, False),
        (is_limited, False),
        (walks, False),
        (looks_at_the_clock, True),
        (calls, True),
        (calls_functions, True),
        (sleeps, False),  # another thread may have the work
        (breaks, False),
        (ends_with_a_list, False),
        (catches_what_computing_raises, False),
        (yields, False),
    ],
)
def test_a_loop(loop: Callable[[], None], expected: bool) -> None:
    """Wherever in it the process is."""
    assert {is_endless(frame) for frame in stands(loop)} == {expected}


@cases(
    ("inner", "number", "expected"),
    [
        (adds_one, 1, True),
        (adds_one, 0.5, False),  # and a whole number: see above
        (adds_one, "a", False),
        (goes_deeper, 1, True),
        (does_nothing, 1, False),  # takes no argument: raises
        (says, 1, False),
        (calls_itself, 1, False),  # until there is no room
        (may_be_unbound, 1, False),
        (takes_anything, 1, False),
        (looks_into, 1, False),
        (gives_a_word, 1, True),
        (squares, 1.0, True),
        (squares, 3, False),
        (breaks, 1, False),
        (len, 1, False),
        (Whole, 1, False),
    ],
)
def test_what_a_loop_calls_may_be_a_function_that_only_computes(inner: Any, number: object, expected: bool) -> None:
    assert {is_endless(frame) for frame in stands(calls_what_computes, inner=inner, number=number)} == {expected}


def test_so_it_is_where_the_process_is_inside_of_that_function() -> None:
    (caller, *_) = stands(calls_functions)
    for function, is_called in ((goes_deeper, True), (adds_one, True), (gives_a_word, False), (looks_into, False)):
        for step in dis.get_instructions(function):
            inside = SimpleNamespace(
                f_code=function.__code__, f_lasti=step.offset, f_locals={}, f_globals=globals(), f_back=caller
            )
            assert is_endless(cast("FrameType", inside)) == is_called


@cases(
    ("loop", "values", "expected"),
    [
        (adds, {"number": 1, "step": True}, True),
        (adds, {"number": 1.0, "step": 0.5}, True),
        (adds, {"number": 1, "step": 0.5}, False),  # one that is too large is no float
        (adds, {"number": Whole(1), "step": 1}, False),
        (adds, {"number": 1, "step": Whole(1)}, False),
        (adds, {"number": "a", "step": "b"}, False),  # until no memory is left
        (adds, {"number": [], "step": 1}, False),
        (adds, {"number": 1}, False),  # unbound
        (
            multiplies,
            {"number": 3, "step": 5},
            False,
        ),  # a number of twice the digits each time: until no memory is left
        (multiplies, {"number": 3.0, "step": 5.0}, True),
        (multiplies_by_a_constant, {"number": 3, "step": 5}, True),
        (asks, {"flag": "yes", "number": 0}, True),
        (asks, {"flag": True, "number": 0.5}, True),  # the flag is no part of the sum
        (asks, {"flag": False, "number": 0}, False),
        (asks, {"flag": None, "number": 0}, False),
        (asks, {"flag": [1], "number": 0}, False),  # something else may empty it
        (asks, {"flag": Whole(1), "number": 0}, False),
        (asks_of_two, {"flag": 1, "number": 2}, False),  # the second one: `number` is changed
        (forgets_to_count, {"number": 1}, True),
        (forgets_to_count, {"number": 1.5}, True),
        (forgets_to_count, {"number": 8}, False),
        (forgets_to_count, {"number": "a"}, False),  # raises
        (forgets_to_count, {"number": Whole(1)}, False),
        (compares, {"number": "a", "step": None}, True),
        (compares, {"number": "a", "step": Whole(1)}, False),
        (names_itself, {"number": None, "other": "a"}, True),
        (names_itself, {"number": None, "other": object()}, False),
        (nested, {"flag": Whole(1)}, False),  # whether it is true is asked of it
        (divides, {"number": 1, "step": 7}, False),
        (shifts, {"number": 1, "step": 7}, False),
        (looks_at_the_clock, {"number": object()}, False),  # whose end may run code
        (measures, {"number": 1, "step": [Whole(1)]}, True),
        (measures, {"number": 1, "step": type("Rows", (list,), {})()}, False),
        (measures, {"number": 1, "step": 7}, False),  # raises
        (calls_what_is_given, {"measure": max}, False),
        (calls_what_is_given, {"measure": len}, True),
        (appends, {"step": []}, False),
        (measures_a_result, {"step": []}, False),
    ],
)
def test_operators_are_pythons_own(loop: Callable[..., None], values: dict[str, object], expected: bool) -> None:
    """A class may raise in `__add__` or `__bool__`, and a division by zero ends a loop as well."""
    assert {is_endless(frame) for frame in stands(loop, **values)} == {expected}


@cases(
    ("loop", "values", "expected"),
    [
        (breaks_on_a_flag, {"flag": False}, True),
        (breaks_on_a_flag, {"flag": True}, False),
        (asks_in_two_ways, {"flag": True, "number": 1}, True),
        (asks_in_two_ways, {"flag": False, "number": 1}, False),
        (asks_in_two_ways, {"flag": False, "number": 0}, True),
        (asks_in_two_ways, {"flag": True, "number": 0.5}, True),
        (asks_in_two_ways, {"flag": 0, "number": Whole(1)}, False),
    ],
)
def test_a_way_out_that_is_never_taken_is_none(
    loop: Callable[..., None], values: dict[str, object], expected: bool
) -> None:
    assert is_endless(stands(loop, **values)[0]) == expected


def test_names_of_a_module_are_those_of_the_code_that_is_run() -> None:
    """As of a program that was generated, and is run by `exec`."""
    code = compile("while True:\n    number = number * 31 + step", "made", "exec")
    at = next(s.offset for s in dis.get_instructions(code) if "BACKWARD" in s.opname)
    for step, expected in ((7, True), (Whole(7), False)):
        place = {"f_code": code, "f_lasti": at, "f_locals": {"number": 1}, "f_globals": {"step": step}}
        assert is_endless(cast("FrameType", SimpleNamespace(**place))) == expected


def reads_nanoseconds() -> None:
    while True:
        time.time_ns()


def _raises() -> None:
    raise InterruptedError


def _nothing(*_: object) -> None:
    return


@contextmanager
def handled(number: int) -> Iterator[None]:
    before = signal.signal(number, _nothing)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def timed(which: int) -> Iterator[None]:
    signal.setitimer(which, 3600.0)
    try:
        yield
    finally:
        signal.setitimer(which, 0.0)


@contextmanager
def timer() -> Iterator[None]:
    thread = threading.Timer(3600.0, _thread.interrupt_main)
    thread.start()
    try:
        yield
    finally:
        thread.cancel()
        thread.join(20)


SENT = ("ALRM", "USR1", "USR2", "VTALRM", "PROF", "CHLD", "TERM")
ENDS = [
    *((handled, getattr(signal, f"SIG{name}")) for name in SENT),
    *((timed, which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)),
]


@cases(("begin", "what"), ENDS)
def test_a_loop_may_end_by_a_signal(begin: Callable[[int], Any], what: int) -> None:
    """Seen: a grader of generated code gives it twelve seconds by SIGALRM, and was accused after two."""
    with begin(what):
        assert not any(map(is_endless, stands(passes)))
    assert all(map(is_endless, stands(passes)))


@cases(
    ("is_alone", "loop", "expected"),
    [
        (True, waits_for_a_flag, True),
        (False, waits_for_a_flag, False),
        (True, waits_for_a_callback, False),  # a thread of C's may run `turns_the_flag`
        (True, waits_for_a_hook, False),
        (True, turns_the_flag, False),
        (True, calls_until_a_flag_is_set, False),
    ],
)
def test_a_flag_of_the_module_stays_where_nothing_may_change_it(
    is_alone: bool, loop: Callable[[], None], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endless, "_is_alone", lambda _: is_alone)
    assert {is_endless(frame) for frame in stands(loop)} == {expected}


FLAG = """
import os, sys, threading, time
from allready.live.beacon.endless import is_endless

main, flag = threading.get_ident(), True

def look():
    time.sleep(0.1)
    print(is_endless(sys._current_frames()[main]), flush=True)
    os._exit(0)

if {has_other}:
    threading.Thread(target=time.sleep, args=(9.0,), daemon=True).start()
    threading.Thread(target=lambda: time.sleep(9.0), daemon=True).start()
threading.Thread(target=look, daemon=True).start()
while flag:
    pass
"""


@cases(("has_other", "expected"), [(False, "True"), (True, "False")])
def test_only_threads_of_the_library_leave_a_flag_of_the_module_alone(has_other: bool, expected: str) -> None:
    command = [sys.executable, "-c", FLAG.format(has_other=has_other)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout.strip() == expected, found.stderr


def test_a_loop_may_end_by_a_timers_thread() -> None:
    with timer():
        assert not any(map(is_endless, stands(passes)))
    assert all(map(is_endless, stands(passes)))


def test_a_loop_may_end_by_a_function_that_traces_it() -> None:
    for trace, expected in ((_nothing, False), (None, True)):
        (frame, *_) = stands(passes)
        frame.f_trace = trace
        assert is_endless(frame) == expected


@pytest.mark.parametrize("name", ["monotonic", "time_ns"])
def test_a_clock_that_was_put_in_the_place_of_pythons_may_end_a_loop(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, name, _raises)
    clocked = stands(looks_at_the_clock) if name == "monotonic" else stands(reads_nanoseconds)
    assert not any(map(is_endless, clocked))
    monkeypatch.undo()
    assert all(map(is_endless, clocked))


def test_the_runtime_librarys_handlers_end_no_loop() -> None:
    with StopSignals():
        assert all(map(is_endless, stands(passes)))


@cases(("loop", "where"), [(passes, "passes"), (asks, "asks"), (calls_functions, "")])
def test_what_the_beacon_writes_of_a_main_thread_is_read_as_that(loop: Callable[[], None], where: str) -> None:
    """By another thread, while the loop runs; the test is the Ctrl+C that ends it."""
    found: list[bytes] = []
    main = threading.main_thread().ident or 0

    def look() -> None:
        end = Deadline(20)
        text = b""
        try:
            while f"in {loop.__name__}".encode() not in text and not end.passed():
                text = all_stacks(main, "/nowhere/")
            found.append(text)
        finally:
            _thread.interrupt_main()

    thread = threading.Thread(target=look)
    try:
        thread.start()
        loop()
    except KeyboardInterrupt:
        pass
    finally:
        thread.join(20)
    read = read_stacks(found[0], "x")
    assert read.source.num_unknown == 0
    (stack,) = read.stacks
    assert stack.threads[-1].is_endless
    activity = describe(stack)
    assert activity.site is not None
    assert activity.kind == "endless_loop"
    assert not where or activity.site.function == where


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
