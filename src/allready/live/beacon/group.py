"""One process group as its rank sees it."""


class GroupCounters:
    """One group now.  `moved_s`, `pending_s`: wall clock of the last change, and of the last enqueueing while
    something is not completed.  `settled`: all up to here have completed by the ring."""

    __slots__ = ("completed", "enqueued", "label", "members", "moved_s", "name", "pending_s", "settled", "started")

    def __init__(self, name: str) -> None:
        self.name, self.label, self.members = name, "", ""
        self.enqueued = 0
        self.started: int | None = None
        self.completed: int | None = None
        self.moved_s: float | None = None
        self.pending_s: float | None = None
        self.settled = 0

    def update(self, now_s: float, enqueued: int, started: int | None, completed: int | None) -> bool:
        """Take the newest numbers; whether the group moved."""
        if (completed or 0) < self.settled <= enqueued:
            completed = self.settled
        moved = enqueued != self.enqueued or completed != self.completed
        if enqueued > (completed or 0):
            if self.pending_s is None or enqueued != self.enqueued:
                self.pending_s = now_s
        else:
            self.pending_s = None
        self.enqueued, self.started, self.completed = enqueued, started, completed
        if moved:
            self.moved_s = now_s
        return moved
