"""The event logs of all ranks, joined: the failures that they agreed upon, who was late, who ended well."""

from collections.abc import Sequence

from msgspec import Struct

from allready.evidence.event_log import event_lags
from allready.model import EventLog, Lag, RuntimeFailure


class Told(Struct, frozen=True, kw_only=True):
    """What the ranks' event logs tell of the newest attempt of the job.

    `ended_well`: ranks that left in good order after the last failure was recovered from.
    """

    world_size: int = 0
    failures: tuple[RuntimeFailure, ...] = ()
    lags: tuple[Lag, ...] = ()
    ended_well: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def join_event_logs(logs: Sequence[EventLog]) -> Told:
    """Those of the newest attempt; of two files of one rank (one is older) the newer tells the end, both failures."""
    if not logs:
        return Told()
    newest = max(logs, key=lambda log: log.begin.time_s).begin.attempt
    now = sorted((log for log in logs if log.begin.attempt == newest), key=lambda log: log.begin.time_s)
    last = {log.begin.rank: log for log in now}
    agreed = {failure.epoch: failure for log in now for failure in log.failures}
    well = frozenset(r for r, log in last.items() if log.end is not None and not log.end.error and log.out is None)
    return Told(
        world_size=max(log.begin.world_size for log in now),
        failures=tuple(failure for _, failure in sorted(agreed.items())),
        lags=tuple(event_lags(list(last.values()))),
        ended_well=well,
        notes=tuple(_notes(now, sorted(agreed))),
    )


def _notes(logs: Sequence[EventLog], epochs: Sequence[int]) -> list[str]:
    formed = [event for log in logs for event in log.formed]
    found = []
    if len(epochs) > 1:
        found.append(f"{len(epochs)} failures are in the event logs; the last one is judged")
    if formed:
        last = max(formed, key=lambda event: event.time_s)
        ranks = ", ".join(map(str, last.members))
        found.append(f"after a failure the group of ranks {ranks} went on from step {max(last.steps)}")
    return found
