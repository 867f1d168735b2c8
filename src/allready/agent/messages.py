"""What node 0 and the nodes of a job send to each other through the hub; all bodies are JSON.

Nodes to node 0: OFFER after joining, STARTED, STATUS (a `NodeStatus`), EVIDENCE (a `NodeEvidence`), ENDED, REQUEST.
Of JAX jobs: WAITING and LEFT, what a process says at its node's socket, and node 0's MEETING.
Node 0 to the nodes: PLAN starts an attempt, GATHER (a `model.Gather`) asks for evidence, VERDICT carries the report as
it stands, STOP ends an attempt, FINISH ends the job, OVERVIEW (statuses of all nodes) goes to nodes that are watched.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from allready.launch.jax_meeting import JaxWaiting as JaxWaiting
from allready.launch.jax_meeting import Meeting as Meeting
from allready.messaging.wire import MAX_NODES, MAX_RANKS_PER_NODE
from allready.model import JobOutcome, Phrase, ProcessEnd, Report

OFFER, STARTED, STATUS, EVIDENCE, ENDED, REQUEST = "offer", "started", "status", "evidence", "ended", "request"
WAITING, LEFT, MEETING = "waiting", "left", "meeting"
PLAN, GATHER, VERDICT, STOP, FINISH, OVERVIEW = "plan", "gather", "verdict", "stop", "finish", "overview"


Port = Annotated[int, Meta(ge=1, le=65535)]


class Offer(Struct, frozen=True, kw_only=True):
    """What a node brings: its part of the job as asked for on it."""

    nproc_per_node: Annotated[int, Meta(ge=1, le=MAX_RANKS_PER_NODE)]
    start_rank: Annotated[int, Meta(ge=0, le=MAX_NODES * MAX_RANKS_PER_NODE)] | None = None
    clock_offset_s: float = 0.0
    clock_uncertainty_s: float = 0.0
    addresses: Annotated[tuple[Annotated[str, Meta(max_length=255)], ...], Meta(max_length=4096)] = ()
    name: Annotated[str, Meta(max_length=1024)] = ""
    coordinator_ports: Annotated[tuple[Port, ...], Meta(max_length=64)] = ()  # JAX: free, in case it gets process 0
    missing_script: Annotated[str, Meta(max_length=8192)] = ""  # what the ranks are to run, and is not on this node


class Plan(Struct, frozen=True, kw_only=True):
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
    ranks_of_nodes: Mapping[int, tuple[int, ...]] = {}


class Started(Struct, frozen=True, kw_only=True):
    """The ranks of one node run."""

    attempt: int
    pids: Mapping[int, int]


class Ended(Struct, frozen=True, kw_only=True):
    """A node's part in an attempt is over: all its ranks ended and were reaped.

    `problem`: why the ranks could not be started or kept, in the launcher's words.
    """

    attempt: int
    ends: tuple[ProcessEnd, ...] = ()  # of all its ranks
    problem: str | None = None
    problem_kind: str = ""  # as `launch.plan.AttemptResult`


class Request(Struct, frozen=True, kw_only=True):
    """A node asks node 0 for something: to end the job (the name of the signal that it got), to know of a signal that
    was passed on to the ranks, to send the statuses of all nodes or no longer to, to gather evidence now."""

    stop: str | None = None
    warned: str | None = None
    watch: bool | None = None
    gather: bool = False


class ReportUpdate(Struct, frozen=True, kw_only=True):
    """The report as it stands.  `is_final`: that of a job that is over, or of the moment before it was interrupted."""

    report: Report
    is_final: bool = False


class StopCause(StrEnum):
    """Why node 0 ends an attempt that does not end by itself."""

    RANK_FAILED = "a rank failed"
    INTERRUPTED = "interrupted by a signal"
    HUNG = "it hung (--on-hang)"


class Stop(Struct, frozen=True, kw_only=True):
    """End the ranks of an attempt."""

    attempt: int
    cause: StopCause
    signal: str = "SIGTERM"


class Finish(Struct, frozen=True, kw_only=True):
    """The job is over."""

    job: JobOutcome
    why: Phrase | None = None
