"""Pairs and groups of ranks that measure among themselves, in rounds: inside a rank.

Each pair and group has a process group of its own, connected when it meets and with a short timeout: one that is
blocked fails alone, and the rounds go on.  All members end a round together, by a counter in the store, so that a
partner who is still busy does not look like a blocked path.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import asdict

from allready.judging.bisection import search
from allready.model import GroupPoint, PairPoint
from allready.preflight.collectives.rank_side import RankSide, last_line
from allready.preflight.collectives.spec import PAIR_S
from allready.preflight.reach.schedule import make_schedule

_REPEATS = 5, 200
_ENOUGH_GROUP_S = 1.2
_ENOUGH_S = 0.15  # of one direction of a pair: longer than what a scheduler does to a process
_SMALL_REPEATS = 7
_POLL_S = 0.005
_CONNECT_S = 3.0  # Gloo tries several times for so long each
_SYNC_S = 9 * PAIR_S
_READY_S = 600.0  # long after node 0 has named the rank that is still in an earlier stage
_MAX_ERROR = 300


def _clamped(repeats: int) -> int:
    return min(max(repeats, _REPEATS[0]), _REPEATS[1])


def without_reply_s(took_s: float, latency_s: float) -> float:
    """What a buffer took without the way of its reply.

    Where other work delayed the small messages, their latency is no measure of that way: at most half is taken off.
    """
    return took_s - min(latency_s, took_s / 2)


class MeetingError(Exception):
    """A pair or group did not get through in time."""


class Meetings:
    """Collective: every rank of the run makes one and calls the same method."""

    def __init__(self, torch: Any, dist: Any, side: RankSide, store: Any, device: Any) -> None:
        self._torch, self._dist, self._side, self._store, self._device = torch, dist, side, store, device
        self._rank, self._members = side.orders.rank, side.orders.members
        self._size_bytes = max(side.orders.sizes)
        self._buffer = torch.zeros(self._size_bytes // 4, dtype=torch.float32, device=device)
        self._little = torch.zeros(1, dtype=torch.float32, device=device)
        self._kept: list[Any] = []  # groups that failed: ending one may block

    def pairs(self) -> int:
        """Every two members measure both directions; returns the number of rounds."""
        self._sync("pairs/ready", _READY_S)
        schedule = make_schedule(self._members, seed="pairs")
        for number, pairs in enumerate(schedule.rounds):
            self._side.mark(0, number, number - 1)
            mine = next((pair for pair in pairs if self._rank in pair), None)
            if mine is not None:
                self._pair(number, *mine)
            self._sync(f"pairs/{number}")
        return len(schedule.rounds)

    def bisect(self) -> int:
        """Measure groups until `judging.bisection.search` has its answer; returns the number of rounds."""
        self._sync("bisect/ready", _READY_S)
        rounds: list[list[GroupPoint]] = []
        while groups := search(self._members, rounds).groups:
            number = len(rounds)
            self._side.mark(0, number, number - 1)
            mine = next((group for group in groups if self._rank in group), None)
            if mine is not None:
                self._group(number, mine)
            self._sync(f"bisect/{number}")
            rounds.append([self._result(number, group) for group in groups])
            for point in rounds[-1]:
                if point.members[0] == self._rank:
                    self._side.send("group", group=asdict(point))
        return len(rounds)

    # One meeting.

    def _pair(self, number: int, low: int, high: int) -> None:
        """Both directions between two ranks; the sender reports, also that it failed."""
        partner = high if self._rank == low else low
        try:
            group = self._connect(f"pair/{number}/{low}-{high}", (low, high))
            latency_s = self._echo(group, self._little, _SMALL_REPEATS, is_first=self._rank == low) / 2
            took_s = self._echo(group, self._buffer, 1, is_first=self._rank == low)
            repeats = self._agree(group, round(_ENOUGH_S / max(took_s, 1e-9)), is_first=self._rank == low)
            times = {}
            for sender in (low, high):
                times[sender] = self._echo(group, self._buffer, repeats, is_first=self._rank == sender)
            rate = self._size_bytes / without_reply_s(times[self._rank], latency_s) / 1e9
            point = PairPoint(
                sender=self._rank, receiver=partner, size_bytes=self._size_bytes, gb_per_s=rate, latency_s=latency_s
            )
        except Exception as error:  # noqa: BLE001 - whatever the library says, this pair failed and the rest goes on
            point = PairPoint(
                sender=self._rank,
                receiver=partner,
                size_bytes=self._size_bytes,
                gb_per_s=None,
                error=last_line(error)[:_MAX_ERROR],
            )
        self._side.send("pair", pair=asdict(point))

    def _group(self, number: int, members: tuple[int, ...]) -> None:
        """all_reduce within a group; every member leaves in the store what it saw."""
        n = len(members)
        key = f"bisect/{number}/{'-'.join(map(str, members))}"
        error, took_s, noise = "", 0.0, 0.0
        try:
            group = self._connect(key, members)
            self._timed_group(group, 1)
            [longest_s] = self._timed_group(group, 1)
            shared = self._torch.tensor([longest_s], dtype=self._torch.float32, device=self._device)
            self._finish(group, group.allreduce([shared]))
            times = self._timed_group(group, _clamped(round(_ENOUGH_GROUP_S / max(float(shared.item()), 1e-9))))
            took_s = statistics.median(times)
            low, _, high = statistics.quantiles(times, n=4)
            deviation = (high - low) / 1.349  # of a normal distribution with these quartiles
            noise = 2 * 1.253 * deviation / took_s / math.sqrt(len(times))
        except Exception as caught:  # noqa: BLE001 - as above
            error = last_line(caught)[:_MAX_ERROR]
        rate = 0.0 if error else self._size_bytes / took_s / 1e9 * 2 * (n - 1) / n
        self._store.set(f"{key}/{self._rank}", f"{rate!r} {noise!r} {error}")

    def _result(self, number: int, members: tuple[int, ...]) -> GroupPoint:
        """What a group measured: its slowest member, and nothing where one failed; the same on every rank."""
        key = f"bisect/{number}/{'-'.join(map(str, members))}"
        seen = [self._store.get(f"{key}/{member}").decode().split(" ", 2) for member in members]
        rate = min(float(rate) for rate, _, _ in seen)
        return GroupPoint(
            round=number,
            members=members,
            size_bytes=self._size_bytes,
            gb_per_s=rate or None,
            noise_share=max(float(noise) for _, noise, _ in seen),
            error=next((error for _, _, error in seen if error), ""),
        )

    def _timed_group(self, group: Any, repeats: int) -> list[float]:
        """Seconds of each of so many all_reduce."""
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            self._finish(group, group.allreduce([self._buffer]))
            times.append(time.perf_counter() - begin)
        return times

    def _agree(self, group: Any, repeats: int, *, is_first: bool) -> int:
        """The number of repetitions that the first of two ranks wants, on both."""
        word = self._torch.tensor([float(_clamped(repeats))], dtype=self._torch.float32, device=self._device)
        self._finish(group, group.send([word], 1, 0) if is_first else group.recv([word], 0, 0))
        return int(word.item())

    def _connect(self, key: str, members: Sequence[int]) -> Any:
        """A process group of these ranks.

        Raises:
            RuntimeError: they cannot be connected within PAIR_S.
        """
        dist = self._dist
        store = dist.PrefixStore(key, self._store)
        store.set_timeout(timedelta(seconds=PAIR_S))
        place, limit = members.index(self._rank), timedelta(seconds=_CONNECT_S)
        if self._device.type != "cuda":
            group = dist.ProcessGroupGloo(store, place, len(members), limit)
        else:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timedelta(seconds=PAIR_S)  # noqa: SLF001 - torch has no public name for it
            group = dist.ProcessGroupNCCL(store, place, len(members), options)
        self._kept.append(group)
        return group

    def _echo(self, group: Any, tensor: Any, repeats: int, *, is_first: bool) -> float:
        """Send `tensor` to the other of two ranks and get a few bytes back; the median time of it in seconds."""
        other = 1 if group.rank() == 0 else 0
        times = []
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            steps: tuple[Callable[[], Any], ...] = (
                lambda: group.send([tensor], other, 0),
                lambda: group.recv([self._little], other, 0),
            )
            if not is_first:
                steps = (lambda: group.recv([tensor], other, 0), lambda: group.send([self._little], other, 0))
            for step in steps:
                self._finish(group, step())
            times.append(time.perf_counter() - begin)
        return statistics.median(times[1:])

    def _finish(self, group: Any, work: Any) -> None:
        """Wait for one operation, for PAIR_S at most.

        Raises:
            RuntimeError, MeetingError: it failed, or did not end in time.
        """
        if self._device.type != "cuda":
            work.wait(timedelta(seconds=PAIR_S))
            return
        deadline = time.monotonic() + PAIR_S
        while not work.is_completed():
            if time.monotonic() > deadline:
                group.abort()
                raise MeetingError(f"not completed after {PAIR_S:.0f} s")
            time.sleep(2e-5)
        work.wait()
        self._torch.cuda.current_stream(self._device).synchronize()

    def _sync(self, key: str, limit_s: float = _SYNC_S) -> None:
        """Until all members have ended this round.

        Raises:
            MeetingError: one did not, long after every meeting must be over.
        """
        deadline = time.monotonic() + limit_s
        if self._rank in self._members:
            self._store.add(key, 1)
        while self._store.add(key, 0) < len(self._members):
            if time.monotonic() > deadline:
                raise MeetingError(f"{key}: a rank did not come back within {limit_s:.0f} s")
            time.sleep(_POLL_S)
