"""How a job went while it ran: its iterations, how long they took, and who was late."""

from msgspec import Struct


class RankCourse(Struct, frozen=True, kw_only=True):
    """One rank: operations of all groups, how much later than the first it entered them, and for which share of the
    time most others waited for it; None where that could not be compared."""

    rank: int
    node: int | None = None
    num_operations: int = 0
    late_s: float | None = None
    waited_share: float | None = None


class JobCourse(Struct, frozen=True, kw_only=True):
    """The rhythm of one process group, the one with most ranks, over the whole attempt.

    `has_iterations`: operations repeat, so that an iteration of the loop is known; else every operation counts as one.
    `period_s`: the median of `curve_s`, whose points are (seconds since the first operation, seconds of an iteration).
    `ranks`: those for which the others waited longest come first.
    """

    group: str
    num_iterations: int
    has_iterations: bool
    period_s: float
    curve_s: tuple[tuple[float, float], ...] = ()
    ranks: tuple[RankCourse, ...] = ()
    num_ranks: int = 0
