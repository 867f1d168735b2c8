"""What node 0 knows of every node of a job, filled by their messages."""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from allready.agent import messages
from allready.agent.context import AgentState
from allready.errors import ExchangeError
from allready.judging.interruption import Interruption
from allready.messaging.channel import LOST, convert
from allready.model import Loss, NodeEvidence, NodeStatus, ProcessState, RankStatus

log = logging.getLogger(__name__)


class AgentLost(Struct, frozen=True):
    """The connection to a node's agent broke."""

    node: int
    loss: Loss


News = NodeStatus | NodeEvidence | AgentLost

HANDLES_S = 60.0
"""So long a rank may save in its handler of a signal."""


class NodeTable:
    """`offers`: what each node that is here brings; the others are of the present attempt.

    `news`: what the monitor has not read yet.  `interruption`: the first signal that a node or node 0 itself got, at
    which `on_interruption` is called.  `warning`: the newest that was passed on to ranks.
    `leaving_s`: rank -> the first sample that showed it to be gone, behind its script or in a handler that may end it,
    by node 0's clock.
    """

    def __init__(self, state: AgentState, on_interruption: Callable[[], None]) -> None:
        self._state = state
        self._on_interruption = on_interruption
        self.attempt = 0
        self.offers: dict[int, messages.Offer] = {}
        self.statuses: dict[int, NodeStatus] = {}
        self.leaving_s: dict[int, float] = {}
        self.ended: dict[int, messages.Ended] = {}
        self.lost: dict[int, Loss] = {}
        self.answered: set[int] = set()  # nodes that have answered a question in this attempt
        self.watched: set[int] = set()
        self.is_evidence_wanted = False
        self.interruption: Interruption | None = None
        self.warning: Interruption | None = None
        self._signalled: Counter[int] = Counter()
        self.waiting: deque[tuple[str, messages.JaxWaiting]] = deque()  # JAX processes at their nodes' sockets
        self._news: deque[News] = deque()
        self._ranks: Mapping[int, Collection[int]] = {}  # of the present attempt, by node

    def begin(self, attempt: int, ranks: Mapping[int, Collection[int]]) -> None:
        """Another attempt, `ranks` by node: what was known of the last one is forgotten."""
        self.attempt = attempt
        self._ranks = {node: frozenset(here) for node, here in ranks.items()}
        for known in (
            self._state.statuses,
            self.statuses,
            self.leaving_s,
            self.ended,
            self.lost,
            self.answered,
            self.waiting,
            self._news,
        ):
            known.clear()

    def interrupt(self, signal: str, node: int) -> None:
        """A node's agent got a signal; the first says why the job ends."""
        self._signalled[node] += 1
        if self.interruption is None:
            self.interruption = Interruption(signal=signal, node=node, time_s=time.time())
            self._on_interruption()

    @property
    def is_urgent(self) -> bool:
        """Whether an agent got another signal; that all agents get one is how launchers end a job."""
        return any(number > 1 for number in self._signalled.values())

    def news(self) -> Iterator[News]:
        while self._news:
            yield self._news.popleft()

    def take(self, node: int, kind: str, body: object) -> None:
        """Keep a message; one that is not of our shape, or of an attempt that is over, is passed over."""
        try:
            self._take(node, kind, body)
        except ExchangeError as error:
            log.debug("node %s: %s", node, error)

    def _take(self, node: int, kind: str, body: object) -> None:
        if kind == messages.OFFER:
            self.offers[node] = convert(body, messages.Offer)
        elif kind == messages.STATUS:
            status = convert(body, NodeStatus)
            if self._is_own(node, status):
                self.statuses[node] = status
                self._note_leaving(status)
                self._state.seen(status)
                self._news.append(status)
        elif kind == messages.EVIDENCE:
            evidence = convert(body, NodeEvidence)
            if self._is_own(node, evidence.status, *(r.rank for r in evidence.ranks)):
                self.answered.add(node)
                self._news.append(replace(evidence, node_rank=node))
        elif kind == messages.ENDED:
            ended = convert(body, messages.Ended)
            if ended.attempt == self.attempt:
                self._refuse_others(node, (end.rank for end in ended.ends))
                self.ended[node] = ended
        elif kind in {messages.WAITING, messages.LEFT}:
            self.waiting.append((kind, convert(body, messages.JaxWaiting)))
        elif kind == messages.REQUEST:
            self._take_request(node, convert(body, messages.Request))
        elif kind == LOST and isinstance(body, Loss):
            self.offers.pop(node, None)
            self.watched.discard(node)
            self.lost[node] = body
            self._news.append(AgentLost(node, body))

    def _note_leaving(self, status: NodeStatus) -> None:
        for rank in status.ranks:
            if rank.is_gone or rank.phase == "ending" or rank.handling:
                seen_s = min(status.time_s, rank.handling_after_s or status.time_s)
                self.leaving_s.setdefault(rank.rank, status.by_node_0(seen_s))
            else:
                self.leaving_s.pop(rank.rank, None)

    def is_being_ended(self, now_s: float) -> bool:
        """Whether a rank is in its handler of a signal that asks it to end: what that does explains nothing.

        Args:
            now_s: node 0's wall clock; after some time the handler itself may hang.
        """
        return any(
            rank.handling and not rank.is_gone and now_s - self.leaving_s.get(rank.rank, now_s) < HANDLES_S
            for status in self.statuses.values()
            for rank in status.ranks
        )

    def _is_own(self, node: int, status: NodeStatus, *ranks: int) -> bool:
        """Whether a status is of the present attempt; a node speaks for itself and its own ranks only."""
        if status.node_rank != node:
            raise ExchangeError(f"speaks for node {status.node_rank}")
        if status.attempt != self.attempt:
            return False
        self._refuse_others(node, (*(r.rank for r in status.ranks), *ranks))
        return True

    def _refuse_others(self, node: int, ranks: Iterable[int | None]) -> None:
        others = set(ranks) - {None, *self._ranks.get(node, ())}
        if others:
            raise ExchangeError(f"speaks for ranks of other nodes: {sorted(map(str, others))[:8]}")

    def _take_request(self, node: int, request: messages.Request) -> None:
        if request.stop is not None:
            self.interrupt(request.stop[:20], node)
        if request.warned is not None:
            self.warning = Interruption(signal=request.warned[:20], node=node, time_s=time.time())
        if request.watch is not None:
            (self.watched.add if request.watch else self.watched.discard)(node)
        self.is_evidence_wanted = self.is_evidence_wanted or request.gather

    def known_ends(self) -> list[NodeStatus]:
        """The statuses, with the ends that a node's last message has and no status had."""
        return [self._with_ends(node) for node in {**self.statuses, **self.ended}]

    def _with_ends(self, node: int) -> NodeStatus:
        ends = {end.rank: end for end in (self.ended[node].ends if node in self.ended else ()) if end.rank is not None}
        status = self.statuses.get(node) or NodeStatus(
            node_rank=node, attempt=self.attempt, ranks=tuple(RankStatus(rank=rank) for rank in ends)
        )
        ranks = tuple(
            replace(
                rank, process_state=ProcessState.EXITED, exit_code=end.exit_code, signal=end.signal, ended_s=end.time_s
            )
            if rank.ended_s is None and (end := ends.get(rank.rank)) is not None
            else rank
            for rank in status.ranks
        )
        return replace(status, ranks=ranks)

    def clock_offsets_s(self) -> dict[int, float]:
        """Rank -> how far its node's clock is ahead of ours."""
        return {r.rank: s.clock_offset_s for s in self.statuses.values() for r in s.ranks}

    def has_failed(self) -> bool:
        """Whether any rank has ended badly or could not be started, as far as statuses and ends tell."""
        if any(e.problem is not None or any(end.exit_code != 0 for end in e.ends) for e in self.ended.values()):
            return True
        return any(
            r.is_gone and r.process_state is not ProcessState.ZOMBIE and (r.exit_code != 0 or r.signal)
            for s in self.statuses.values()
            for r in s.ranks
        )
