"""Under `allready run`: learns from the agent's verdict that the job hangs, for calls that nothing else limits; and
tells the agent which ranks have a group."""

import os
import time

STILL_S = 1.0
"""So long this rank must have begun and completed nothing; a verdict on what is over by now ends no call."""


def tell_formed(epoch: int, members: tuple[int, ...]) -> None:
    """This rank has a group of these; epoch 0: none."""
    from allready.live.beacon import names

    names.FORMED[:] = [(epoch, members)]


class HangWatch:
    """Looks at the agent's mark when asked, which may be often.

    Args:
        mark: the file that is there while the verdict says that the job hangs.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._progress: object = None
        self._since_s = time.monotonic()
        self._told_ns = 0

    @classmethod
    def of_this_rank(cls) -> "HangWatch | None":
        """None in a process without a beacon."""
        from allready.live.beacon import names

        if not names.RANK_FOLDER:
            return None
        run_dir = os.path.dirname(names.RANK_FOLDER[0])  # noqa: PTH120
        return cls(os.path.join(run_dir, names.HUNG))  # noqa: PTH118

    def is_hang(self, progress: object, now_s: float) -> bool:
        """Whether this rank hangs by the verdict; true once for each.

        Args:
            progress: changes whenever this rank makes progress.
        """
        if progress != self._progress:
            self._progress, self._since_s = progress, now_s
        try:
            made_ns = os.stat(self._mark).st_mtime_ns  # noqa: PTH116
        except OSError:
            return False
        still_s = now_s - self._since_s
        # Made since this rank makes no progress: both are the ages of the same moment by one machine's clocks.
        is_of_now = time.time() - made_ns / 1e9 < still_s
        if made_ns == self._told_ns or still_s < STILL_S or not is_of_now:
            return False
        self._told_ns = made_ns
        return True
