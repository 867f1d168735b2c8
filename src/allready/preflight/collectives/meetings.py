"""Pairs and groups of ranks that measure among themselves, in rounds: inside a rank.

Each pair and group has a process group of its own, connected when it meets and with a short timeout: one that is
blocked fails alone, and the rounds go on.  All members end a round together, by a counter in the store, so that a
partner who is still busy does not look like a blocked path.
"""

import functools
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import convert
from msgspec.structs import asdict, replace

from allready.judging.bisection import MIN_MEMBERS, num_levels, search
from allready.judging.pair_matrix import read_matrix, suspects
from allready.judging.passes import is_known, kept, together
from allready.model import GroupPoint, PairPoint
from allready.preflight.collectives.rank_side import RankSide, last_line
from allready.preflight.collectives.spec import MAX_AGAIN, MAX_ROUNDS, PAIR_S
from allready.preflight.collectives.wire import Rail
from allready.preflight.reach.schedule import disjoint_rounds, make_schedule

_REPEATS = 5, 200
_ENOUGH_GROUP_S = 1.2
_ENOUGH_S = 0.15  # of one direction of a pair: longer than what a scheduler does to a process
_ENOUGH_LONG_S = 0.6  # the same in a bisection, which has few rounds
_SURE, _MAX_BATCHES = 0.02, 2  # there a pair is measured so often at most, until its rate is known that well
_CONFIRMING = 2  # rounds that a bisection usually has after its pairs
_PASSES_SHARE = 0.5  # of the time of `pairs`, for measuring all of them again where rates differ
_SMALL_REPEATS = 7
_POLL_S = 0.005
SPIN_S = 1e-3  # a few bytes between two GPUs take less than waking up does
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


def noise_of(times: Sequence[float]) -> float:
    """Two standard errors of the lower quartile of these, as a share of it."""
    if len(times) < _REPEATS[0]:
        return 0.0
    low, middle, _ = statistics.quantiles(times, n=4)
    deviation = (middle - low) / 0.6745  # of a normal distribution with these quartiles
    return 2 * 1.363 * deviation / low / math.sqrt(len(times))


def usual(times: Sequence[float]) -> float:
    """The lower quartile: other work on the machine only makes single times longer, a slow link all of them."""
    return statistics.quantiles(times, n=4)[0] if len(times) > 1 else times[0]


def _has_failed_again(points: Iterable[GroupPoint]) -> bool:
    """Once may be an accident: on a busy machine a member comes too late for the library."""
    return sum(p.gb_per_s is None for p in points) > 1


