"""What a node's agent works with, decided once when the job begins: folders, clock, observer, launcher, outputs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from allready.agent import messages
from allready.launch.request import Note, RunRequest
from allready.live.run_paths import node_log_dir
from allready.model import NodeStatus, Report


@dataclass(slots=True, kw_only=True)
class AgentContext:
    """One per agent.  `run_dir`: private, local, ends with the agent.  `clock`: this node's clock minus node 0's and
    the uncertainty, in seconds.  `show` gets every report of node 0 (an interim one while the roll call is open).
    """

    request: RunRequest
    name: str
    instance: str
    run_dir: Path
    report_dir: Path
    show: Callable[[Report], None]
    say: Callable[[Note], None]
    on_start: Callable[[], None] = lambda: None  # before the first rank may write to the terminal
    clock: tuple[float, float] = (0.0, 0.0)
    addresses: tuple[str, ...] = ()
    statuses: dict[int, NodeStatus] = field(default_factory=dict)
    last_report: Report | None = None
    attempt: int = 0
    on_wish: Callable[[dict[str, Any]], None] | None = None  # takes what is to be asked of node 0

    def publish(self, report: Report) -> None:
        """Keep and show a report."""
        self.last_report = report
        self.show(report)

    def seen(self, status: NodeStatus) -> None:
        """Keep this node's newest status, for whoever watches."""
        known = self.statuses.get(status.node_rank)
        if not status.sockets and known is not None:  # these come every few looks only
            status = replace(status, sockets=known.sockets, links=known.links)
        self.statuses[status.node_rank] = status

    def overview(self, body: Any) -> None:
        """Keep what node 0 says of all nodes, for whoever watches here."""
        from allready.messaging.channel import convert

        for status in convert(body, tuple[NodeStatus, ...]):
            self.seen(status)

    def observer(self, node_rank: int) -> Any:
        """What looks at the ranks of this node."""
        from allready.live.node.observer import NodeObserver

        return NodeObserver(node_rank=node_rank, name=self.name, run_dir=self.run_dir)

    def runner(self, plan: messages.Plan) -> Any:
        """What starts and ends the ranks of one attempt."""
        from allready.agent.runner import Runner

        self.on_start()
        return Runner(plan, self.request, run_dir=self.run_dir, report_dir=self.report_dir, say=self.say)

    def want_evidence(self) -> str:
        """Somebody who watches asks for stacks and records of all ranks; returns the folder that will have them."""
        if self.on_wish is not None:
            self.on_wish({"gather": True})
        return str((self.report_dir / f"attempt{self.attempt}").absolute())

    def want_overview(self, wanted: bool) -> None:
        """Somebody watches here, or nobody does any more: node 0 is to send the statuses of all nodes."""
        if self.on_wish is not None:
            self.on_wish({"watch": wanted})

    def coordinator_ports(self) -> tuple[int, ...]:
        """Free ports of this node for JAX's coordinator; empty for other jobs."""
        if self.request.framework != "jax":
            return ()
        from allready.launch.jax import coordinator_ports

        return coordinator_ports()

    def evidence_dir(self, attempt: int, node_rank: int) -> Path:
        """Where this node keeps what it answers to a question for evidence, beside its ranks' logs; the last answer
        replaces the one before."""
        return node_log_dir(self.report_dir, attempt, node_rank)
