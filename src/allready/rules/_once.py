"""Ask once what several rules want to know."""

import functools
from collections.abc import Callable
from typing import TypeVar

from allready.model import Aftermath

Answer = TypeVar("Answer")


def once(ask: Callable[[Aftermath], Answer]) -> Callable[[Aftermath], Answer]:
    """Remember the answer for the last ruins: several rules ask the same of thousands of ranks."""
    last: list[tuple[Aftermath, Answer]] = []

    @functools.wraps(ask)
    def asked(after: Aftermath) -> Answer:
        for known, answer in last:
            if known is after:
                return answer
        answer = ask(after)
        last[:] = [(after, answer)]
        return answer

    return asked
