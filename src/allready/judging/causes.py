"""Which deaths are causes: not those that a launcher, a watchdog or the fault itself brought about."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from allready.judging.analysis import Analysis
from allready.judging.ends import MAX_ABOVE_A_CRASH, is_right_above
from allready.judging.layers import Layer
from allready.judging.processes import overcome
from allready.judging.run_signs import has_grave_root, who
from allready.judging.stated import said, stated
from allready.model import CRASHES, Culprits, Death, Event, Evidence, Hit, Role, RunEvidence, clock_time
from allready.model.fill import named_by
from allready.model.process import ENDING_SIGNALS
from allready.patterns import compiled
from allready.signatures import load, of_line
from allready.signatures.watchdog import TIMEOUTS

_STOPPED_JOB = (
    r"^Terminated\s*$|: line \d{1,7}: +\d{1,9} (?:Terminated|Hangup|Interrupt)\b[^\n]{0,200}?"
    r"(?:\.py\b|[\s/](?:torchrun|srun|jsrun|mpirun|mpiexec|horovodrun|deepspeed|accelerate|python[\d.]{0,8}) )"
)
"""A script ends its own monitor (`nvidia-smi dmon`, `tensorboard`) in the same words: only the job's command counts."""
_STOPPED_WORKER = r"DataLoader worker \(pid \d{1,10}\) is killed by signal: (?:Terminated|Interrupt|Hangup)\b"
_SESSION_ENDED = r"\bReceived (?:1|(?:Signals\.)?SIGHUP) death signal|\bgot signal: 1(?!\d)"

END_S = 30.0
"""How long a job may take to end once it was ordered to: what crashes meanwhile, crashes in its teardown."""
_MAX_ABOVE = 40
_IN_A_CHILD = r"(?i)\bsignal\b|worker.{0,80}\b(?:died|killed|exited)\b"
"""What a parent raises because the process that crashed was its child."""
_OWN_LAYERS = frozenset({Layer.ENVIRONMENT, Layer.MACHINE, Layer.PROCESS_END})
"""What is wrong in the process or below it; what it lost of others is no reason for its own crash."""

SAME_MOMENT_S = 2.0
"""Deaths this close to the first are reported together: launchers write whole seconds."""


def causes(case: Analysis) -> tuple[Death, ...]:
    """Deaths that nothing else explains, earliest first; empty when a time-out or a library's error came before."""
    run = case.run
    own = [d for d in run.deaths if d.is_own and not d.earlier and not _planned(d, run)]
    hung_s = min(
        (
            e.time_s
            for e in run.events
            if e.signature in TIMEOUTS and e.role is not Role.CASCADE and e.time_s is not None
        ),
        default=None,
    )
    if hung_s is not None:  # who dies after the others gave up waiting was ended, or ended by it
        own = [d for d in own if d.time_s is None or d.time_s <= hung_s]
    if run.expected_ranks and len(run.ended_well) >= run.expected_ranks:
        own = [d for d in own if not d.is_open]
    own = [d for d in own if not (_gave_up(d) and d.exit_code is not None and _is_taken_down(d, run))]
    own = [d for d in own if not _crashed_at_the_end(d, run) and not _crashed_with_a_reason(d, case)]
    own = [d for d in own if not _crashed_behind_a_failure(d, run)]
    if any(not d.is_agents and not d.by_launcher and not d.earlier for d in run.deaths):
        own = [d for d in own if not d.is_agents]  # a launcher stumbles over the ranks that failed
    # `Engine core initialization failed. See root cause above.` says itself that something else failed.
    no_echoes = [d for d in own if d.kind != "exception" or not _is_of_a_victim(d.text)]
    # Horovod says for whom all waited when it ended the job.
    has_stalled = any(e.signature == "launcher.horovod_stalled" and e.role is not Role.HARMLESS for e in run.events)
    own = no_echoes if bool(no_echoes) or case.of(has_grave_root) or has_stalled else own
    own.sort(key=lambda d: (d.time_s is None, d.time_s or 0.0, not d.first))
    struck_s = min((d.time_s for d in own if d.time_s is not None and not _gave_up(d)), default=None)
    return tuple(d for d in own if struck_s is None or d.time_s is None or d.time_s <= struck_s or not _gave_up(d))


