"""A signal from outside that ended ranks: whom it reached, and who was left out."""

from collections.abc import Iterable

from msgspec import Struct

from allready.model import ENDING_SIGNALS, NodeStatus, RankStatus
from allready.model.process import signal_number

SAME_SIGNAL_S = 3.0
"""Who signals every process of a job does it one after the other."""
LEAVES_WITHIN_S = 5.0
"""Who handles the signal, and got it, is in its handler or gone by then, unless it waits in native code."""
DIES_WITHIN_S = 0.5
"""A process that a signal ends is gone by then, and its agent has seen it."""

SENT = ENDING_SIGNALS | {"SIGKILL", "SIGUSR1", "SIGUSR2", "SIGQUIT"}
"""Signals that another process sends: one that crashes, or whose own timer ends it, gets none of these."""


def sent_number(signal: str | None) -> str:
    """The number of a signal that another process sends; "" of any other.

    It is for the shared steps that let the kernel note who sends the next one.  Nothing has a record of one that was
    sent before: Python's handlers do not get the sender, and no code runs in a process that a signal ends.
    """
    return str(signal_number(signal)) if signal in SENT else ""


class StopSignal(Struct, frozen=True, kw_only=True):
    """`ranks`: ended by it, by themselves or by their exit code 128 + N; `node`: of the first of them, which ended at
    `first_s` (node 0's clock).

    `spared`: who did not get it for certain, since it would have ended them at once.  `unsure`: it is too early to tell
    of some.
    """

    signal: str
    ranks: tuple[int, ...]
    node: int
    first_s: float
    spared: tuple[int, ...] = ()
    unsure: bool = False

    @property
    def is_for_the_job(self) -> bool:
        """Whether no rank is known to have been left out: then the signal was meant for the job."""
        return not self.spared and not self.unsure


def stop_signal(statuses: Iterable[NodeStatus]) -> StopSignal | None:
    """The signal that ended the first rank that ended badly; None where something else did, or no rank ended so.

    A rank that handles, ignores or holds back the signal may have got it and work on, for as long as its handler does:
    that it lives tells nothing.  Nor does it of one that leaves out of its handler, though Python takes the handlers
    back before torch ends.
    """
    known = [(status, rank, _ended_s(status, rank)) for status in statuses for rank in status.ranks]
    bad = [
        (s, status, rank)
        for status, rank, s in known
        if s is not None and (rank.signal or rank.exit_code or rank.handling)
    ]
    if not bad:
        return None
    first_s, node, first = min(bad, key=lambda end: end[0])
    name = ended_by(first)
    if name not in ENDING_SIGNALS:
        return None
    reached = {r.rank for s, _, r in bad if ended_by(r) == name and s <= first_s + SAME_SIGNAL_S}
    spared: set[int] = set()
    unsure = False
    for status, rank, ended_s in known:
        handles = name in rank.outlives or rank.handling == name
        if rank.rank in reached or handles or (ended_s is not None and ended_s < first_s):
            continue
        if rank.is_gone:
            unsure = unsure or ended_s is None  # how it ended is not known yet
            spared |= {rank.rank} if ended_s is not None else set()
        elif status.by_node_0(status.time_s) >= first_s + DIES_WITHIN_S:
            spared.add(rank.rank)
        else:
            unsure = True
    return StopSignal(
        signal=name,
        ranks=tuple(sorted(reached)),
        node=node.node_rank,
        first_s=first_s,
        spared=tuple(sorted(spared)),
        unsure=unsure,
    )


def ended_by(rank: RankStatus) -> str:
    """The signal that ended a rank, also where its handler did so, as it was seen there or by the exit code that shells
    give it; else ""."""
    if rank.signal or rank.handling:
        return rank.signal or rank.handling
    return next((name for name in ENDING_SIGNALS if rank.exit_code == 128 + signal_number(name)), "")


def _ended_s(status: NodeStatus, rank: RankStatus) -> float | None:
    return None if rank.ended_s is None else status.by_node_0(rank.ended_s)
