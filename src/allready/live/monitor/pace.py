"""When ranks entered their operations, and whether these were the same: from what agents send every second.

The judge gives every `NodeStatus` to a `PaceBook` and asks it: who is late (`lags`), whose operations differ
(`mismatches`), and how the job's rhythm is (`rhythms`), which says how long a silence is unusual.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from allready.judging.group_calls import GroupCalls
from allready.judging.lateness import Times, is_awaited, lateness, period_of
from allready.judging.sequence import numbered
from allready.judging.shifts import call_shift
from allready.live.digests import UNKNOWN, call_of, differ, is_same_operation, name_of, root_of
from allready.live.monitor.own_work import MAX_OTHERS, own_shares
from allready.live.monitor.pace_lines import PaceLine
from allready.model import CallShift, Lag, Mismatch, NodeStatus, Operation, PaceSample, Recorder

WINDOW_S = 30.0
RECENT_S = 6.0
"""Long enough for six of the stop pulses that come once a second, short enough to tell within seconds."""
LAGS_EVERY_S = 0.9
MIN_OPERATIONS = 10
MAX_OPERATIONS = 1_200
"""Of one rank in one group; 8 s at 150 a second, which is long against any step that has so many."""
MAX_KEPT = 1_500_000
"""Operations of all ranks and groups together: about 50 MB.  Of a thousand ranks fewer are kept of each."""
MAX_GROUPS = 4_096
MIN_NOISE_S = 0.0005
JUMP_S = 0.02
"""A node's clock that moves so much against node 0's, and more than is unsure of it, was set."""
IMPOSSIBLE = 1.5
"""No rank can be later than the others ever waited: a rank late by more than this times their longest wait has a clock
that is wrong by an unknown amount.
"""
MAX_CALLS = 2_100
LONG = 0.1
"""A wait longer than this share of an iteration is counted."""
SINGLE = 2
LATE = 0.05
"""Share of the time for which others wait for a rank, from which on it is asked whether that is its own work."""


class Rhythm(Struct, frozen=True, kw_only=True):
    """Time of one iteration of the loop, or from one operation to the next where operations do not repeat, over the
    last half minute; and the longest time between two operations ever, on any rank."""

    period_s: float
    longest_gap_s: float


class Leading(Struct, frozen=True, kw_only=True):
    """The record of one rank in the group with most ranks; `calls` of an iteration, None where they do not repeat."""

    group: str
    title: str
    rank: int
    line: PaceLine
    calls: int | None


class _Group(Struct):
    members: tuple[int, ...] = ()
    label: str = ""
    generation: int = 0
    lines: dict[int, PaceLine] = {}
    reference: dict[int, int] = {}  # number -> the digest that came first
    first_odd: int | None = None
    mismatch: Mismatch | None = None


class PaceBook:
    """A bounded memory of operations.  `add` is cheap; the questions take milliseconds and are asked once a second."""

    def __init__(self, *, window_s: float = WINDOW_S, most_operations: int = MAX_OPERATIONS) -> None:
        self._window_s = window_s
        self._most_operations = most_operations
        self._attempt: int | None = None
        self._groups: dict[str, _Group] = {}
        self._offsets: dict[int, tuple[float, float]] = {}  # node -> (offset, uncertainty)
        self._node_of: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._num_lines = 0
        self._newest_s = 0.0
        self._lags: tuple[float, float, tuple[Lag, ...]] | None = None
        self._shift: tuple[float, CallShift | None] | None = None

    def add(self, status: NodeStatus) -> None:
        """Take one node's word, in the order of arrival.

        Another attempt than the last one begins a new book, and so does another process of a rank: the others' groups
        of the time before are over, or count their operations anew.
        """
        if status.attempt != self._attempt:
            if self._attempt is not None and status.attempt < self._attempt:
                return  # a word of the past
            self._attempt = status.attempt
            self.begin_anew()
        pids = {rank.rank: rank.pid for rank in status.ranks if rank.pid is not None}
        if any(self._pids.get(rank, pid) != pid for rank, pid in pids.items()):
            self.begin_anew()
        self._pids |= pids
        self._newest_s = max(self._newest_s, status.by_node_0(status.time_s))
        jumped = self._take_clock(status)
        for rank in status.ranks:
            self._node_of[rank.rank] = status.node_rank
            for mark in rank.groups:
                group = self._group(mark.group)
                if group is not None and mark.members:
                    group.members, group.label = mark.members, mark.label
        for sample in status.pace:
            if sample.rank in self._node_of:
                self._take_sample(sample, status.time_s, is_sure=not jumped)

    def begin_anew(self) -> None:
        """Forget all operations."""
        self._groups.clear()
        self._node_of.clear()
        self._pids.clear()
        self._num_lines = 0
        self._newest_s = 0.0
        self._lags = self._shift = None

    def _take_clock(self, status: NodeStatus) -> bool:
        """Whether the node's clock was set since its last message; what was kept of its times is then of no use."""
        before = self._offsets.get(status.node_rank)
        self._offsets[status.node_rank] = (status.clock_offset_s, status.clock_uncertainty_s)
        if before is None:
            return False
        unsure_s = max(JUMP_S, before[1] + status.clock_uncertainty_s)
        if abs(status.clock_offset_s - before[0]) <= unsure_s:
            return False
        for group in self._groups.values():
            for rank, line in group.lines.items():
                if self._node_of.get(rank) == status.node_rank:
                    line.forget()
        return True

    def _group(self, name: str) -> _Group | None:
        group = self._groups.get(name)
        if group is None and len(self._groups) < MAX_GROUPS:
            group = self._groups[name] = _Group()
        return group

    def _take_sample(self, sample: PaceSample, now_s: float, *, is_sure: bool) -> None:
        group = self._group(sample.group)
        if group is None:
            return
        line = group.lines.get(sample.rank)
        if line is None:
            line = group.lines[sample.rank] = PaceLine()
            self._num_lines += 1
        most = max(4 * MIN_OPERATIONS, min(self._most_operations, MAX_KEPT // 2 // self._num_lines))
        fresh = line.add(sample, most)
        line.forget_before(now_s - self._window_s)
        if line.generation > group.generation:
            group.generation = line.generation
            group.reference.clear()  # numbers mean something else now
            group.first_odd = None
        if line.generation < group.generation:
            fresh = []  # of operations that are over
        if line.is_mixed or (group.mismatch is not None and group.mismatch.odd):
            fresh = []
        self._compare(group, fresh)
        if not is_sure:
            line.forget()
        if len(group.reference) > 2 * most:
            for seq in sorted(group.reference)[: len(group.reference) - most]:
                del group.reference[seq]

    @staticmethod
    def _compare(group: _Group, fresh: list[tuple[int, int]]) -> None:
        for seq, digest in fresh:
            if digest == UNKNOWN:
                continue
            known = group.reference.setdefault(seq, digest)
            if root_of(known) is None and call_of(known) == call_of(digest):
                group.reference[seq] = digest
            if differ(known, digest) and (group.first_odd is None or seq < group.first_odd):
                group.first_odd = seq

    def mismatches(self) -> tuple[Mismatch, ...]:
        """At most one of a group: after the first difference, numbers need not mean the same any more.

        It stays until the attempt ends, and knows more as more ranks tell.
        """
        found = []
        for name, group in sorted(self._groups.items()):
            if group.first_odd is not None and not _is_mixed(group) and not _is_told_by_all(group):
                fresh = _mismatch(name, group, group.first_odd)
                if fresh is not None and (group.mismatch is None or len(fresh.by_rank) >= len(group.mismatch.by_rank)):
                    group.mismatch = fresh
            if group.mismatch is not None and not _is_mixed(group):
                found.append(group.mismatch)
        return tuple(found)

    def shift(self) -> CallShift | None:
        """Who is a call ahead of the others in one of its groups, or behind; reckoned again at most once a second."""
        if self._shift is None or self._newest_s - self._shift[0] >= LAGS_EVERY_S:
            known = {n: g for n, g in self._groups.items() if not _is_mixed(g) and not g.generation}
            labels = {name: group.label for name, group in known.items()}
            self._shift = self._newest_s, call_shift({n: g.lines for n, g in known.items()}, labels)
        return self._shift[1]

    def rhythms(self) -> dict[str, Rhythm]:
        """By group; only of groups with enough operations in the window."""
        found = {}
        for name, group in self._groups.items():
            if not group.lines or _is_mixed(group):
                continue
            longest_s = max(line.longest_gap_s for line in group.lines.values())
            line = max(group.lines.values(), key=len)
            if len(line) < MIN_OPERATIONS:
                continue
            gap_s = median(b - a for a, b in pairwise(line.created))
            found[name] = Rhythm(period_s=_period_s(line) or gap_s, longest_gap_s=longest_s)
        return found

    def leading(self) -> Leading | None:
        """By whose operations the whole job's rhythm is known; None while there are too few."""
        known = [(n, g) for n, g in self._groups.items() if g.lines and not _is_mixed(g)]
        candidates = [(n, g, min(g.lines)) for n, g in known if len(g.lines[min(g.lines)]) >= MIN_OPERATIONS]
        if not candidates:
            return None
        name, group, rank = max(candidates, key=lambda found: (len(found[1].lines), len(found[1].lines[found[2]])))
        line = group.lines[rank]
        return Leading(
            group=name, title=group.label or name, rank=rank, line=line, calls=_period_of(line.digests[-MAX_CALLS:])
        )

    def lags(self, recent_s: float = RECENT_S) -> tuple[Lag, ...]:
        """Lateness in each group over the operations of the last seconds that all its members reported.

        Of slow loops the last ten operations, as far as the window reaches; none where there are fewer.  Reckoned again
        at most once a second, however often it is asked.
        """
        known = self._lags
        if known is not None and known[0] == recent_s and self._newest_s - known[1] < LAGS_EVERY_S:
            return known[2]
        found = self._reckon(recent_s)
        self._lags = (recent_s, self._newest_s, found)
        return found

    def _reckon(self, recent_s: float) -> tuple[Lag, ...]:
        found = []
        for name, group in sorted(self._groups.items()):
            ranks = [r for r in (group.members or sorted(group.lines)) if r in group.lines]
            if len(ranks) < 2 or (group.members and len(ranks) < len(group.members)) or _is_mixed(group):
                continue
            lines = {r: group.lines[r] for r in ranks}
            if len({line.generation for line in lines.values()}) > 1:
                continue
            lag = self._lag(name, f"{name} ({group.label})" if group.label else name, lines, recent_s)
            if lag is not None:
                found.append(lag)
        return tuple(found)

    def _lag(self, name: str, title: str, lines: Mapping[int, PaceLine], recent_s: float) -> Lag | None:
        common = set.intersection(*(set(line.seqs) for line in lines.values()))
        if len(common) < MIN_OPERATIONS:
            return None
        seqs = sorted(common)[-self._most_operations :]
        one = next(iter(lines.values()))
        end = one.place_of(seqs[-1])
        assert end is not None
        first_wanted = one.seqs[bisect_left(one.created, one.created[end] - recent_s)]
        seqs = seqs[min(bisect_left(seqs, first_wanted), len(seqs) - MIN_OPERATIONS) :]
        columns = []
        for rank, line in lines.items():
            offset_s = self._offsets[self._node_of[rank]][0]
            begin = line.place_of(seqs[0])
            assert begin is not None
            if line.seqs[begin : begin + len(seqs)].tolist() == seqs:
                times = line.created[begin : begin + len(seqs)].tolist()
            else:
                places = dict(zip(line.seqs, line.created, strict=True))
                times = [places[seq] for seq in seqs]
            columns.append([t - offset_s for t in times])
        unsure = {self._offsets[self._node_of[r]][1] for r in lines}
        # Two clocks of one node agree; across nodes each adds what is unsure of it.
        is_one_node = len({self._node_of[r] for r in lines}) == 1
        noise_s = MIN_NOISE_S if is_one_node else max(MIN_NOISE_S, 2 * max(unsure))
        entered = lateness(dict(zip(lines, columns, strict=True)), noise_s)
        took_s = max(column[-1] for column in columns) - min(column[0] for column in columns)
        longest_s = {r: max(b - a for a, b in pairwise(column)) for r, column in zip(lines, columns, strict=True)}
        for rank, late_s in entered.median_late_s.items():
            waited = max(gap for r, gap in longest_s.items() if r != rank)
            if late_s > noise_s + IMPOSSIBLE * waited:
                return None
        period = _period_of([one.digests[at] for seq in seqs if (at := one.place_of(seq)) is not None])
        period_s = None if period is None else took_s * period / (seqs[-1] - seqs[0])
        long_s = max(noise_s, LONG * (period_s or took_s / len(seqs)))
        waited_share = {r: _steady_share(w, took_s) for r, w in entered.waits_s.items()}
        late = {r for r, share in waited_share.items() if share >= LATE}
        long_waits_s = {r: [s for s in w if s > long_s] for r, w in entered.waits_s.items()}
        return Lag(
            group=title,
            source=Recorder.FLIGHT,
            num_operations=len(seqs),
            median_late_s=entered.median_late_s,
            last_share=entered.last_share,
            median_period_s=period_s,
            noise_s=round(noise_s, 6),
            waited_share=waited_share,
            own_share=self._own_shares(name, seqs, late),
            num_waits={r: len(w) for r, w in long_waits_s.items()},
            runs_behind=_run_behind(dict(zip(lines, map(np.array, columns), strict=True)), late, long_s, period or 1),
            wait_s={r: round(median(w), 6) for r, w in long_waits_s.items() if w},
        )

    def _own_shares(self, name: str, seqs: Sequence[int], late: set[int]) -> dict[int, float]:
        groups = (
            {n: g.lines for n, g in self._groups.items() if not _is_mixed(g)} if late and len(self._groups) > 1 else {}
        )
        ranks = {r for lines in groups.values() for r in lines if r in self._node_of}
        offsets_s = {r: self._offsets[self._node_of[r]][0] for r in ranks}
        return own_shares(groups, offsets_s, name, seqs, late) if groups else {}


def _run_behind(entered_s: Mapping[int, Times], late: set[int], long_s: float, period: int) -> frozenset[int]:
    """Late ranks for which no other waits."""
    others_s = [times for rank, times in entered_s.items() if rank not in late][:MAX_OTHERS]
    return frozenset(r for r in late if not is_awaited(entered_s[r], others_s, long_s, period))


def _steady_share(waits: Sequence[float], took_s: float) -> float:
    """Share of the time that was waited, without the two longest waits: those may be a checkpoint or a compilation."""
    longest = sum(sorted(waits)[-SINGLE:])
    rest_s = took_s - longest
    return round((sum(waits) - longest) / rest_s, 4) if rest_s > 0 else 0.0


def _is_mixed(group: _Group) -> bool:
    return any(line.is_mixed for line in group.lines.values())


def _is_told_by_all(group: _Group) -> bool:
    """Whether the mismatch has the call of every member, so that there is no more to know of it."""
    known = group.mismatch
    return known is not None and known.seq == group.first_odd and len(known.by_rank) >= len(group.members) > 0


def _mismatch(name: str, group: _Group, seq: int) -> Mismatch | None:
    """What all members tell of one number, if two of them differ there: in the call, or in its root alone."""
    digests, sizes = {}, {}
    for rank, line in sorted(group.lines.items()):
        at = line.place_of(seq) if line.generation == group.generation else None
        if at is not None and line.digests[at] != UNKNOWN:
            digests[rank] = line.digests[at]
            if line.sizes[at] >= 0:
                sizes[rank] = line.sizes[at]
    roots = {r: root for r, d in digests.items() if (root := root_of(d)) is not None}
    is_one_operation = all(is_same_operation(a, b) for a, b in pairwise(digests.values()))
    of_arguments = "size" if len(set(sizes.values())) > 1 else "dtype"
    compared = GroupCalls(
        group=name,
        label=group.label,
        source=Recorder.FLIGHT,
        calls=numbered({r: (seq, [call_of(digest)]) for r, digest in digests.items()}),
        roots=numbered({r: (seq, [root]) for r, root in roots.items()}),
        # More of what they were no ring holds any longer.
        operation=lambda rank, _: Operation(
            seq=seq,
            name=name_of(digests[rank]) or "",
            size_bytes=sizes.get(rank),
            root=roots.get(rank),
            redop=f"digest {call_of(digests[rank]):08x}",
        ),
        kind=of_arguments if is_one_operation else "name",
        members=group.members,
    ).compare()
    if compared is None:
        return None
    mismatch, _ = compared
    missing = tuple(rank for rank in group.members if rank not in mismatch.by_rank)
    return replace(mismatch, missing=missing, is_by_digest=True)


def _period_s(line: PaceLine) -> float | None:
    """How long one iteration of the loop takes."""
    period = _period_of(line.digests)
    if period is None or line.seqs[-1] == line.seqs[0]:
        return None
    return (line.created[-1] - line.created[0]) * period / (line.seqs[-1] - line.seqs[0])


def _period_of(digests: Sequence[int]) -> int | None:
    """Calls of one iteration; None where digests are not known or do not repeat."""
    calls = np.array([call_of(d) for d in digests], dtype=np.int64)
    return period_of(calls) if len(calls) >= MIN_OPERATIONS and UNKNOWN not in calls else None