def _is_of_a_victim(words: str) -> bool:
    """Words of whom something else failed."""
    roles = {s.role for s, _ in of_line(words) if s.code is not None} if words else set()
    return Role.CASCADE in roles and Role.ROOT not in roles


def is_end_of_all(deaths: Sequence[Death], run: RunEvidence) -> bool:
    """All ranks of several, as far as they are known, left with a code and a victim's words: none of them stands out,
    and others tell the words.  With fewer, the words may be of another rank that the end of this one failed.
    """
    ranks = {d.rank for d in deaths if d.rank is not None and _is_of_a_victim(d.last_words)}
    expected = run.expected_ranks or max(ranks, default=0) + 1
    return 1 < expected == len(ranks) == len(deaths)


def _is_taken_down(death: Death, run: RunEvidence) -> bool:
    """torch says before that it ends a process after a failed collective, and not whose: then signal 6 is that."""
    return any(
        e.signature == "torch.process_taken_down"
        and e.origin.rank is None
        and (e.time_s is None or death.time_s is None or e.time_s <= death.time_s + SAME_MOMENT_S)
        for e in run.events
    )


def _crashed_at_the_end(death: Death, run: RunEvidence) -> bool:
    """Another rank was ended by SIGTERM shortly before: the whole job was being ended when this one crashed."""
    at_s = death.time_s
    if death.signal not in CRASHES or death.first or at_s is None:
        return False
    orders = (d.time_s for d in run.deaths if d.signal == "SIGTERM" and d.rank != death.rank and not d.earlier)
    return any(order_s is not None and order_s < at_s <= order_s + END_S for order_s in orders)


def _crashed_with_a_reason(death: Death, case: Analysis) -> bool:
    """Right above its crash the process, or a library in it, says what failed: that line is the first cause."""
    if death.signal not in CRASHES and death.kind != "abort":
        return False
    signatures = load()
    return any(
        e.role is Role.ROOT
        and is_right_above(e.origin, death, _MAX_ABOVE)
        and (signature := signatures.get(e.signature)) is not None
        and (
            signature.layer in _OWN_LAYERS or (_gave_up(death) and death.pid is not None and e.origin.pid == death.pid)
        )
        and signature.severity.is_fault
        and not overcome(case, signature, e)
        for e in case.run.events
    )


def _crashed_behind_a_failure(death: Death, run: RunEvidence) -> bool:
    """The process tells of its crash right below an exception that nothing caught: it crashed on its way out."""
    is_crash = death.signal in CRASHES or death.signal == "SIGABRT" or death.kind == "abort"
    if not is_crash or death.exit_code is not None or death.first:
        return False
    raised = (
        d.origin
        for d in run.deaths
        if d.kind == "exception"
        and not (d.is_open or d.is_collective_error)
        and not compiled(_IN_A_CHILD).search(d.text)
    )
    return any(is_right_above(one, death, MAX_ABOVE_A_CRASH) for one in raised)


def _gave_up(death: Death) -> bool:
    """Libraries abort their process when they lose another one; what an abort of its own says is another matter."""
    return death.signal == "SIGABRT" and not is_named_by_signature(death)


def of_first_moment(deaths: Sequence[Death]) -> list[Death]:
    """Those, of deaths in the order of their times, that came with the first one."""
    start = deaths[0].time_s
    return [d for d in deaths if start is None or d.time_s is None or d.time_s <= start + SAME_MOMENT_S]


def first_causes(case: Analysis, kinds: set[str]) -> tuple[Death, ...]:
    """Of the causes those that came first (and at the same moment), if they are of these kinds."""
    found = case.of(causes)
    if not found:
        return ()
    first = of_first_moment(found)
    named = [d for d in first if d.first] or first  # a launcher that says which was the first on its node knows better
    if all(_gave_up(d) for d in named):  # of some that aborted in one second it names any
        named = [d for d in first if d in named or (_gave_up(d) and d.time_s == named[0].time_s)]
    strongest = [d for d in named if d.kind in {"oom", "exception", "signal", "abort"}]
    # A traceback that does not say whose it is says more than exit codes, in the order in which launchers tell them.
    strongest = strongest or [d for d in first if d.kind == "exception" and d.rank is None and d.pid is None] or named
    return tuple(d for d in strongest if d.kind in kinds)


