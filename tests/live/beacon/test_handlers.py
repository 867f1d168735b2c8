"""In whose handler a rank's main thread is."""

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from allready.live.beacon.handlers import handled
from allready.live.beacon.payload import encode
from allready.live.beacon.state import decode

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


def test_the_cell_says_it_and_nothing_else_is_taken_for_a_signal() -> None:
    known: dict[str, Any] = {
        "at_s": 1.0, "phase": "computing", "site": "", "site_since_s": 1.0, "visit_since_s": 1.0, "stack_id": 1,
        "framework": "", "ring_s": None, "problems": (), "groups": (), "most_bytes": 4000,
    }  # fmt: skip
    for said, taken in (("SIGTERM", "SIGTERM"), ("", ""), ("x\x1b[2J", "")):
        state = decode(encode(**known, handling=said), pid=1, heartbeat_age_s=0.0)
        assert (state.is_whole, state.handling) == (True, taken)
