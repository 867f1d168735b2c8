"""The event logs of all ranks, joined: the failures that they agreed upon, who was late, who ended well."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.event_log import event_lags
from allready.judging.run_signs import WAITED
from allready.judging.stated import said
from allready.model import Death, Event, EventLog, Lag, Phrase, RuntimeFailure

_WENT_ON = "after a failure the group of ranks {ranks} went on from step {step}"


class JoinedEventLogs(Struct, frozen=True, kw_only=True):
    """What the ranks' event logs tell of the newest attempt of the job.

    `ended_well`: ranks that left cleanly after the last failure was recovered from.  `formed_s`: when the group
    had formed again after the last of the failures, by the clocks of its ranks; None where it did not.
    """

    world_size: int = 0
    failures: tuple[RuntimeFailure, ...] = ()
    lags: tuple[Lag, ...] = ()
    ended_well: frozenset[int] = frozenset()
    formed_s: float | None = None
    notes: tuple[Phrase, ...] = ()


def join_event_logs(logs: Sequence[EventLog]) -> JoinedEventLogs:
    """Those of the newest attempt; of two files of one rank (one is older) the newer tells the end, both failures."""
    if not logs:
        return JoinedEventLogs()
    newest = max(logs, key=lambda log: log.begin.time_s).begin.attempt
    now = sorted((log for log in logs if log.begin.attempt == newest), key=lambda log: log.begin.time_s)
    last = {log.begin.rank: log for log in now}
    agreed = {failure.epoch: failure for log in now for failure in log.failures}
    well = frozenset(r for r, log in last.items() if log.end is not None and not log.end.error and log.out is None)
    return JoinedEventLogs(
        world_size=max(log.begin.world_size for log in now),
        failures=tuple(failure for _, failure in sorted(agreed.items())),
        lags=tuple(event_lags(list(last.values()))),
        ended_well=well,
        formed_s=max((log.formed[-1].time_s for log in now if 0 < len(log.failures) <= len(log.formed)), default=None),
        notes=tuple(_notes(now, sorted(agreed))),
    )


def later_than_recovery(
    joined_logs: JoinedEventLogs, events: tuple[Event, ...], deaths: tuple[Death, ...]
) -> tuple[JoinedEventLogs, tuple[Event, ...], tuple[Death, ...]]:
    """Where ranks waited in vain once more after the last failure had been recovered from, that is what ended the job:
    without the failures, and without what ranks said because of them."""
    formed_s = joined_logs.formed_s
    if formed_s is None:
        return joined_logs, events, deaths
    said_s = [e.time_s for e in events if e.signature in WAITED and e.time_s is not None]
    said_s += [d.time_s for d in deaths if d.is_collective_error and d.time_s is not None]
    if max(said_s, default=formed_s) <= formed_s:
        return joined_logs, events, deaths
    note = said("{num} failures before had been recovered from", num=len(joined_logs.failures))
    return (
        replace(joined_logs, failures=(), notes=(*joined_logs.notes, note)),
        tuple(e for e in events if e.signature not in WAITED or (e.time_s or formed_s) > formed_s),
        tuple(d for d in deaths if not d.is_collective_error or (d.time_s or formed_s) > formed_s),
    )


def _notes(logs: Sequence[EventLog], epochs: Sequence[int]) -> list[Phrase]:
    formed = [event for log in logs for event in log.formed]
    found = []
    if len(epochs) > 1:
        found.append(said("{num} failures are in the event logs; the last one is judged", num=len(epochs)))
    if formed:
        last = max(formed, key=lambda event: event.time_s)
        ranks = ", ".join(map(str, last.members))
        found.append(said(_WENT_ON, ranks=ranks, step=max(last.steps)))
    return found
