"""In whose handler a rank's main thread is."""

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from allready.live.beacon.handlers import handled, raised_by
from allready.live.beacon.payload import encode
from allready.live.beacon.state import decode
from tests.cases import cases

FOUND: list[str] = []


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    FOUND.clear()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def look() -> None:
    """As the beacon does, of a thread that is some calls below."""
    FOUND.append(handled(sys._getframe()))


def save(_number: int, _frame: object) -> None:
    look()


class Trainer:
    def leave(self, _number: int, _frame: object) -> None:
        look()


class Compose:
    """As trainers that keep the script's own handler have it."""

    def __call__(self, _number: int, _frame: object) -> None:
        look()


def kept(*_: object) -> None:
    look()


def save_now_and_then(signum: int | None = None, frame: object = None) -> None:
    look()
    if signum is None:
        raise OSError(f"quota exceeded {frame}")


def logged(called: Callable[..., None]) -> Callable[..., None]:
    """As decorators are written: what they make of all functions has one code."""

    @functools.wraps(called)
    def wrapped(*args: Any, **named: Any) -> None:
        called(*args, **named)

    return wrapped


@logged
def leave(*_: object) -> None:
    look()


@logged
def train() -> None:
    look()


class Proxy:
    """An object of the job that fails where it is asked for what it has not."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self, *_: object) -> None:
        look()


def with_path(_path: str, _number: int, _frame: object) -> None:
    look()


def test_a_function_a_method_a_partial_and_an_object_are_handlers() -> None:
    handlers: dict[int, Callable[..., Any]] = {
        signal.SIGTERM: save, signal.SIGINT: Trainer().leave, signal.SIGHUP: functools.partial(with_path, "ckpt")
    }  # fmt: skip
    for number, handler in handlers.items():
        signal.signal(number, handler)
        signal.raise_signal(number)
    signal.signal(signal.SIGTERM, Compose())
    signal.raise_signal(signal.SIGTERM)
    assert FOUND == ["SIGTERM", "SIGINT", "SIGHUP", "SIGTERM"]


def test_outside_of_a_handler_and_where_none_is_set_there_is_none() -> None:
    signal.signal(signal.SIGTERM, save)
    look()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    save(0, None)
    assert FOUND == ["", ""]
    assert handled(None) == ""


@cases("handler", [save, kept, leave])
def test_a_handler_that_the_job_calls_by_itself_is_none(handler: Callable[..., None]) -> None:
    """As to save now and then: what it raises then is no effect of a signal."""
    signal.signal(signal.SIGTERM, handler)
    handler(0, None)
    signal.raise_signal(signal.SIGTERM)
    handler(0, None)
    assert FOUND[-3:] == ["", "SIGTERM", ""]


def test_what_a_periodic_save_raises_came_of_no_signal() -> None:
    signal.signal(signal.SIGTERM, save_now_and_then)
    with pytest.raises(OSError, match="quota"):
        save_now_and_then()
    signal.raise_signal(signal.SIGTERM)
    assert FOUND == ["", "SIGTERM"]


def test_the_other_functions_of_a_decorator_are_no_handlers() -> None:
    signal.signal(signal.SIGTERM, leave)
    train()
    signal.raise_signal(signal.SIGTERM)
    assert FOUND == ["", "SIGTERM"]


def test_an_object_that_raises_where_it_is_looked_at_spoils_no_sample() -> None:
    signal.signal(signal.SIGHUP, Proxy())
    signal.signal(signal.SIGTERM, save)
    signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGTERM)
    assert FOUND == ["", "SIGTERM"]


def leave_at_once(_number: int, _frame: object) -> None:
    sys.exit(0)


def clean_up_and_leave() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        sys.exit(3)


def fail() -> None:
    raise OSError("quota exceeded")


@cases(
    ("number", "handler", "leave", "expected"),
    [
        (signal.SIGINT, signal.default_int_handler, None, "SIGINT"),
        (signal.SIGINT, signal.default_int_handler, clean_up_and_leave, "SIGINT"),
        (signal.SIGTERM, leave_at_once, None, "SIGTERM"),
        (signal.SIGTERM, signal.default_int_handler, None, "SIGINT"),  # what Python cannot tell
        (signal.SIGTERM, leave_at_once, fail, ""),
        (signal.SIGINT, signal.default_int_handler, fail, ""),
        (signal.SIGTERM, save_now_and_then, save_now_and_then, ""),
    ],
)
def test_what_leaves_the_script_because_of_a_signal(
    number: signal.Signals, handler: Callable[..., Any], leave: Callable[[], None] | None, expected: str
) -> None:
    signal.signal(number, handler)
    with pytest.raises((KeyboardInterrupt, SystemExit, OSError)) as left:
        (leave or functools.partial(signal.raise_signal, number))()
    assert raised_by(left.value) == expected


def test_the_cell_says_it_and_nothing_else_is_taken_for_a_signal() -> None:
    known: dict[str, Any] = {
        "at_s": 1.0, "phase": "computing", "site": "", "site_since_s": 1.0, "visit_since_s": 1.0, "stack_id": 1,
        "framework": "", "ring_s": None, "problems": (), "groups": (), "most_bytes": 4000,
    }  # fmt: skip
    for said, taken in (("SIGTERM", "SIGTERM"), ("", ""), ("x\x1b[2J", "")):
        state = decode(encode(**known, handling=said), pid=1, heartbeat_age_s=0.0)
        assert (state.is_whole, state.handling) == (True, taken)
