"""What a node's agent works with, decided once when the job begins, and what it knows of the job meanwhile."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from allready.agent import messages
from allready.agent.node_report import NodeReport
from allready.launch.request import Note, RunRequest
from allready.model import ClockFacts, NodeStatus


class AgentContext(Struct, frozen=True, kw_only=True):
    """One per agent.

    `run_dir`: private, local, ends with the agent.  `on_meeting`: called when the nodes may be about to meet: what
    takes long may be loaded now.  Not before: a node that has no place in the job says why with the processor to
    itself.  `on_start`: called before ranks may write to the terminal.
    """

    request: RunRequest
    name: str
    instance: str
    run_dir: Path
    report_dir: Path
    addresses: tuple[str, ...]
    say: Callable[[Note], None]
    on_meeting: Callable[[], None]
    on_start: Callable[[], None]
    state: "AgentState"

    def offer(self) -> messages.Offer:
        """What this node brings, by node 0's clock as far as that is known."""
        clock = self.state.clock
        ports: tuple[int, ...] = ()
        if self.request.framework == "jax":
            from allready.launch.jax import coordinator_ports

            ports = coordinator_ports()
        return messages.Offer(
            nproc_per_node=self.request.nproc_per_node,
            start_rank=self.request.start_rank,
            clock_offset_s=clock.offset_s,
            clock_uncertainty_s=clock.uncertainty_s,
            addresses=self.addresses,
            name=self.name,
            coordinator_ports=ports,
            missing_script=self.request.command.missing(self.request.environment.get("PATH")),
        )


class AgentState(Struct, kw_only=True):
    """What an agent knows now: shared by its part of the job and by the socket for `allready watch`.

    `statuses`: the newest of every node that this one knows of.  `requests`: what is to be asked of node 0.
    """

    reports: NodeReport
    statuses: dict[int, NodeStatus] = {}
    requests: asyncio.Queue[messages.Request] = field(default_factory=asyncio.Queue)
    clock: ClockFacts = ClockFacts(offset_s=0.0, uncertainty_s=0.0)  # this node's minus node 0's
    attempt: int = 0

    def seen(self, status: NodeStatus) -> None:
        """Keep a node's newest status; sockets and links come with every few statuses only."""
        known = self.statuses.get(status.node_rank)
        if not status.sockets and known is not None:
            status = replace(status, sockets=known.sockets, links=known.links)
        self.statuses[status.node_rank] = status
