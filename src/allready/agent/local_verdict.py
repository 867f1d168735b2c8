"""What a node says by itself while node 0 cannot hear it: that its own interface has lost its link.

Node 0 sees only that nothing comes from there; of two nodes it cannot know whose end is broken.  This node can.
"""

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime

from allready.judging.conclude import Known, conclude
from allready.judging.engine import judge
from allready.judging.loading import asked_for
from allready.judging.registry import Applies
from allready.judging.report_builder import ReportBuilder
from allready.messaging.hub import HEARTBEAT_S
from allready.model import Fleet, Live, NodeEvidence, NodeStatus, Report, Status, World

HISTORY_S = 30.0
SURELY_SILENT_S = 2 * HEARTBEAT_S + 0.5


class LocalView:
    """One attempt after another, on one node.

    `addresses`: by node; of node 0 at least the one that this node is connected to.
    """

    def __init__(self, node_rank: int, world: World, addresses: Mapping[int, tuple[str, ...]]) -> None:
        self._node_rank = node_rank
        self._world = world
        self._addresses = dict(addresses)
        self._history: deque[NodeStatus] = deque()
        self._reports = ReportBuilder(command="run")
        self.last: Report | None = None

    def see(self, status: NodeStatus) -> None:
        """This node's newest status, with sockets and links."""
        if self._history and (status.attempt != self._history[-1].attempt or status.time_s < self._history[-1].time_s):
            self._history.clear()
        self._history.append(status)
        while self._history[0].time_s < status.time_s - HISTORY_S:
            self._history.popleft()

    def judge(self, now_s: float, *, silent_s: float, evidence: NodeEvidence | None = None) -> Report | None:
        """A report when an interface that carries the job's connections has lost its link, and data is stuck on it or
        node 0 is silent.

        `silent_s`: since node 0's last message; less than `SURELY_SILENT_S` means nothing.  `evidence`: the answer to
        the last question, if it is of now.
        """
        if not self._history:
            return None
        status = self._history[-1]
        if evidence is None and not self._has_lost_a_link(status):
            return None
        live = Live(
            now_s=now_s,
            attempt=status.attempt,
            statuses={self._node_rank: status, 0: NodeStatus(node_rank=0, name="", time_s=now_s)},
            heard_s={self._node_rank: 0.0, 0: silent_s if silent_s >= SURELY_SILENT_S else 0.0},
            evidence={} if evidence is None else {self._node_rank: evidence},
            history={self._node_rank: tuple(self._history)},
            addresses=self._addresses,
            world_size=self._world.world_size,
        )
        rules = {rule.code: rule for rule in asked_for(Applies.ALONE)}
        findings, _ = judge(Fleet(world=self._world, live=live), rules.values())
        now = datetime.fromtimestamp(now_s, UTC)
        began = next((f.fault_time for f in findings if f.fault_time), None)
        since = datetime.fromisoformat(began).replace(tzinfo=UTC) if began else None
        previous = self.last.verdict if self.last is not None else None
        done = conclude(findings, Known(rules=rules, now=now, visible_since=since, previous=previous))
        if done.verdict is None:
            return None
        self.last = self._reports.build(
            now=now, world=self._world, status=Status.FAULT, verdict=done.verdict, findings=done.findings
        )
        return self.last

    def _has_lost_a_link(self, status: NodeStatus) -> bool:
        had = {link.name for s in self._history for link in s.links if link.is_up and link.has_carrier}
        return any(link.name in had and not (link.is_up and link.has_carrier) for link in status.links)
