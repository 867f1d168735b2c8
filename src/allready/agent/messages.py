"""What node 0 and the nodes of a job say to each other over the exchange; all bodies are JSON.

Nodes to node 0: OFFER once after joining, STARTED, STATUS (a `NodeStatus`), EVIDENCE (a `NodeEvidence`), ENDED, WISH.
Node 0 to the nodes: PLAN starts an attempt, GATHER asks for evidence, VERDICT tells the report as it stands, STOP ends
an attempt, FINISH ends the job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allready.model import ProcessEnd

OFFER, STARTED, STATUS, EVIDENCE, ENDED, WISH = "offer", "started", "status", "evidence", "ended", "wish"
PLAN, GATHER, VERDICT, STOP, FINISH = "plan", "gather", "verdict", "stop", "finish"
OVERVIEW = "overview"
"""Node 0 to nodes that somebody watches: the statuses of all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a node brings: its part of the job as asked for on it."""

    nproc_per_node: int
    start_rank: int | None = None
    clock_offset_s: float = 0.0
    clock_uncertainty_s: float = 0.0
    addresses: tuple[str, ...] = ()
    name: str = ""
    coordinator_ports: tuple[int, ...] = ()  # JAX: free ones, in case it gets process 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One attempt, for one node.  `place`: of the node in the order of ranks; torchelastic calls it the group rank."""

    attempt: int
    job_id: str
    instance: str
    num_nodes: int
    node_rank: int
    place: int
    ranks: tuple[int, ...]
    world_size: int
    master_addr: str
    store_port: int
    max_restarts: int
    coordinator: str = ""  # JAX: the node of process 0, as the others reach it
    coordinator_ports: tuple[int, ...] = ()
    token: str = ""
    nodes: tuple[tuple[str, int], ...] = ()  # name and number of ranks, in the order of ranks
    ranks_of_nodes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The ranks of one node run."""

    attempt: int
    pids: Mapping[int, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A node's part in an attempt is over: all its ranks ended and were reaped.

    `problem`: why the ranks could not be started or kept, in the launcher's words.  `was_stopped`: we ended them.
    """

    attempt: int
    ends: tuple[ProcessEnd, ...] = ()  # of all its ranks
    problem: str | None = None
    problem_kind: str = ""  # as `launch.plan.AttemptResult`
    was_stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather:
    """Evidence is wanted now."""

    number: int
    why: str = ""
    keep: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the ranks of an attempt."""

    attempt: int
    why: str
    signal: str = "SIGTERM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The job is over."""

    exit_code: int
    why: str = ""
