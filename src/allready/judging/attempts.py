"""Runs that torchelastic started again: what belongs to an attempt that is over.

The last attempt decides.  An earlier one decides only where the last one never got going because of it: it shows
nothing but connections that were not answered, while the earlier one had an error of its own.
"""

import itertools
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.model import Closing, Death, Event, FaultClass, Role
from allready.patterns import compiled
from allready.signatures import load
from allready.signatures.names import LAUNCHERS
from allready.signatures.watchdog import TIMEOUTS

SECOND_S = 1.0
MAX_LAST_LINES = 20
"""A log that was cut short, or from which lines were taken out, may end so soon after the failure."""

MIN_PROGRESS_LINES = 5
_NEAR_LINES = 40
"""Between the line of a store that cannot listen and the traceback of its agent."""

_MUCH_LATER = 200
"""Lines behind the last exception: ranks that start late do not write so many before their first."""

STARTING = {
    "elastic.workers_starting", "elastic.rendezvous_complete", "gloo.connect_failed",
    "gloo.peer_is_loopback", "store.waiting_for_clients", "store.barrier_waiting", "store.barrier_completed",
    "store.connect_timeout",
}  # fmt: skip
"""What only workers say that begin.  An agent that announces a restart has not made one."""

TABLE = "elastic.failure_table"
ENDED = ("elastic.death_signal", "launcher.slurm")
"""The last output of an agent that gives up; and that of one that was ended, if it follows soon."""

PORT_TAKEN = "store.address_in_use"
OF_SLURM = {"launcher.slurm_cancelled", "launcher.slurm_time_limit", "launcher.slurm_preempted"}
"""What slurmstepd says of the end of a job, with its number."""

OF_A_SHELL = "launcher.program_says_why"
OF_A_HANDLER = "launcher.signal_handled"
"""A shell's or a program's word on itself, which starts no ranks."""

_IN_TURNS = 3

WAITED = TIMEOUTS | {"torch.blocking_wait_timeout", "gloo.recv_timeout"}
"""What those say who waited in vain."""

NEVER_WENT = {FaultClass.START_ABSENT, FaultClass.START_NAME, FaultClass.START_PATH}


_FOLDER = r"(?<![^/!])attempt_(\d{1,6})/"
"""torchrun's folder of the logs of one attempt."""

Agent = tuple[str, str | None, int | None]
"""Source, node and pid."""


class AttemptStarts(Struct):
    """Where the last attempt begins.  `lines`: source -> last line of the attempt before; `times`: node -> its time."""

    lines: dict[str, int] = {}
    times: dict[str, float] = {}

    def is_over(self, source: str, line: int | None, node: str | None, time_s: float | None) -> bool:
        """Whether what stands there was written in an attempt that ended before the last one."""
        if source in self.lines:
            return line is not None and line <= self.lines[source]
        return node in self.times and time_s is not None and time_s <= self.times[node] + SECOND_S


