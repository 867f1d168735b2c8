"""A barrier over JAX's coordination service that names the processes that did not come."""

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from allready.errors import UsageError
from allready.jax.presence import Presence
from allready.model import CallPosition, FailureCause, MemberState, RankAtFailure, RankProcess, RuntimeFailure
from allready.runtime.durations import Duration, duration
from allready.runtime.failures import CollectiveFailed, HubLost

TIMEOUT = timedelta(minutes=5)
_counts: Counter[str] = Counter()


class _Place(Struct, frozen=True, kw_only=True):
    """The barrier that a process came to last."""

    label: str
    number: int


def barrier(name: str, *, timeout: Duration = TIMEOUT, processes: Sequence[int] | None = None) -> None:
    """All processes come here, or all that do get the same `CollectiveFailed`, whose verdict names the others.

    A process that comes later gets the same failure at once.  The job goes on: the next barrier is a new one.

    Args:
        name: shown in the verdict; may be used again.
        timeout: the service keeps it to about a second.
        processes: those that meet, where not all do.

    Raises:
        CollectiveFailed: agreed by all that came.
        HubLost: the service, which is in process 0, does not answer; what the others know is not known.
    """
    presence = Presence.current()
    members = tuple(range(presence.num_processes)) if processes is None else tuple(sorted(set(processes)))
    if presence.process not in members:
        raise UsageError("process {process} is none of those that meet", process=presence.process)
    label = name if processes is None else f"{name} of {','.join(map(str, members))}"
    _counts[label] += 1
    place = _Place(label=label, number=_counts[label])
    key = f"{label}/{place.number}"
    subset = [] if processes is None else [list(members)]
    begin_s = time.monotonic()
    try:
        presence.put(f"at/{presence.process}", msgspec.json.encode(place).decode())
        presence.client.wait_at_barrier(f"allready/{key}", round(duration(timeout).total_seconds() * 1000), *subset)
    except RuntimeError as error:  # the class of JAX's errors moves between versions
        failure = _Decision(presence, members, place, time.monotonic() - begin_s).failure(error)
    else:
        return
    raise CollectiveFailed(failure, operation=f"barrier {name}", number=place.number)


class _Decision:
    """Who was missing; the first process that knows decides for all."""

    def __init__(self, presence: Presence, members: tuple[int, ...], place: _Place, waited_s: float) -> None:
        self._presence, self._members, self._place, self._waited_s = presence, members, place, waited_s
        self._key = f"failed/{place.label}/{place.number}"

    def failure(self, error: Exception) -> RuntimeFailure:
        """Raises HubLost: the service is gone."""
        try:
            found = self._decided()
            if found is None:
                own = self._own_view()
                with contextlib.suppress(RuntimeError):  # another process was first
                    self._presence.put(f"{self._key}/verdict", msgspec.json.encode(own).decode(), once=True)
                found = self._decided()
        except RuntimeError:
            raise HubLost(None, operation=f"barrier {self._place.label}", text=_gone(error)) from error
        if found is None:
            raise HubLost(None, operation=f"barrier {self._place.label}", text=_gone(error)) from error
        return found

    def _decided(self) -> RuntimeFailure | None:
        text = self._presence.all(self._key).get("verdict")
        return None if text is None else msgspec.json.decode(text, type=RuntimeFailure)

    def _own_view(self) -> RuntimeFailure:
        presence, place = self._presence, self._place
        at = {int(n): msgspec.json.decode(text, type=_Place) for n, text in presence.all("at").items()}
        processes = {
            int(n): msgspec.json.decode(text, type=RankProcess) for n, text in presence.all("processes").items()
        }
        missing = {n for n in self._members if at.get(n) != place}
        alive = presence.alive(missing)
        operation = f"barrier {place.label}"
        ranks = []
        for n in self._members:
            state = MemberState.ANSWERED if n not in missing or n in alive else MemberState.SILENT
            call: CallPosition | None = None
            if n not in missing:
                call = CallPosition(
                    entered=place.number, completed=place.number - 1, operation=operation, waited_s=self._waited_s
                )
            elif n in alive:
                call = CallPosition(entered=place.number - 1, completed=place.number - 1, operation=_last(at.get(n)))
            ranks.append(RankAtFailure(rank=n, process=processes.get(n, RankProcess()), state=state, call=call))
        return RuntimeFailure(
            epoch=0,
            cause=FailureCause.DEADLINE,
            reporter=presence.process,
            ranks=tuple(ranks),
            first_void=place.number,
            time=datetime.now(UTC).isoformat(),
        )


def _last(place: _Place | None) -> str:
    return "" if place is None else f"barrier {place.label}"


def _gone(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0][:300]
    return f"the coordination service of JAX, in process 0, does not answer: {first}"
