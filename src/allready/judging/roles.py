"""What each line is in this run: a signature says what it may be, the neighbourhood what it is."""

import functools
import math
from collections.abc import Sequence

from msgspec.structs import replace

from allready.evidence.join.identity import Identities
from allready.evidence.join.zones import MAX_SHIFT_S, QUARTER_S
from allready.judging.ends import Victims
from allready.model import Death, Event, Role
from allready.signatures import load

BEFORE_THE_JOB_S = 5.0
"""A kernel's line this long before the first line of the job belongs to another program."""

DRIFT_S = 120.0
"""The clock behind a kernel's log is not corrected while the machine runs: in months it is off by minutes."""

ANOTHER_DAY_S = MAX_SHIFT_S
"""So far outside of all that is known of the run no zone brings a kernel's line into it."""

AFTER_THE_FIRST_S = 5.0
"""Other faults that show this long after the first are consequences; clocks of nodes differ by less in practice."""

OF_A_PROCESS = {"kernel.oom_killer", "kernel.segfault", "kernel.hung_task"}
OF_JOBS = ("python", "torch", "pt_", "ray", "jax", "train", "cuda", "nccl", "mpi", "deepspeed")
"""Parts of names of processes that may belong to a training job, whose pids in a container the kernel does not say."""

OF_OTHERS = {"elastic", "launcher", "kernel", "store"}
"""Families of lines that may be no rank's own: agents have a store, too."""

TO_ITSELF = {"gloo.peer_is_loopback"}
"""Right where all ranks share a machine: then the peer had ended, or had not begun."""


def settle(
    events: Sequence[Event],
    deaths: Sequence[Death],
    identities: Identities,
    *,
    well: frozenset[int],
    healthy: bool,
    started_s: float | None,
    span: tuple[float, float] | None = None,
    recorded: tuple[float, float] | None = None,
    victims: Victims = frozenset(),
) -> tuple[Event, ...]:
    """The events with their roles in this run.

    Args:
        well: ranks that ended well; what looks like a fault on them and goes on afterwards was none.
        healthy: every rank ended well.
        started_s: first time of any line that is not the kernel's.
        span: first and last time of all that the job left.
        recorded: when the job began and ended, by its launcher's record, which is in UTC.
        victims: processes of this job that a kernel log speaks of.
    """
    signatures = load()
    grave = _grave()
    onset = _onset(events, deaths)
    is_one_node = _is_one_node(identities)
    settled = []
    for event in events:
        signature = signatures.get(event.signature)
        role = event.role  # the table's, unless an attempt that is over wrote the line
        if signature is not None and role is Role.ROOT and event.signature not in grave:
            role = Role.RECORD  # states how something is set, and explains no end
        if (role is Role.ROOT or role is Role.RECORD) and signature is not None and event.signature in grave:
            if healthy or (
                signature.family == "kernel"
                and (_is_of_another_time(event, started_s, span) or _is_outside(event, recorded))
            ):
                role = Role.HARMLESS
            elif event.signature in OF_A_PROCESS:
                role = _of_process(event, identities, victims)
            elif (event.signature in TO_ITSELF and is_one_node) or (role is Role.ROOT and _is_after(event, onset)):
                role = Role.CASCADE
            elif role is Role.ROOT and identities.rank(event.origin) in well and signature.family != "kernel":
                role = Role.HARMLESS
        is_ranks = signature is not None and signature.family not in OF_OTHERS
        origin = identities.completed(event.origin, is_ranks=is_ranks)
        is_same = role is event.role and origin is event.origin
        settled.append(event if is_same else replace(event, role=role, origin=origin))
    return tuple(settled)


@functools.cache
def _grave() -> frozenset[str]:
    """Signatures of what ends a run."""
    return frozenset(name for name, one in load().items() if one.severity.is_fault)


def _of_process(event: Event, identities: Identities, victims: Victims) -> Role:
    """A kernel's line about one process, which may have nothing to do with the job."""
    text = event.values.get("pid", "")
    pid = int(text) if text.isdecimal() and len(text) < 12 else None
    if pid is None or (event.origin.source, pid) in victims or identities.rank_of(event.origin.host, pid) is not None:
        return Role.ROOT
    if not identities.processes and not identities.node_of_rank:
        return Role.ROOT  # nothing else is known of any process
    name = event.values.get("name", "").lower()
    return Role.RECORD if any(word in name for word in OF_JOBS) else Role.HARMLESS


def _is_one_node(identities: Identities) -> bool:
    """Whether every rank of the job is known to live on one node."""
    ranks = set(identities.node_of_rank)
    return bool(ranks) and len(set(identities.node_of_rank.values())) == 1 and len(ranks) >= identities.world_size > 0


@functools.cache
def _roots() -> frozenset[str]:
    """Signatures whose lines show a first cause of an end."""
    signatures = load()
    return frozenset(n for n in _grave() if signatures[n].role is Role.ROOT and signatures[n].family != "kernel")


def _onset(events: Sequence[Event], deaths: Sequence[Death]) -> tuple[float, str] | None:
    """When the first root showed, and what it was."""
    roots = _roots()
    times = [(e.time_s, e.signature) for e in events if e.time_s is not None and e.signature in roots]
    times += [(d.time_s, "death") for d in deaths if d.time_s is not None and d.is_own]
    return min(times, default=None)


def _is_after(event: Event, onset: tuple[float, str] | None) -> bool:
    return (
        onset is not None
        and event.time_s is not None
        and event.signature != onset[1]
        and event.time_s > onset[0] + AFTER_THE_FIRST_S
    )


def _is_of_another_time(event: Event, started_s: float | None, span: tuple[float, float] | None) -> bool:
    """Whether the kernel wrote it, the first and the last time, when the job did not run."""
    if event.time_s is None:
        return False
    last_s = event.last_time_s or event.time_s
    if started_s is not None and last_s < started_s - BEFORE_THE_JOB_S:
        return True
    if span is None:
        return False
    begin_s, end_s = span[0] - ANOTHER_DAY_S, span[1] + ANOTHER_DAY_S
    if event.time_s < begin_s < end_s < last_s:
        return event.count == 2
    return last_s < begin_s or event.time_s > end_s


def _is_outside(event: Event, recorded: tuple[float, float] | None) -> bool:
    """Whether no zone, of which a kernel's log names none, brings the line into the time in which the job ran."""
    if recorded is None or event.time_s is None or event.count > 2:
        return False  # of more lines that became one event, only the first and the last time are known
    begin_s, end_s = recorded[0] - DRIFT_S, recorded[1] + DRIFT_S
    for time_s in (event.time_s, event.last_time_s or event.time_s):
        first = math.ceil((begin_s - time_s) / QUARTER_S)
        last = math.floor((end_s - time_s) / QUARTER_S)
        most = int(MAX_SHIFT_S // QUARTER_S)
        if max(first, -most) <= min(last, most):
            return False
    return True
