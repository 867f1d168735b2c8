"""What users call: begin to count, ask, compare, end."""

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from allready.errors import UsageError
from allready.evidence.event_log import KIND, event_lags
from allready.judging.conclude import Known, conclude
from allready.judging.engine import judge
from allready.model import EventLog, Fleet, Lag, LogBegin, Origin, RunEvidence, RuntimeCounts, Verdict, World
from allready.runtime import recording
from allready.runtime.arguments import functions, whole
from allready.runtime.durations import Duration, duration
from allready.runtime.exchange import gather_values
from allready.runtime.messages import Formed, Ranks
from allready.runtime.metrics.alerts import MAX_WAITING, Hook, Teller
from allready.runtime.metrics.courier import Courier
from allready.runtime.metrics.event_file import MAX_BYTES, EventFile
from allready.runtime.metrics.recorder import KEPT, CallRecorder, Receiver
from allready.runtime.metrics.sinks import Sink
from allready.runtime.session import current

STOP = timedelta(seconds=5)
_PARTS = ("open", "write", "close")
"""Of a sink."""

_active: list[CallRecorder] = []
os.register_at_fork(after_in_child=_active.clear)  # its threads are the parent's


class Lateness(Struct, frozen=True, kw_only=True):
    """Who came late to the last calls, the same on every rank.

    `lags`: one for each operation, rank -> share of its calls to which the rank came last.  `verdict`: the rank that
    all others wait for, by the judge of all commands; None where there is none.
    """

    lags: tuple[Lag, ...]
    verdict: Verdict | None = None


class _Own(Struct, frozen=True, kw_only=True):
    """What one rank tells the others."""

    rank: int
    epoch: int
    waits: dict[str, tuple[Ranks, Ranks]]


def start(
    folder: str | Path | None = None,
    *,
    sinks: Sequence[Sink] = (),
    alerts: Sequence[Hook] = (),
    every: Duration = timedelta(seconds=30),
    max_bytes: int = MAX_BYTES,
    alert_from_every_rank: bool = False,
) -> None:
    """Count every call from now on.  Call it after `allready.init_process_group`; it ends with the group, or by `stop`.

    Args:
        folder: for the event logs, one of every rank; `allready diagnose FOLDER` reads them.
        sinks: get events and counts besides, from this rank.
        alerts: what is notified of failures; functions, `Command`, `Webhook`.
        every: how often counts are reported.
        max_bytes: of this rank's event log; older events make room.
        alert_from_every_rank: by default one rank tells of a failure that all agreed upon.
    """
    session = current()
    if _active and _active[0] in recording.listeners:
        raise UsageError("metrics.start was called before; call metrics.stop first")
    every_s = duration(every, "every").total_seconds()
    if every_s <= 0:
        raise UsageError("every must be longer than nothing")
    _check(sinks, alerts)
    whole(max_bytes, "max_bytes", least=1)
    begin = LogBegin(
        attempt=session.group.attempt,
        rank=session.rank,
        world_size=_size_at_start(session.member.formed),
        time_s=time.time(),
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    with contextlib.ExitStack() as opened:
        for sink in sinks:
            sink.open(begin)
            opened.callback(sink.close)
        opened.pop_all()  # from now on their threads close them
    receivers: list[Receiver] = []
    if folder is not None:
        file = EventFile(Path(folder), begin, max_bytes=max_bytes)
        receivers.append(Courier("event log", file.write, finish=file.close))
    receivers += [Courier(type(sink).__name__, sink.write, finish=sink.close) for sink in sinks]
    for hook in alerts:
        teller = Teller(hook, begin, every_rank=alert_from_every_rank)
        receivers.append(Courier("alert", teller, wants=teller.wants, most=MAX_WAITING))
    recorder = CallRecorder(begin, session.member, receivers, every_s=every_s)
    _active[:] = [recorder]
    recorder.start()
    recording.listen(recorder)


def _check(sinks: object, alerts: object) -> None:
    """Before any of them is opened, or works in a thread of its own, where an error is only logged, and late."""
    for name, given in (("sinks", sinks), ("alerts", alerts)):
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise UsageError("{name}: a list is needed, not {given!r}", name=name, given=given)
        for one in given:
            if name == "alerts":
                functions({name: one})
            else:
                functions({f"{type(one).__name__}.{part}": getattr(one, part, None) for part in _PARTS})


def _size_at_start(formed: Formed | None) -> int:
    """As far as it is known: ranks may have been lost before."""
    return 1 if formed is None else max(formed.members) + 1


def stop(timeout: Duration = STOP) -> None:
    """Write what is left and count no more; within this time, whatever a sink does."""
    recording.listen(None)
    for recorder in _active:
        recorder.stop(duration(timeout).total_seconds())
    _active.clear()


def _recorder() -> CallRecorder:
    if not _active:
        raise UsageError("call allready.metrics.start first")
    return _active[0]


def counts() -> RuntimeCounts:
    """What this rank has counted so far."""
    return _recorder().counts()


def lateness(last: int = KEPT) -> Lateness:
    """Which rank the others waited for in the last calls of the default group.  Collective.

    No clocks are compared: the rank that comes last is in the operation for the shortest time.

    Args:
        last: calls of each operation, at most 1,000; at least 1.

    Raises:
        CollectiveFailed: on every surviving rank; the group is gone until `recover`.
    """
    last = whole(last, "last", least=1)
    recorder = _recorder()
    session = current()
    formed = session.member.formed
    assert formed is not None
    epoch, waits = recorder.last_waits(min(last, KEPT))
    own = _Own(rank=session.rank, epoch=epoch, waits=waits)
    found = [_as_log(one) for one in gather_values(own, _Own, len(formed.members))]
    lags = tuple(event_lags(found))
    recorder.compared(lags)
    return Lateness(lags=lags, verdict=_judged(lags, len(formed.members)))


def _as_log(own: _Own) -> EventLog:
    begin = LogBegin(attempt="", rank=own.rank, world_size=0, time_s=0.0)
    return EventLog(
        origin=Origin(source=KIND, rank=own.rank),
        begin=begin,
        epoch=own.epoch,
        waits_s={name: {n: us / 1e6 for n, us in zip(*columns, strict=True)} for name, columns in own.waits.items()},
    )


def _judged(lags: tuple[Lag, ...], world_size: int) -> Verdict | None:
    from allready.rules.slow.always_last import always_last  # counting alone needs no rule

    evidence = RunEvidence(lags=lags, expected_ranks=world_size)
    findings, _ = judge(Fleet(world=World(num_nodes=1, world_size=world_size), run_evidence=evidence), [always_last])
    return conclude(findings, Known(rules={always_last.code: always_last}, now=datetime.now(UTC))).verdict
