"""What the connections of a check's ranks show of the network: by the rules about a job that runs."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from allready.judging.engine import judge
from allready.judging.link_ends import address_book, key, plain, snapshots
from allready.judging.link_paths import broken_in
from allready.judging.loading import asked_for
from allready.judging.registry import Applies
from allready.model import Collectives, Finding, Fleet, Live, NodeEvidence, NodeStatus, World


class RankTraffic:
    """The newest that each node saw.  Times that are passed in are of node 0's monotonic clock."""

    def __init__(
        self, names: Mapping[int, str], addresses: Mapping[int, tuple[str, ...]] | None = None, *, wall_s: float
    ) -> None:
        """What is known before.

        Args:
            names: of all nodes that take part.
            addresses: of these nodes; of a node that falls silent nothing else is known.
            wall_s: how far the wall clock is ahead of the monotonic one.
        """
        self._names, self._addresses, self._wall_s = names, addresses or {}, wall_s
        self._last_message_s: dict[int, float] = {}
        self._history: dict[int, tuple[NodeStatus, ...]] = {}
        self._evidence: dict[int, NodeEvidence] = {}
        self._taken: dict[int, float] = {}

    def note_message(self, node: int, now: float) -> None:
        """Something came from a node."""
        self._last_message_s[node] = now

    def take(self, node: int, history: Iterable[NodeStatus], evidence: NodeEvidence, now: float) -> None:
        """What a node saw; its times are seconds before now."""
        self._taken[node] = now
        now += self._wall_s
        self._history[node] = tuple(
            replace(status, node_rank=node, name=self._names.get(node, ""), time_s=now + min(0.0, status.time_s))
            for status in history
        )
        self._evidence[node] = replace(evidence, node_rank=node, time_s=now + min(0.0, evidence.time_s), reached_s=now)

    def is_complete(self, nodes: Collection[int], *, since_s: float) -> bool:
        """Whether all these nodes have reported what they saw since then."""
        return all(self._taken.get(node, float("-inf")) >= since_s for node in nodes)

    def live(self, now: float) -> Live:
        """As the rules about a running job want it."""
        unseen = NodeStatus(node_rank=0)
        statuses = {
            node: self._history[node][-1]
            if self._history.get(node)
            else replace(unseen, node_rank=node, name=name, time_s=self._last_message_s.get(node, now) + self._wall_s)
            for node, name in self._names.items()
        }
        return Live(
            now_s=now + self._wall_s,
            statuses=statuses,
            heard_s={node: max(0.0, now - self._last_message_s.get(node, now)) for node in self._names},
            history=self._history,
            evidence=self._evidence,
            addresses=self._addresses,
        )


def moving(live: Live) -> dict[tuple[int, int], float]:
    """(from node, to node) -> bytes per second that were acknowledged between the two newest looks, where any were."""
    book, found = address_book(live), dict[tuple[int, int], float]()
    for node in live.statuses:
        samples = snapshots(live, node)[-2:]
        if len(samples) < 2 or samples[1].time_s <= samples[0].time_s:
            continue
        before = {key(row): row.bytes_acked or 0 for row in samples[0].sockets}
        for row in samples[1].sockets:
            other, acked = book.get(plain(row.remote), node), (row.bytes_acked or 0) - before.get(key(row), 0)
            if other != node and key(row) in before and acked > 0:
                rate = acked / (samples[1].time_s - samples[0].time_s)
                found[node, other] = found.get((node, other), 0.0) + rate
    return found


def cut_nodes(collectives: Collectives | None) -> frozenset[int]:
    """Nodes to or from which data of the ranks does not pass, by their connections."""
    run = collectives.first if collectives is not None else None
    found = broken_in(run.traffic) if run is not None and run.traffic is not None else None
    if found is None:
        return frozenset()
    links = (*found.links, *((s.src, s.dst) for s in found.stuck))
    return frozenset({*found.nodes, *(n for link in links for n in link)})


CARRIES_BYTES_PER_S = 2000.0
"""Of one direction: more than what is exchanged while ranks only wait."""


def carries_data(live: Live) -> bool:
    """Whether data of the ranks moves, and none is stuck."""
    return broken_in(live) is None and max(moving(live).values(), default=0.0) >= CARRIES_BYTES_PER_S


def link_findings(live: Live, world: World) -> tuple[Finding, ...]:
    """What the rules about links find in the connections of a check's ranks."""
    return judge(Fleet(world=world, live=live), asked_for(Applies.TRAFFIC))[0]


def traffic_findings(collectives: Collectives | None, world: World) -> tuple[Finding, ...]:
    """The same of the job that was asked for, where its connections were looked at."""
    run = collectives.first if collectives is not None else None
    return link_findings(run.traffic, world) if run is not None and run.traffic is not None else ()
