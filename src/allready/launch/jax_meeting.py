"""Who is here of the JAX processes that wait for each other, and until when they try; pure logic.

Node 0's agent keeps it for the jobs of `allready run` (`agent.jax_meeting`), process 0 for the others
(`jax.roll_call`).
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from allready.launch.backoff import Backoff

MAX_SHOWN = 8
MAX_MISSING = 1024


class Patience(Struct, frozen=True, kw_only=True):
    """How often it is tried, for how long each time, and the pauses between."""

    attempts: int
    timeout_s: float
    backoff: Backoff


class JaxWaiting(Struct, frozen=True, kw_only=True):
    """A JAX process that waits for the others.  `coordinator`, `bind`: what the script gives, "" where it is ours;
    `failed`: attempts that JAX itself used up; `patience_s`: go on at least so long (the script's own time-out).

    Its agent adds `address` (where it listens for process 0), `is_ready` (it listens, or process 0 is reached) and
    `problem` (why not).
    """

    process: Annotated[int, Meta(ge=0)]
    num_processes: Annotated[int, Meta(ge=1, le=1 << 22)]
    coordinator: str = ""
    bind: str = ""
    failed: int = 0
    patience_s: float = 0.0
    address: str = ""
    is_ready: bool = False
    problem: str = ""


class Meeting(Struct, frozen=True, kw_only=True):
    """The JAX processes that name the same `coordinator` ("" is ours).  `why`: what they wait for now; `notes`: one for
    each attempt that failed; `address`: where process 0 listens; `missing`: the first of those that are not here; `go`
    or `give_up` ends it."""

    number: int
    coordinator: str
    num_processes: int
    why: str = ""
    notes: tuple[str, ...] = ()
    address: str = ""
    failed: int = 0
    go: str = ""
    give_up: str = ""
    missing: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the processes go on, or give up."""
        return bool(self.go or self.give_up)


class JaxMeeting:
    """The processes that name the same coordinator; `here`: those that wait now.

    Pure: the time is passed in.  `labels`: the nodes of the processes, where they are known.
    """

    def __init__(
        self, patience: Patience, first: JaxWaiting, *, number: int, now: float, labels: Sequence[str] = ()
    ) -> None:
        self.here: dict[int, JaxWaiting] = {}
        self._patience = patience
        self._state = Meeting(number=number, coordinator=first.coordinator, num_processes=first.num_processes)
        self._shared: Meeting | None = None
        self._labels = labels
        self._began = self._patience_until = now
        self._attempt_ends = now + patience.timeout_s

    @property
    def is_over(self) -> bool:
        return self._state.is_over

    @property
    def state(self) -> Meeting:
        """As of the last `news`."""
        return self._state

    def join(self, waiting: JaxWaiting, now: float) -> None:
        """A process is here, or has something new."""
        if waiting.process not in self.here:
            self._state = replace(self._state, failed=max(self._state.failed, waiting.failed))
            self._patience_until = max(self._patience_until, now + waiting.patience_s)
        self.here[waiting.process] = waiting

    def news(self, now: float, *, is_due: bool) -> Meeting | None:
        """The meeting, where it is another one than was shared last: at once when processes can go on by it."""
        if not self.is_over:
            first = self.here.get(0)
            missing = [n for n in range(self._state.num_processes) if n not in self.here]
            self._state = replace(
                self._state,
                why=self._why(missing),
                address=first.address if first is not None else "",
                missing=tuple(missing[:MAX_MISSING]),
            )
            if len(self.here) == self._state.num_processes and all(w.is_ready for w in self.here.values()):
                self._state = replace(self._state, go=self._state.address)
            elif now >= self._attempt_ends:
                self._fail(now)
        state, shared = self._state, self._shared
        is_urgent = state.is_over or shared is None or state.address != shared.address
        if state == shared or not (is_due or is_urgent):
            return None
        self._shared = state
        return state

    def _fail(self, now: float) -> None:
        patience, why, failed = self._patience, self._state.why, self._state.failed + 1
        self._state = replace(self._state, failed=failed)
        if failed >= patience.attempts and now >= self._patience_until:
            attempts = "1 attempt" if failed == 1 else f"{failed} attempts"
            self._state = replace(self._state, give_up=f"{why} after {attempts} ({now - self._began:.0f} s)")
            return
        wait_s = patience.backoff.wait_s(min(failed, patience.attempts) - 1)
        note = f"attempt {failed} of {max(patience.attempts, failed)}: {why}; again in {wait_s:.1f} s"
        self._state = replace(self._state, notes=(*self._state.notes, note))
        self._attempt_ends = now + wait_s + patience.timeout_s

    def _why(self, missing: Sequence[int]) -> str:
        size = self._state.num_processes
        if missing:
            noun, verb = ("process", "is") if len(missing) == 1 else ("processes", "are")
            return f"{noun} {self._listed(missing)} {verb} missing, {len(self.here)} of {size} are here"
        not_ready = [n for n, waiting in sorted(self.here.items()) if not waiting.is_ready]
        problem = next((w.problem for n in not_ready if (w := self.here[n]).problem), "not yet")
        if 0 in not_ready:
            return f"process {self._listed([0])}: {problem}"
        return f"process {self._listed(not_ready)} does not reach process {self._listed([0])}: {problem}"

    def _listed(self, processes: Sequence[int]) -> str:
        names = [f"{n} ({self._labels[n]})" if n < len(self._labels) else str(n) for n in processes[:MAX_SHOWN]]
        return ", ".join(names) + (f" and {len(processes) - MAX_SHOWN} more" if len(processes) > MAX_SHOWN else "")