def turns(rails: Sequence[Rail]) -> list[list[Rail]]:
    """Rails that can be measured at the same time, because no rank is in two of them; in their order."""
    found: list[list[Rail]] = []
    for rail in rails:
        free = next((turn for turn in found if not any({*rail.members} & {*o.members} for o in turn)), None)
        if free is None:
            found.append([rail])
        else:
            free.append(rail)
    return found


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
        self._round = self._num_decided = 0
        self._began = self._last_s = 0.0  # of the search; how long its last round took
        self._mine: dict[tuple[int, int], PairPoint] = {}  # what this rank sent on the present rail
        self._rates: dict[tuple[int, int], list[float]] = {}  # the same, each time

    def pairs(self) -> tuple[int, int]:
        """Every two members of each rail measure both directions; returns rounds done, and planned.

        Where rates differ, all are measured again, and what looks slow then once more: other work on the machine makes
        a pair slow now and then, a bad link does so always.
        """
        rails = self._side.orders.rails
        self._members = tuple(sorted({m for rail in rails for m in rail.members}))
        self._sync("pairs/ready", _READY_S)
        self._began = time.monotonic()
        done = planned = 0
        for turn in turns(rails):
            mine = next((rail for rail in turn if self._rank in rail.members), None)
            plans = [make_schedule(rail.members, max_rounds=MAX_ROUNDS, seed="pairs").rounds for rail in turn]
            own: Sequence[Sequence[tuple[int, int]]] = plans[turn.index(mine)] if mine is not None else ()
            num_rounds = max(map(len, plans))
            began = time.monotonic()
            done += self._rounds(mine, own, num_rounds)
            planned += num_rounds
            while not self._are_known(turn, began):
                self._rounds(mine, own, num_rounds)
            own, num_rounds = self._again(turn, mine)
            self._rounds(mine, own, num_rounds)
            self._mine.clear()
            self._rates.clear()
        return done, planned

    def _rounds(self, rail: Rail | None, rounds: Sequence[Sequence[tuple[int, int]]], num_rounds: int) -> int:
        """So many rounds, of which this rank's rail has `rounds`; ends early, on all ranks, where no more fit."""
        for number in range(num_rounds):
            if not self._decided(self._is_room):
                return number
            began = time.monotonic()
            self._side.mark(0, self._round, self._round - 1)
            pair = next((p for p in rounds[number] if self._rank in p), None) if number < len(rounds) else None
            if rail is not None and pair is not None:
                self._pair(rail, *pair)
            self._sync(f"pairs/{self._round}")
            self._round += 1
            self._last_s = time.monotonic() - began
        return num_rounds

    def _is_room(self, num_rounds: int = 1) -> bool:
        """Whether so many more rounds end in time, if each takes as long as the last one."""
        took_s = time.monotonic() - self._began
        return took_s + num_rounds * self._last_s <= self._side.orders.sweep_budget_s

    def _decided(self, decide: Callable[[], Any]) -> Any:
        """What the lowest member decides, on all ranks; it may be anything that JSON can carry."""
        key = f"pairs/{self._round}/decided/{self._num_decided}"
        self._num_decided += 1
        if self._rank == self._members[0]:
            self._store.set(key, json.dumps(decide()))
        return json.loads(self._store.get(key))

    def _are_known(self, turn: Sequence[Rail], began: float) -> bool:
        """Whether the rates of all rails that are measured now are known, or no time is left for more of them."""
        key = f"pairs/{self._round}/rates"
        self._store.set(f"{key}/{self._rank}", json.dumps([[*of, rates] for of, rates in self._rates.items()]))
        self._sync(key)

        def decide() -> bool:
            rails = [self._passes(key, rail) for rail in turn]
            took_s = time.monotonic() - began
            next_s = took_s / max(1, *map(len, rails))
            most_s = _PASSES_SHARE * self._side.orders.sweep_budget_s
            is_late = took_s + next_s > most_s or time.monotonic() - self._began + next_s > most_s
            return is_late or all(not passes or is_known(passes) for passes in rails)

        return bool(self._decided(decide))

    def _passes(self, key: str, rail: Rail) -> list[dict[tuple[int, int], float]]:
        """What each pass measured on a rail, of the pairs that every one measured."""
        rows = [row for member in rail.members for row in json.loads(self._store.get(f"{key}/{member}"))]
        number = max((len(rates) for *_, rates in rows), default=0)
        whole = [(a, b, rates) for a, b, rates in rows if len(rates) == number]
        return [{(a, b): rates[i] for a, b, rates in whole} for i in range(number)]

    def _again(self, turn: Sequence[Rail], mine: Rail | None) -> tuple[Sequence[Sequence[tuple[int, int]]], int]:
        """Rounds in which the pairs of this rank's rail that look slow meet again; and the most of any rail."""
        key = f"pairs/{self._round}/seen"
        self._store.set(f"{key}/{self._rank}", json.dumps([asdict(p) for p in self._mine.values()]))
        self._sync(key)

        def decide() -> list[Any]:
            return [self._suspects(key, rail) for rail in turn]

        plans = self._decided(decide)
        own = plans[turn.index(mine)] if mine is not None else []
        return [[(a, b) for a, b in pairs] for pairs in own], max(map(len, plans))

    def _suspects(self, key: str, rail: Rail) -> Sequence[Sequence[tuple[int, int]]]:
        points = [p for m in rail.members for p in convert(json.loads(self._store.get(f"{key}/{m}")), list[PairPoint])]
        slow = suspects(read_matrix(points), [(p.sender, p.receiver) for p in points if p.gb_per_s is not None])
        failed = {p.ends for p in points if p.num_failed}
        return disjoint_rounds((*sorted(failed), *(pair for pair in slow if pair not in failed)), max_rounds=MAX_AGAIN)

    def bisect(self) -> int:
        """Measure groups until `judging.bisection.search` has its answer, or the time is over; returns the rounds."""
        self._sync("bisect/ready", _READY_S)
        self._began = time.monotonic()
        rounds: list[list[GroupPoint]] = []
        while (groups := search(self._members, rounds).groups) and self._decided(self._is_room):
            points = self._bisect_round(len(rounds), groups)
            rounds.append(points)
            for point in points:
                if point.members[0] == self._rank:
                    self._side.send("group", group=asdict(point))
        return len(rounds)

    def _bisect_round(self, number: int, groups: Sequence[tuple[int, ...]]) -> list[GroupPoint]:
        """The groups of one round, measured until their rates are known.

        Not longer than leaves time for the rounds that are still to come.
        """
        seen: list[dict[tuple[int, ...], GroupPoint]] = []
        rates: list[dict[tuple[int, ...], float]] = []
        num_left = max(0, num_levels(self._members) - number - 1) + _CONFIRMING
        is_room = True
        mine = next((group for group in groups if self._rank in group), None)
        while is_room and not (
            is_known(rates) or any(_has_failed_again(each[group] for each in seen) for group in groups)
        ):
            began = time.monotonic()
            self._side.mark(0, self._round, self._round - 1)
            key = f"bisect/{number}/{len(seen)}"
            if mine is not None:
                self._group(key, mine)
            self._sync(key)
            seen.append({group: self._result(key, number, group) for group in groups})
            rates.append({group: p.gb_per_s for group, p in seen[-1].items() if p.gb_per_s is not None})
            self._last_s = time.monotonic() - began
            # What failed is tried once more before it is accused, also where another round does not fit then.
            num_needed = 1 if len(rates[-1]) < len(groups) else 1 + num_left
            is_room = self._decided(functools.partial(self._is_room, num_needed))
            self._round += 1
        of_all = together(rates)
        return [self._merged([each[group] for each in seen], of_all.get(group)) for group in groups]

    @staticmethod
    def _merged(points: Sequence[GroupPoint], rate: float | None) -> GroupPoint:
        """A group after its passes; it failed where all of them did."""
        failed = [p for p in points if p.gb_per_s is None]
        noise = max(p.noise_share for p in points) / math.sqrt(len(points))
        return replace(
            (failed or points)[-1], gb_per_s=rate, noise_share=noise, num_measured=len(points), num_failed=len(failed)
        )

    # One meeting.

    def _pair(self, rail: Rail, low: int, high: int) -> None:
        """Both directions between two ranks; the sender reports, also that it failed."""
        partner = high if self._rank == low else low
        point = PairPoint(
            sender=self._rank, receiver=partner, size_bytes=self._size_bytes, gb_per_s=None, rail=rail.name
        )
        try:
            key = f"pair/{self._round}/{low}-{high}"
            group = self._connect(key, (low, high), rail.addresses.get(self._rank, ""))
            times, latency_s = self._both_ways(group, _ENOUGH_S, 1, is_first=self._rank == low)
            rate = self._size_bytes / without_reply_s(usual(times), latency_s) / 1e9
            point = replace(point, gb_per_s=rate, latency_s=latency_s)
        except Exception as error:  # noqa: BLE001 - whatever the library says, this pair failed and the rest goes on
            point = replace(point, error=last_line(error)[:_MAX_ERROR])
        before = self._mine.get((self._rank, partner), replace(point, num_measured=0, error=""))
        rates = self._rates.setdefault((self._rank, partner), [])
        has_failed = point.gb_per_s is None
        if point.gb_per_s is not None:
            rates.append(point.gb_per_s)
        self._mine[self._rank, partner] = point = replace(
            point,
            gb_per_s=kept(rates) if rates else None,
            latency_s=before.latency_s if has_failed else point.latency_s,
            error=point.error or before.error,
            num_measured=before.num_measured + 1,
            num_failed=before.num_failed + has_failed,
        )
        self._side.send("pair", pair=asdict(point))

    def _both_ways(
        self, group: Any, enough_s: float, most_batches: int, *, is_first: bool
    ) -> tuple[list[float], float]:
        """Seconds of each buffer that this one of two ranks sent, the reply included; and the latency.

        Both directions are measured for `enough_s`, and again, at most `most_batches` times, while both are not known
        well.
        """
        latency_s = statistics.median(self._echo(group, self._little, _SMALL_REPEATS, is_first=is_first)) / 2
        took_s = statistics.median(self._echo(group, self._buffer, 1, is_first=is_first))
        repeats = self._agree(group, _clamped(round(enough_s / max(took_s, 1e-9))), is_first=is_first)
        sent: list[float] = []
        received: list[float] = []
        for number in range(most_batches):
            for is_sender in (is_first, not is_first):
                (sent if is_sender else received).extend(self._echo(group, self._buffer, repeats, is_first=is_sender))
            is_last = number + 1 == most_batches
            if is_last or not self._agree(group, max(map(noise_of, (sent, received))) > _SURE, is_first=is_first):
                break
        return sent, latency_s

    def _group(self, key: str, members: tuple[int, ...]) -> None:
        """What a group reaches; every member leaves in the store what it saw."""
        key = f"{key}/{'-'.join(map(str, members))}"
        error, rate, noise = "", 0.0, 0.0
        try:
            rate, noise = self._two_by_two(key, members) if len(members) < MIN_MEMBERS else self._together(key, members)
        except Exception as caught:  # noqa: BLE001 - as above
            error = last_line(caught)[:_MAX_ERROR]
        self._store.set(f"{key}/{self._rank}", f"{0.0 if error else rate!r} {noise!r} {error}")

    def _together(self, key: str, members: tuple[int, ...]) -> tuple[float, float]:
        """Busbw of all_reduce within a group, and how far it is known."""
        n = len(members)
        group = self._connect(key, members)
        self._timed_group(group, 1)
        [longest_s] = self._timed_group(group, 1)
        shared = self._torch.tensor([longest_s], dtype=self._torch.float32, device=self._device)
        self._finish(group, group.allreduce([shared]))
        times = self._timed_group(group, _clamped(round(_ENOUGH_GROUP_S / max(float(shared.item()), 1e-9))))
        return self._size_bytes / usual(times) / 1e9 * 2 * (n - 1) / n, noise_of(times)

    def _two_by_two(self, key: str, members: tuple[int, ...]) -> tuple[float, float]:
        """The slowest direction in which this rank sends to another of two or three; one pair after the other.

        Far less noisy than all_reduce: only one rank at a time has something to do.  The third one waits until it is
        next before it connects, because the library would not wait for as long.
        """
        rate, noise = math.inf, 0.0
        for low, high in itertools.combinations(members, 2):
            over = f"{key}/{low}-{high}/over"
            if self._rank in {low, high}:
                try:
                    group = self._connect(f"{key}/{low}-{high}", (low, high))
                    is_first = self._rank == low
                    times, latency_s = self._both_ways(group, _ENOUGH_LONG_S, _MAX_BATCHES, is_first=is_first)
                finally:
                    self._store.add(over, 1)
                rate = min(rate, self._size_bytes / without_reply_s(usual(times), latency_s) / 1e9)
                noise = max(noise, noise_of(times))
            if len(members) > 2:
                self._until(over, 2, _SYNC_S)
        return rate, noise

    def _result(self, key: str, number: int, members: tuple[int, ...]) -> GroupPoint:
        """What a group measured: its slowest member, and nothing where one failed; the same on every rank."""
        key = f"{key}/{'-'.join(map(str, members))}"
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

    def _agree(self, group: Any, number: int, *, is_first: bool) -> int:
        """The number that the first of two ranks has, on both."""
        word = self._torch.tensor([float(number)], dtype=self._torch.float32, device=self._device)
        self._finish(group, group.send([word], 1, 0) if is_first else group.recv([word], 0, 0))
        return int(word.item())

    def _connect(self, key: str, members: Sequence[int], address: str = "") -> Any:
        """A process group of these ranks; of Gloo over the network of this rank's `address`.

        Raises:
            RuntimeError: they cannot be connected within PAIR_S.
        """
        dist = self._dist
        store = dist.PrefixStore(key, self._store)
        store.set_timeout(timedelta(seconds=PAIR_S))
        place, limit = members.index(self._rank), timedelta(seconds=_CONNECT_S)
        if self._device.type != "cuda":
            group = self._gloo(store, place, len(members), limit, address)
        else:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timedelta(seconds=PAIR_S)  # noqa: SLF001 - torch has no public name for it
            group = dist.ProcessGroupNCCL(store, place, len(members), options)
        self._kept.append(group)
        return group

    def _gloo(self, store: Any, place: int, count: int, limit: timedelta, address: str) -> Any:
        gloo = self._dist.ProcessGroupGloo
        if not address:
            return gloo(store, place, count, limit)
        options = gloo._Options()  # noqa: SLF001 - torch has no public name for them
        options._timeout, options._devices = limit, [gloo.create_device(hostname=address)]  # noqa: SLF001
        return gloo(store, place, count, options)

    def _echo(self, group: Any, tensor: Any, repeats: int, *, is_first: bool) -> list[float]:
        """Send `tensor` to the other of two ranks and get a few bytes back; the seconds of each time but the first."""
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
        return times[1:]

    def _finish(self, group: Any, work: Any) -> None:
        """Wait for one operation, for PAIR_S at most.

        Raises:
            RuntimeError, MeetingError: it failed, or did not end in time.
        """
        if self._device.type != "cuda":
            work.wait(timedelta(seconds=PAIR_S))
            return
        began = time.monotonic()
        while not work.is_completed():
            took_s = time.monotonic() - began
            if took_s > PAIR_S:
                group.abort()
                raise MeetingError(f"not completed after {PAIR_S:.0f} s")
            if took_s > SPIN_S:
                time.sleep(2e-5)
        work.wait()
        self._torch.cuda.current_stream(self._device).synchronize()

    def _sync(self, key: str, limit_s: float = _SYNC_S) -> None:
        """Until all members have ended this round.

        Raises:
            MeetingError: one did not, long after every meeting must be over.
        """
        if self._rank in self._members:
            self._store.add(key, 1)
        self._until(key, len(self._members), limit_s)

    def _until(self, key: str, number: int, limit_s: float) -> None:
        """Until so many have counted.

        Raises:
            MeetingError: they did not.
        """
        deadline = time.monotonic() + limit_s
        while self._store.add(key, 0) < number:
            if time.monotonic() > deadline:
                raise MeetingError(f"{key}: a rank did not come back within {limit_s:.0f} s")
            time.sleep(_POLL_S)
