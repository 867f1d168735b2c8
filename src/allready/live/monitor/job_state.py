"""What the monitor knows of all nodes: the newest statuses, the last half minute of them, the newest answers."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from msgspec.structs import replace

from allready.evidence.reading import Reading
from allready.judging.calls import LoggedCalls
from allready.judging.live_status import rests
from allready.live.monitor.progress import shifts_of
from allready.model import GroupMark, Live, Loss, NodeEvidence, NodeStatus, RankStatus, World, WorldNode

LATE_LOG_S = 1.5
HISTORY_S = 30.0
MAX_HISTORY = 128
"""Words of one node; beyond the one of every second those of stops and ends."""


@dataclass(slots=True)
class JobState:
    """Filled by messages, read by the monitor.  Times are monotonic unless they end in `wall_s`."""

    statuses: dict[int, NodeStatus] = field(default_factory=dict)
    heard: dict[int, float] = field(default_factory=dict)
    history: dict[int, deque[NodeStatus]] = field(default_factory=dict)
    answers: dict[int, NodeEvidence] = field(default_factory=dict)
    answered: dict[int, float] = field(default_factory=dict)
    readings: dict[int, list[Reading]] = field(default_factory=dict)
    lost: dict[int, Loss] = field(default_factory=dict)
    answering: set[int] = field(default_factory=set)
    ended_at: dict[int, float] = field(default_factory=dict)  # rank -> when it was first reported
    last_marks: dict[int, tuple[GroupMark, ...]] = field(default_factory=dict)  # an ending process forgets its groups
    shifts: dict[int, dict[str, int]] = field(default_factory=dict)
    rested: dict[int, tuple[int | None, float, float]] = field(default_factory=dict)
    """Rank -> process, time and processor time of its main thread when it was last seen to begin to rest."""
    logged: LoggedCalls = field(default_factory=LoggedCalls)
    attempt: int = 0
    least_number: int = 0  # of an answer: earlier ones are about what is over

    def take_status(self, status: NodeStatus, now: float) -> bool:
        """Keep a word; False for one of an attempt that is over, or that is older than what is known."""
        if status.attempt < self.attempt:
            return False
        if status.attempt > self.attempt:
            self.begin(status.attempt)
        node = status.node_rank
        known = self.statuses.get(node)
        if known is not None and status.time_s < known.time_s - 5.0 and self.heard.get(node, 0.0) > now - 5.0:
            return False
        self.statuses[node] = status
        self.heard[node] = now
        for rank in status.ranks:
            if rank.groups:
                self.last_marks[rank.rank] = rank.groups
            if rank.is_gone:
                self.ended_at.setdefault(rank.rank, now)
            else:
                self.ended_at.pop(rank.rank, None)
            self._note_rest(rank, status.time_s)
        self.lost.pop(node, None)
        kept = self.history.setdefault(node, deque(maxlen=MAX_HISTORY))
        kept.append(status)
        while kept and kept[0].time_s < status.time_s - HISTORY_S:
            kept.popleft()
        return True

    def _note_rest(self, rank: RankStatus, time_s: float) -> None:
        known = self.rested.get(rank.rank)
        if rank.is_gone or rank.main_cpu_s is None:
            self.rested.pop(rank.rank, None)
        elif known is None or known[0] != rank.pid or not rests(rank.main_cpu_s - known[2], time_s - known[1]):
            self.rested[rank.rank] = (rank.pid, time_s, rank.main_cpu_s)

    def standing(self, node: int) -> frozenset[int]:
        """Ranks of a node that stand where they stood when it answered: what the answer shows of them still holds."""
        answer, status = self.answers.get(node), self.statuses.get(node)
        if answer is None or status is None:
            return frozenset()
        return frozenset(
            rank.rank
            for rank in status.ranks
            if not rank.is_gone
            and rank.site_since_s is not None
            and max([rank.site_since_s, *(g.moved_s for g in rank.groups if g.moved_s is not None)])
            <= answer.status.time_s
        )

    def begin(self, attempt: int) -> None:
        """Another attempt: nothing of the last one holds any more."""
        for known in fields(self):
            if known.name not in {"attempt", "least_number", "logged"}:
                getattr(self, known.name).clear()
        self.attempt, self.least_number = attempt, 0

    def forget_answers(self, before: int) -> None:
        """What was asked about is over, also where an answer to an earlier question than this one is on its way."""
        self.least_number = before
        for known in (self.answers, self.answered, self.readings, self.shifts, self.last_marks):
            known.clear()

    def take_answer(self, answer: NodeEvidence, now: float) -> bool:
        """Keep and read an answer; False for an old one."""
        known = self.answers.get(answer.node_rank)
        if 0 < answer.number < self.least_number:
            return False
        if answer.status.attempt < self.attempt or (known is not None and answer.number < known.number):
            return False
        if answer.status.ranks and answer.status.node_rank == answer.node_rank:
            newest = self.statuses.get(answer.node_rank)
            if newest is None or answer.status.time_s >= newest.time_s:
                self.take_status(answer.status, now)
        if known is not None and known.reached and not answer.reached:  # none was tried this time
            reached_s = known.time_s if known.reached_s is None else known.reached_s
            answer = replace(answer, reached=known.reached, reached_s=reached_s)
        self.answers[answer.node_rank] = answer
        self.answered[answer.node_rank] = now
        from allready.live.monitor.readings import readings_of  # loads all readers: a job that ends at once needs none

        self.readings[answer.node_rank] = readings_of(answer)
        self.shifts |= {r.rank: shifts_of(r.ring) for r in answer.ranks if r.ring}
        return True

    def without_moved(self, answer: NodeEvidence) -> NodeEvidence | None:
        """An answer without what it shows of ranks that are elsewhere than the newest word of their node says.

        Of these the word holds, and an earlier answer where they had not moved since; None: all of them are elsewhere.
        """
        from allready.live.monitor.readings import has_left_place

        node = answer.node_rank
        status = self.statuses.get(node)
        if status is None:
            return answer
        known = {rank.rank: rank for rank in status.ranks}
        moved = {
            one.rank
            for one in answer.ranks
            if one.rank in known and has_left_place(one, known[one.rank], status.time_s)
        }
        if not moved:
            return answer
        if moved >= {one.rank for one in answer.ranks if not one.status.is_gone}:
            return None
        standing = moved & self.standing(node)
        ranks = [one for one in answer.ranks if one.rank not in moved]
        sockets = [row for row in answer.sockets if row.rank not in moved]
        if standing:
            ranks += [one for one in self.answers[node].ranks if one.rank in standing]
            sockets += [row for row in self.answers[node].sockets if row.rank in standing]
        words = tuple(known[rank.rank] if rank.rank in moved else rank for rank in answer.status.ranks)
        return replace(
            answer,
            status=replace(answer.status, ranks=words),
            ranks=tuple(sorted(ranks, key=lambda one: one.rank)),
            sockets=tuple(sockets),
        )

    def ages(self, now: float) -> dict[int, float]:
        """Node -> seconds since its last message."""
        return {n: max(0.0, now - t) for n, t in self.heard.items()}

    def ends_without_words(self) -> dict[int, float]:
        """Ranks that ended badly and whose last output has not come: rank -> when its end was reported.

        A log that tells no reason so soon after the end may not have been written to its end.
        """
        found = {}
        for node, status in self.statuses.items():
            answer = self.answers.get(node)
            heard = {r.rank for r in answer.ranks if r.status.is_gone} if answer is not None else set()
            for rank in status.ranks:
                is_bad = rank.exit_code != 0 or rank.signal is not None
                needs_words = rank.signal in {None, "SIGABRT"}
                if not (rank.is_gone and is_bad and needs_words):
                    continue
                if rank.rank not in heard or (
                    self._is_early(node, rank.rank) and not self._has_reason(node, rank.rank)
                ):
                    found[rank.rank] = self.ended_at[rank.rank]
        return found

    def is_log_pending(self, rank: int) -> bool:
        """Whether the last answer of its node came before all that its ranks had printed was in their logs."""
        nodes = (n for n, status in self.statuses.items() if any(r.rank == rank for r in status.ranks))
        return any(n in self.answers and self.answers[n].has_whole_logs is False for n in nodes)

    def _is_early(self, node: int, rank: int) -> bool:
        """Whether the last answer may have read the log of a rank that had ended before its last line was in it."""
        answer = self.answers[node]
        if answer.has_whole_logs is not None:
            return not answer.has_whole_logs
        return self.answered[node] - self.ended_at[rank] < LATE_LOG_S

    def _has_reason(self, node: int, rank: int) -> bool:
        return any(d.rank == rank and d.text for r in self.readings.get(node, ()) for d in r.deaths)

    def has_settled_elsewhere(self, stay_s: float) -> bool:
        """Whether a living rank that waits in no operation has stood for so long in a place that no answer shows."""
        for node, status in self.statuses.items():
            answer = self.answers.get(node)
            if answer is None:
                continue
            for rank in status.ranks:
                since_s = rank.site_since_s
                if since_s is None or rank.is_gone or any(g.waiting_s is not None for g in rank.groups):
                    continue
                if answer.status.time_s < since_s <= status.time_s - stay_s:
                    return True
        return False

    def has_raised(self) -> bool:
        """Whether an exception has ended the script of a rank that is still there."""
        return any(r.raised is not None and not r.is_gone for s in self.statuses.values() for r in s.ranks)

    def nodes_of_ended(self) -> set[int]:
        """Nodes that have ranks that have ended."""
        return {n for n, s in self.statuses.items() if any(r.is_gone for r in s.ranks)}

    def live(
        self,
        now: float,
        wall_s: float,
        *,
        world_size: int,
        since_s: float | None,
        hang_after_s: float,
        addresses: Mapping[int, tuple[str, ...]],
    ) -> Live:
        """The part of a fleet that live rules ask for."""
        return Live(
            now_s=wall_s,
            attempt=self.attempt,
            statuses=dict(self.statuses),
            heard_s=self.ages(now),
            lost=dict(self.lost),
            answering=frozenset(self.answering),
            evidence=dict(self.answers) if since_s is not None else {},
            history={n: tuple(h) for n, h in self.history.items()},
            rested_s={rank: time_s for rank, (_, time_s, _) in self.rested.items()},
            addresses={**addresses, **{n: a.addresses for n, a in self.answers.items() if a.addresses}},
            world_size=world_size,
            since_s=since_s,
            hang_after_s=hang_after_s,
            is_starting=any(r.num_operations == 0 for s in self.statuses.values() for r in s.ranks),
        )

    def world(self, known: World | None) -> World:
        """The job's members: as reported, or as the statuses name them."""
        if known is not None and known.nodes:
            return known
        nodes = tuple(
            WorldNode(node_rank=n, name=s.name, ranks=tuple(r.rank for r in s.ranks))
            for n, s in sorted(self.statuses.items())
        )
        size = sum(len(n.ranks) for n in nodes)
        return World(num_nodes=len(nodes), world_size=max(size, known.world_size if known else 0), nodes=nodes)