def find_attempts(events: Sequence[Event], num_lines: Mapping[str, int], deaths: Sequence[Death] = ()) -> AttemptStarts:
    """By agent: a failure that was not its last message, since it failed again or workers started after it.

    An agent that gives up ends with its table, or stumbles itself; one that goes on says nothing at the usual level,
    and workers write on.
    Its folders of logs have a folder for each attempt.
    """
    found = AttemptStarts(lines=_earlier_folders(num_lines))
    written: dict[str, list[Event]] = {}
    failures: dict[Agent, list[Event]] = {}
    for event in sorted((e for e in events if e.origin.line is not None), key=lambda e: e.origin.line or 0):
        written.setdefault(event.origin.source, []).append(event)
        if event.signature == "elastic.child_failed":
            failures.setdefault((event.origin.source, event.origin.node, event.origin.pid), []).append(event)
    stumbled = {d.origin.source: d.origin.line or 0 for d in deaths if d.is_agents}
    num_tables = {source: sum(e.count for e in lines if e.signature == TABLE) for source, lines in written.items()}
    lasting = {
        agent: None
        if stumbled.get(agent[0], 0) > (failed[-1].origin.line or 0) or _gave_up_together(written[agent[0]])
        else _wrote_on(failed[-1].origin.line or 0, written[agent[0]], num_lines.get(agent[0], 0))
        for agent, failed in failures.items()
    }
    went_on = any(lasting.values())  # agents go on together
    for agent, failed in failures.items():
        source, _, pid = agent
        # Old logs do not name the agent: as many as gave up are several agents, and not several attempts of one.
        num_last = max(1, num_tables[source]) if pid is None else 1
        over = failed if went_on and lasting[agent] is not None else failed[:-num_last]
        if not over or (pid is None and num_tables[source] >= len(failed)):
            continue
        found.lines[source] = max(found.lines.get(source, 0), over[-1].origin.line or 0)
        node, time_s = over[-1].origin.node or over[-1].origin.host, over[-1].time_s
        if node is not None and time_s is not None:
            found.times[node] = max(found.times.get(node, time_s), time_s)
    return found


def _gave_up_together(written: Sequence[Event]) -> bool:
    """Whether several agents gave up in the same words, of which only the first stands at its place."""
    return any(e.signature == TABLE and e.count > 1 for e in written)


def _earlier_folders(num_lines: Mapping[str, int]) -> dict[str, int]:
    """The logs in `attempt_0` where `attempt_1` lies beside it: source -> its last line."""
    numbered = {source: match for source in num_lines if (match := compiled(_FOLDER).search(source)) is not None}
    last: dict[str, int] = {}
    for source, match in numbered.items():
        parent = source[: match.start()]
        last[parent] = max(last.get(parent, 0), int(match[1]))
    return {
        source: num_lines[source] for source, match in numbered.items() if int(match[1]) < last[source[: match.start()]]
    }


def _wrote_on(last: int, written: Sequence[Event], num_lines: int) -> bool | None:
    """Whether workers wrote on after an agent's last failure; None where the agent gave up then, or was ended."""
    later = [e for e in written if (e.origin.line or 0) > last]
    soon = [e for e in later if (e.origin.line or 0) <= last + MAX_LAST_LINES]
    if any(e.signature == TABLE for e in later) or any(e.signature.startswith(ENDED) for e in soon):
        return None
    # In a log of several nodes the others may write on.
    is_of_one = len({e.origin.node for e in written} - {None}) < 2
    return any(e.signature in STARTING for e in later) or (is_of_one and num_lines > last + MAX_LAST_LINES)


def with_appended(
    attempts: AttemptStarts, closings: Sequence[Closing], events: Sequence[Event], deaths: Sequence[Death]
) -> AttemptStarts:
    """The attempts, together with runs that were written into one file one after the other.

    A run is over where something ended it and the count of steps began again behind that, where the same rank ended
    again as another process, and where an exception ended it and steps were counted for long after that, with nothing
    that failed behind them but a process that was killed, and where a process of no rank raised and the first lines of
    the log came again (see `_begun_again`), and where an agent found its port taken and workers failed behind it.  A
    process that ended before the first step was counted was no rank: a job script has steps of its own.
    """
    lines = dict(attempts.lines)
    for source, over in _cancelled_before(events).items():
        lines[source] = max(lines.get(source, 0), over)
    for closing in closings:
        source, again = closing.origin.source, closing.restart_line
        ends = [d.origin for d in deaths] + [e.origin for e in events if _is_grave(e)]
        if again is not None and any(o.source == source and o.line is not None and o.line < again for o in ends):
            lines[source] = max(lines.get(source, 0), again - 1)
        here = [death for death in deaths if death.origin.source == source]
        ended = [d for d in here if (d.kind in {"exit", "signal"} and _is_before(d, closing)) or _is_replaced(d, here)]
        if closing.last_counts_line is not None and not _failed_behind(closing, here, events):
            ended += [d for d in here if d.kind == "exception" and (d.origin.line or 0) < closing.last_counts_line]
        elif _was_killed_later(closing, here):
            ended += [d for d in here if d.kind == "exception" and _is_before(d, closing)]
        if ended:
            lines[source] = max(lines.get(source, 0), *map(_line, ended))
        stumbled = _could_not_listen(source, here, events)
        if stumbled is not None:
            lines[source] = max(lines.get(source, 0), stumbled)
        begun = _begun_again(closing, here, events)
        if begun is not None:
            lines[source] = max(lines.get(source, 0), begun - 1)
    return AttemptStarts(lines=lines, times=attempts.times)