def left_before_others(death: Death, run: RunEvidence) -> bool | None:
    """Whether the process crashed only after its script had ended, with calls that others had made and it had not;
    None where nothing counts the calls."""
    if not death.while_exiting or death.rank is None:
        return False
    shared = [p.positions for p in run.progress if death.rank in p.positions and len(p.positions) > 1]
    if not shared:
        return None
    return any(mine[death.rank].enqueued < max(p.enqueued for p in mine.values()) for mine in shared)


def _planned(death: Death, run: RunEvidence) -> bool:
    """The whole job was asked to stop: a launcher says so, all ranks got the same SIGTERM, a process saw its worker
    get one, or a person typed ^C."""
    if is_interrupt(death) or compiled(_STOPPED_WORKER).search(death.text) is not None:
        return True
    if death.kind not in {"signal", "exit"} or death.signal not in ENDING_SIGNALS:
        return False
    is_ordered = any(e.signature == "elastic.death_signal" for e in run.events)
    return is_ordered or death.signal == "SIGTERM"


def is_interrupt(death: Death) -> bool:
    """SIGINT, as Python tells it; a signal, as torchrun does."""
    name = death.text.partition(":")[0]
    return death.kind == "exception" and (name == "KeyboardInterrupt" or name.endswith(".api.SignalException"))


def is_order(event: Event) -> bool:
    """A launcher, a scheduler or the program says that it got the order to end the job."""
    if event.role is Role.HARMLESS:
        return False
    if event.signature in {"elastic.death_signal", "launcher.batch_ended_by_signal"} or is_caught_interrupt(event):
        return True
    return is_received_order(event) or (event.signature == "launcher.slurm_cancelled" and "time" in event.values)


def is_received_order(event: Event) -> bool:
    """A launcher says that it got the signal itself, as DeepSpeed's and torch's old one do where no process of theirs
    had failed before."""
    is_launchers = event.signature == "launcher.launcher_stops_others" and "receiver" in event.values
    return is_launchers and event.values.get("signal") in ENDING_SIGNALS


def is_handled_order(event: Event) -> bool:
    """A handler of signals says that its process was asked to end.  Ray asks its workers so at any end: alone it tells
    nothing."""
    return event.signature == "launcher.signal_handled" and event.values.get("signal") in ENDING_SIGNALS


def is_sent_order(event: Event) -> bool:
    """The same, with the pid of the process that sent the signal: not the one that got it."""
    sender = event.values.get("sender", "0")
    return is_handled_order(event) and sender not in {"0", event.values.get("pid")}


def is_caught_interrupt(event: Event) -> bool:
    """The program says that a person's ^C reached it and that it ends for that."""
    return event.signature == "python.interrupted" and "caught" in event.values


def follows_order(death: Death, run: RunEvidence) -> bool:
    """The order to end the job came shortly before: then connections break everywhere."""
    at_s = death.time_s
    orders = (e.time_s for e in run.events if is_order(e))
    return at_s is not None and any(order_s is not None and order_s <= at_s <= order_s + END_S for order_s in orders)


class Ender(StrEnum):
    """What says that a process was ended from outside."""

    KEYBOARD = "keyboard"  # Python's KeyboardInterrupt
    SHELL = "shell"  # of what it had started: `run.sh: line 32: 4067342 Terminated`, or a process of its worker
    SENDER = "sender"  # the process itself, with the pid of who sent the signal
    AT_WORK = "at work"  # a launcher, right behind the last step that was counted
    SESSION = "session"  # SIGHUP to torchrun: its terminal or SSH session was closed; it takes that under nohup as well
    LAUNCHER = "launcher"


