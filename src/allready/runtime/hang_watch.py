"""Under `allready run`: learns from the agent's verdict that the job hangs, for calls that nothing else limits; and
tells the agent which ranks have a group."""

import os
import time

STILL_S = 1.0
"""So long this rank must have begun and completed nothing; a verdict on what is over by now ends no call."""
ASLEEP_S = 2.5
USUAL = 3.0
"""A wait for a rank that sleeps ends a call once it is longer than this, and than so many times the longest wait
before: a sleep that comes again and again (a poll, a pause) is part of the loop."""
MIN_OPERATIONS = 10
"""Before so many it is not known how long a step takes, and the first ones take longer."""


def set_formed(epoch: int, members: tuple[int, ...]) -> None:
    """This rank has a group of these; epoch 0: none."""
    from allready.live.beacon import names

    names.FORMED[:] = [(epoch, members)]
    names.NEWEST_EPOCH[:] = [max(epoch, *names.NEWEST_EPOCH)]


class HangWatch:
    """Looks at the agent's mark when asked, which may be often.

    Args:
        mark: the file that is there while the verdict says that the job hangs.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._progress: object = None
        self._since_s = time.monotonic()
        self._longest_s = 0.0
        self._num_operations = 0
        self._told_ns = 0

    @classmethod
    def of_this_rank(cls) -> "HangWatch | None":
        """None in a process without a beacon."""
        from allready.live.beacon import names

        if not names.RANK_FOLDER:
            return None
        run_dir = os.path.dirname(names.RANK_FOLDER[0])  # noqa: PTH120
        return cls(os.path.join(run_dir, names.HUNG))  # noqa: PTH118

    def rest(self) -> None:
        """What goes on now has a limit of its own, and teaches nothing."""
        self._progress = None

    def is_hang(self, progress: object, now_s: float, *, num_operations: int = 0, recovers: bool = False) -> bool:
        """Whether this rank hangs by the verdict; true once for each.

        Args:
            progress: changes whenever this rank makes progress.
            num_operations: begun so far.
            recovers: whether the job goes on after a call that failed; only then may a sleep end one, since it may be
                in order.
        """
        if progress != self._progress:
            if self._progress is not None and self._is_trained():
                self._longest_s = max(self._longest_s, now_s - self._since_s)
            self._progress, self._since_s = progress, now_s
        self._num_operations = max(self._num_operations, num_operations)
        try:
            made_ns = os.stat(self._mark).st_mtime_ns  # noqa: PTH116
        except OSError:
            return False
        still_s = now_s - self._since_s
        # Made since this rank makes no progress: both are the ages of the same moment by one machine's clocks.
        is_of_now = time.time() - made_ns / 1e9 < still_s
        if made_ns == self._told_ns or still_s < STILL_S or not is_of_now:
            return False
        patience_s = self._patience_s(recovers=recovers)
        if patience_s is None or still_s < patience_s:
            return False
        self._told_ns = made_ns
        return True

    def _is_trained(self) -> bool:
        return self._num_operations >= MIN_OPERATIONS

    def _patience_s(self, *, recovers: bool) -> float | None:
        """How long a wait may last by the mark; None: it ends no call."""
        from allready.live.beacon.names import ASLEEP, HANGS

        try:
            with open(self._mark, encoding="ascii") as file:  # noqa: PTH123
                word, _, asked_s = file.read(64).partition(" ")
            least_s = float(asked_s or 0.0)
        except (OSError, ValueError):
            return None
        if word == HANGS:
            return STILL_S
        if word != ASLEEP or not recovers or not self._is_trained():
            return None
        return max(ASLEEP_S, USUAL * self._longest_s, least_s)
