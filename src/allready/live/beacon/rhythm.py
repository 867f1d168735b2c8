"""Whether this rank's operations come as fast as before, from the recorder's counters alone."""

WINDOW_S = 2.0
"""Windows begin at multiples of it on the wall clock: all ranks judge in the same moments."""
TOLERANCE = 0.05
"""Of the usual number of operations in a window; and one operation, which may fall into this window or the next."""
CALM_WINDOWS = 5


class BeaconRhythm:
    """Calm after ten seconds at one speed; the first window that is slower or faster ends that at once."""

    __slots__ = ("_at_s", "_operations", "_usual_per_s", "_windows", "per_s")

    def __init__(self) -> None:
        self.per_s = 0.0
        self._at_s: float | None = None
        self._operations = 0
        self._usual_per_s = -1.0
        self._windows = 0

    @property
    def is_calm(self) -> bool:
        return self._windows >= CALM_WINDOWS

    def note(self, now_s: float, operations: int) -> None:
        """Take the number of all operations so far at a moment of the wall clock; cheap, called at every sample."""
        # Below: the clock was set, or a group is gone.
        if self._at_s is None or now_s < self._at_s or operations < self._operations:
            self._at_s, self._operations, self._windows, self._usual_per_s = now_s, operations, 0, -1.0
            return
        if int(now_s / WINDOW_S) == int(self._at_s / WINDOW_S):
            return
        interval_s = max(now_s - self._at_s, 1e-3)
        self.per_s = (operations - self._operations) / interval_s
        self._at_s, self._operations = now_s, operations
        off_per_s = abs(self.per_s - self._usual_per_s)
        if self._usual_per_s > 0 and off_per_s <= TOLERANCE * self._usual_per_s + 1.0 / interval_s:
            self._windows += 1
        else:
            self._usual_per_s, self._windows = self.per_s, 0