def ender_of(death: Death) -> Ender | None:
    """What says that this process was ended from outside; None where nothing does."""
    if is_interrupt(death):
        return Ender.KEYBOARD if death.text.startswith("KeyboardInterrupt") else ender_of_order(death.text)
    return (
        Ender.SHELL
        if compiled(_STOPPED_JOB).search(death.text) or compiled(_STOPPED_WORKER).search(death.text)
        else None
    )


def ender_of_order(text: str) -> Ender:
    """The same of a launcher's line on a signal that it got."""
    return Ender.SESSION if compiled(_SESSION_ENDED).search(text) is not None else Ender.LAUNCHER


def ender_of_event(event: Event) -> Ender:
    """The same of a line that is an order."""
    if is_sent_order(event):
        return Ender.SENDER
    return Ender.KEYBOARD if is_caught_interrupt(event) else ender_of_order(event.text)


def is_named_by_signature(death: Death) -> bool:
    """A signature knows the error better than "an exception": that finding is the one to give.  A warning is none: it
    says of a job that went on as well."""
    texts = (death.text, death.last_words) if death.kind == "exit" else (death.text,)
    return any(
        s.role is Role.ROOT and s.code is not None and s.severity.is_fault
        for text in texts
        if text
        for s, _ in of_line(text)
    )


def culprits_of(deaths: Sequence[Death], run: RunEvidence) -> Culprits:
    """Ranks where they are known; a node where only that is."""
    ranks = tuple(sorted({d.rank for d in deaths if d.rank is not None}))
    nodes: set[int] = set()
    for death in deaths:
        number = run.node_numbers.get(death.node or death.origin.node or death.host or "")
        if death.rank is None and number is not None:
            nodes.add(number)
    return Culprits(ranks=ranks, nodes=tuple(sorted(nodes)))


def who_died(deaths: Sequence[Death], run: RunEvidence) -> str | None:
    """The ranks, or whatever else is known of the first."""
    ranks = [d.rank for d in deaths if d.rank is not None]
    return who(run, ranks) if ranks else called(deaths[0])


def evidence_of(deaths: Sequence[Death], run: RunEvidence) -> tuple[Evidence, ...]:
    """The deaths, then the first words of those that felt them."""
    own = [_described(d) for d in deaths[:4]]
    felt = [
        Evidence(source=str(e.origin), text=e.text[:400], time=clock_time(e.time_s))
        for e in run.events
        if e.role is Role.CASCADE
    ]
    return (*own, *felt[:3])


def hit_of(deaths: Sequence[Death], run: RunEvidence, **changes: Any) -> Hit:
    """A hit that accuses those who died; `changes`: fields of the hit, `values` are added to who it was."""
    known: dict[str, Any] = {
        "culprits": culprits_of(deaths, run),
        "evidence": evidence_of(deaths, run),
        "fault_time": clock_time(deaths[0].time_s),
    }
    return Hit(values={"who": who_died(deaths, run)} | changes.pop("values", {}), **(known | changes))


def _described(death: Death) -> Evidence:
    how = death.text or death.signal
    form = "{who}: {how}" if how else "{who}: exit code {code}"
    more = "[[, at {site}]]" if death.site else "[[; before it: {words}]]"
    return stated(
        str(death.origin),
        form + more,
        time=clock_time(death.time_s),
        who=called(death),
        how=how,
        code=death.exit_code,
        site=death.site,
        words=death.last_words or None,
    )


def called(death: Death) -> str | None:
    """`rank 2 (pid 1234)`, `local rank 0 on gpu01`, `pid 77`: as far as it is known."""
    names = {"rank": death.rank, "local rank": None if death.rank is not None else death.local_rank, "pid": death.pid}
    parts = [f"{name} {number}" for name, number in names.items() if number is not None]
    name = parts[0] + (f" ({parts[1]})" if len(parts) > 1 else "") if parts else None
    where = death.node or death.host if death.rank is None else ""
    if not where:
        return name
    on = said("{name} on {host}", name=name, host=where) if parts else said("a process on {host}", host=where)
    return named_by(on)
