"""Recoveries that lead nowhere: the same ranks fail at the same step again and again."""

import logging

from allready.runtime.messages import Ranks

WARN_EVERY = 5

log = logging.getLogger(__name__)


class Repeats:
    """How often the same ranks have recovered at the same step, without another recovery in between."""

    def __init__(self) -> None:
        self._at: tuple[Ranks, int] | None = None
        self._times = 0

    def note(self, members: Ranks, step: int, failure: object, *, warn: bool) -> int:
        """A recovery; how many there are of this kind in a row.  `warn`: say so at every fifth; one rank is enough."""
        at = (members, step)
        self._times = self._times + 1 if at == self._at else 1
        self._at = at
        if warn and self._times % WARN_EVERY == 0:
            log.warning(
                "recovery %d in a row with the same ranks at step %d: trying again does not help; the last failure: %s",
                self._times,
                step,
                failure,
            )
        return self._times