def _begun_again(closing: Closing, deaths: Sequence[Death], events: Sequence[Event]) -> int | None:
    """Where the last of several runs of one process begins: an exception ends a process, and behind it the first lines
    of the log stand again.  None where there may be several ranks, each of which writes such lines: one of them names a
    rank or a process (but see `_take_turns`), a launcher speaks, or the lines stood more than once before anything
    ended and stand again soon after it: a rank that starts late writes them too."""
    begun = closing.opening_lines
    raised = [_line(d) for d in deaths if d.kind == "exception"]
    takes_turns = _take_turns(begun, raised)
    pids = {d.pid for d in deaths} - {None}
    is_of_ranks = any(
        d.by_launcher or d.is_collective_error or any(v is not None for v in (d.rank, d.local_rank)) for d in deaths
    ) or any(
        e.origin.source == closing.origin.source
        and e.family in LAUNCHERS
        and e.signature not in ({OF_A_SHELL, OF_A_HANDLER} if takes_turns else {OF_A_SHELL})
        for e in events
    )
    if not begun or not raised or is_of_ranks or len(pids) > (1 if takes_turns else 0):
        return None
    if sum(line < min(raised) for line in begun) != 1 and begun[-1] < max(raised) + _MUCH_LATER:
        return None
    return begun[-1] if any(line < begun[-1] for line in raised) else None


def _take_turns(begun: Sequence[int], raised: Sequence[int]) -> bool:
    """Whether an exception stands between each two of at least three beginnings: ranks begin together, and what reads
    so is one process after the other, whichever of them gives its pid."""
    gaps = itertools.pairwise(begun)
    return len(begun) >= _IN_TURNS and all(any(a < line < b for line in raised) for a, b in gaps)


def _could_not_listen(source: str, deaths: Sequence[Death], events: Sequence[Event]) -> int | None:
    """Where the last agent ended that found its port taken, with workers that failed behind it: those are of a run that
    was started after it, since none begins without the store of its agents."""
    here = [e for e in events if e.origin.source == source]
    taken = [e.origin.line or 0 for e in here if e.signature == PORT_TAKEN]
    failed = max((e.origin.line or 0 for e in here if e.signature == "elastic.child_failed"), default=0)
    agents = [_line(death) for death in deaths if death.is_agents and death.kind == "exception"]
    over = [at for at in agents if at < failed and any(abs(at - line) <= _NEAR_LINES for line in taken)]
    return max(over, default=None)


def _cancelled_before(events: Sequence[Event]) -> dict[str, int]:
    """Where Slurm ended another job than the last one that it ended in the same log: source -> the last such line."""
    ended = [(e.origin.line or 0, e.origin.source, e) for e in events if e.signature in OF_SLURM and "job" in e.values]
    last: dict[str, str] = {}
    found: dict[str, int] = {}
    for line, source, event in sorted(ended, key=lambda one: one[0], reverse=True):
        job = event.values["job"].partition(".")[0]
        if last.setdefault(source, job) != job:
            found[source] = max(found.get(source, 0), line)
    return found


def _line(death: Death) -> int:
    return death.origin.line or 0


