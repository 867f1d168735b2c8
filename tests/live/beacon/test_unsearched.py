"""Python searches for cycles again once no thread reads frames, however the threads come and go."""

import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from allready.live.beacon import unsearched
from allready.live.beacon.unsearched import Unsearched


@pytest.fixture(autouse=True)
def searching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "version_info", (3, 11, 0, "final", 0))
    monkeypatch.setattr(unsearched, "_searched", [])
    assert gc.isenabled()
    yield
    gc.enable()


def test_a_thread_that_leaves_while_another_one_asks_ends_no_searches_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    first, ask = Unsearched(), gc.isenabled
    leaves = threading.Thread(target=first.__exit__)

    def interrupted() -> bool:
        """Behind a call of C the interpreter may let another thread run."""
        answer = ask()
        leaves.start()
        leaves.join(0.1)
        return answer

    first.__enter__()
    monkeypatch.setattr(gc, "isenabled", interrupted)
    with Unsearched():
        leaves.join(5.0)
        assert not ask()
    assert ask()


def test_what_raises_inside_ends_no_searches_for_good() -> None:
    with pytest.raises(ValueError, match="torn"), Unsearched():
        raise ValueError("torn")
    assert gc.isenabled()