def _is_replaced(death: Death, others: Sequence[Death]) -> bool:
    """Whether the same rank ended again later, as another process."""
    return death.rank is not None and any(
        one.rank == death.rank
        and _line(one) > _line(death)
        and None not in (one.pid, death.pid)
        and one.pid != death.pid
        for one in others
    )


def _was_killed_later(closing: Closing, deaths: Sequence[Death]) -> bool:
    """Whether a signal ended a process behind all steps, and not because of another one that had ended before."""
    last = closing.progress_line or 0
    behind = [d for d in deaths if _line(d) > last and not d.by_launcher]
    return bool(behind) and all(d.kind == "signal" and d.is_own and d.signal != "SIGABRT" for d in behind)


def _failed_behind(closing: Closing, deaths: Sequence[Death], events: Sequence[Event]) -> bool:
    """Whether something ended or failed behind the first of the last counts."""
    first = closing.last_counts_line or 0
    return any(_line(death) > first for death in deaths) or any(
        (_is_grave(e) or e.signature in WAITED)
        and e.origin.source == closing.origin.source
        and (e.origin.line or 0) > first
        for e in events
    )


def _is_before(death: Death, closing: Closing) -> bool:
    """Whether all progress came after this end, and more than what others had still to print."""
    first, last = closing.first_progress_line, closing.progress_line
    return (
        death.origin.line is not None
        and first is not None
        and last is not None
        and death.origin.line < first <= last - MIN_PROGRESS_LINES
    )


def settle_attempts(
    attempts: AttemptStarts, events: Sequence[Event], deaths: Sequence[Death]
) -> tuple[tuple[Event, ...], tuple[Death, ...]]:
    """Mark what is over, so that it is reported and does not accuse; or else what is only a consequence of it."""
    if not attempts.lines:
        return tuple(events), tuple(deaths)
    is_over = [attempts.is_over(e.origin.source, e.origin.line, e.origin.node, e.time_s) for e in events]
    was = [attempts.is_over(d.origin.source, d.origin.line, d.node or d.origin.node, d.time_s) for d in deaths]
    own = [d.is_own for d in deaths]
    never_went = any(_never_went(e) for e, over in zip(events, is_over, strict=True) if not over)
    if never_went:  # a bare exit code is that of the connection that failed
        own = [o and (w or d.kind != "exit") for o, w, d in zip(own, was, deaths, strict=True)]
    failed_itself = any(o and not w for o, w in zip(own, was, strict=True)) or any(
        _states_a_fault(e) for e, over in zip(events, is_over, strict=True) if not over
    )
    if never_went and not failed_itself and any(o and w for o, w in zip(own, was, strict=True)):
        return tuple(
            replace(e, role=Role.CASCADE) if not over and _never_went(e) else e
            for e, over in zip(events, is_over, strict=True)
        ), tuple(
            d if over or d.kind != "exit" else replace(d, is_collective_error=True)
            for d, over in zip(deaths, was, strict=True)
        )
    return (
        tuple(
            replace(e, role=Role.HARMLESS)
            if over and e.signature in OF_SLURM
            else replace(e, role=Role.CASCADE)
            if over and e.role in {Role.ROOT, Role.RECORD} and _is_grave(e)
            else e
            for e, over in zip(events, is_over, strict=True)
        ),
        tuple(replace(d, earlier=True) if over else d for d, over in zip(deaths, was, strict=True)),
    )


def _is_grave(event: Event) -> bool:
    signature = load().get(event.signature)
    return signature is not None and signature.severity.is_fault


def _states_a_fault(event: Event) -> bool:
    signature = load().get(event.signature)
    if signature is None or not _is_grave(event):
        return False
    if event.role is Role.ROOT:
        return signature.fault_class not in NEVER_WENT
    return event.signature in WAITED


def _never_went(event: Event) -> bool:
    signature = load().get(event.signature)
    return (
        signature is not None and event.role is Role.ROOT and _is_grave(event) and signature.fault_class in NEVER_WENT
    )
