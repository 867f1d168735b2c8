"""A made-up job that runs: four ranks on two nodes that all wait in number 64, but for those that a test changes."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.judging.engine import RuleOutcome
from allready.model import (
    Absence,
    CallSite,
    ChildRow,
    Fleet,
    Frame,
    GroupMark,
    GroupProgress,
    Live,
    NodeEvidence,
    NodeStatus,
    Operation,
    Origin,
    Position,
    ProcessStack,
    ProcessState,
    RankEvidence,
    RankStatus,
    Recorder,
    RunEvidence,
    SocketRow,
    ThreadStack,
    World,
    WorldNode,
)
from tests.fleets import check

NOW = 2000.0
ENTERED = NOW - 10.0
NODES = {0: 0, 1: 0, 2: 1, 3: 1}


def mark(enqueued: int, pending: bool = True, **changes: Any) -> GroupMark:
    """How far a rank came in the group of all."""
    known: dict[str, Any] = {
        "group": "0",
        "label": "default_pg",
        "members": (0, 1, 2, 3),
        "enqueued": enqueued,
        "completed": enqueued - 1 if pending else enqueued,
        "waiting_s": NOW - ENTERED if pending else None,
        "moved_s": ENTERED,
    }
    return GroupMark(**(known | changes))


def waiting(rank: int, **changes: Any) -> RankStatus:
    """A rank that waits in number 64."""
    known: dict[str, Any] = {
        "rank": rank,
        "local_rank": rank % 2,
        "pid": 100 + rank,
        "process_state": "sleeping",
        "phase": "communicating",
        "heartbeat_age_s": 0.1,
        "cpu_share": 0.01,
        "children_cpu_share": 0.0,
        "groups": (mark(64),),
        "period_s": 0.05,
        "num_operations": 64,
        "site": "train.py:12 step",
        "site_since_s": ENTERED,
        "framework": "torch",
    }
    if changes.get("process_state") in {"stopped", "traced"}:
        known["heartbeat_age_s"] = NOW - ENTERED
    return RankStatus(**(known | changes))


def behind(rank: int, **changes: Any) -> RankStatus:
    """A rank that is through number 63 and did not enter number 64."""
    known: dict[str, Any] = {"groups": (mark(63, pending=False),), "phase": "computing", "site": "train.py:30 save"}
    return waiting(rank, **(known | changes))


def ended(rank: int, exit_code: int | None = 0, signal: str | None = None, **changes: Any) -> RankStatus:
    """A rank whose process has ended after number 63."""
    known: dict[str, Any] = {
        "process_state": "killed" if signal else "exited",
        "exit_code": exit_code,
        "signal": signal,
        "ended_s": ENTERED - 1,
        "heartbeat_age_s": None,
        "cpu_share": None,
    }
    return behind(rank, **(known | changes))


def stack(rank: int, activity: str, site: str = "train.py:30 save", others: tuple[str, ...] = ()) -> ProcessStack:
    """The rank's main thread, and what other threads of it do."""
    threads = [ThreadStack(name="MainThread", is_main=True, frames=(Frame(function="save", file="train.py", line=30),))]
    threads += [
        ThreadStack(name=f"t{i}", frames=(Frame(function="f", file="x.py", line=1),), activity=what)
        for i, what in enumerate(others)
    ]
    return ProcessStack(
        origin=Origin(source=f"rank{rank}/evidence/stacks.txt"),
        role="rank",
        rank=rank,
        pid=100 + rank,
        threads=tuple(threads),
        activity=activity,
        site=CallSite.known(site),
    )


def job(
    *ranks: RankStatus,
    stacks: tuple[ProcessStack, ...] = (),
    seen: Mapping[int, Mapping[str, Any]] | None = None,
    sockets: tuple[SocketRow, ...] = (),
    live: Mapping[str, Any] | None = None,
    **run: Any,
) -> Fleet:
    """The job as the judge would put it together.

    Args:
        ranks: those that differ from `waiting`.
        stacks: those that differ from standing in a collective.
        seen: rank -> what was gathered of it.
        sockets: of every node.
        live: changes of `Live`.
        run: changes of the `RunEvidence`.
    """
    statuses = {r: waiting(r) for r in NODES} | {r.rank: r for r in ranks}
    nodes = {
        n: NodeStatus(
            node_rank=n, name=f"gpu{n}", time_s=NOW, ranks=tuple(s for r, s in statuses.items() if NODES[r] == n)
        )
        for n in (0, 1)
    }
    earlier = {n: tuple(replace(s, time_s=NOW - back) for back in (4.0, 3.0, 2.0, 1.0, 0.0)) for n, s in nodes.items()}
    evidence = {
        n: NodeEvidence(
            node_rank=n,
            number=1,
            time_s=NOW,
            status=s,
            sockets=sockets,
            ranks=tuple(RankEvidence(rank=r.rank, status=r, **(seen or {}).get(r.rank, {})) for r in s.ranks),
        )
        for n, s in nodes.items()
    }
    given: dict[str, Any] = {
        "now_s": NOW,
        "statuses": nodes,
        "heard_s": dict.fromkeys(nodes, 0.0),
        "evidence": evidence,
        "history": earlier,
        "world_size": 4,
        "since_s": ENTERED + 1,
        "hang_after_s": 60.0,
    }
    all_stacks = {
        r: stack(r, "in_collective", "train.py:12 step") for r, s in statuses.items() if s.heartbeat_age_s is not None
    }
    all_stacks |= {s.rank: s for s in stacks if s.rank is not None}
    known: dict[str, Any] = {
        "expected_ranks": 4,
        "node_of_rank": NODES,
        "node_numbers": {"node0": 0, "node1": 1},
        "progress": progress(statuses),
        "stacks": tuple(all_stacks.values()),
    }
    return Fleet(
        world=World(
            num_nodes=2,
            world_size=4,
            nodes=(
                WorldNode(node_rank=0, name="gpu0", ranks=(0, 1)),
                WorldNode(node_rank=1, name="gpu1", ranks=(2, 3)),
            ),
        ),
        live=Live(**(given | dict(live or {}))),
        run_evidence=RunEvidence(**(known | run)),
        inapplicable=frozenset({"roll", "reach", "collectives"}),
    )


def progress(statuses: Mapping[int, RankStatus], name: str = "all_reduce") -> tuple[GroupProgress, ...]:
    """Positions as the marks say."""
    groups: dict[str, dict[int, Position]] = {}
    members: dict[str, tuple[int, ...]] = {}
    for rank, status in statuses.items():
        for one in status.groups:
            pending = one.completed is not None and one.enqueued > one.completed
            stuck = Operation(seq=(one.completed or 0) + 1, name=name) if pending else None
            groups.setdefault(one.group, {})[rank] = Position(
                enqueued=one.enqueued, completed=one.completed, started=one.started, stuck=stuck
            )
            members[one.group] = one.members
    return tuple(
        GroupProgress(
            group=g,
            label="default_pg" if g == "0" else "",
            source=Recorder.FLIGHT,
            members=members[g],
            positions=found,
            absent={r: Absence.NOT_JOINED for r in members[g] if r not in found},
        )
        for g, found in sorted(groups.items())
    )


def child(state: str, role: str = "loader") -> ChildRow:
    return ChildRow(pid=777, parent=102, role=role, state=ProcessState(state))


def socket(**changes: Any) -> SocketRow:
    known: dict[str, Any] = {
        "rank": 0,
        "pid": 100,
        "local": "10.0.0.1",
        "local_port": 1,
        "remote": "10.0.0.2",
        "remote_port": 2,
    }
    return SocketRow(**(known | changes))


def ask(code: str, *ranks: RankStatus, **changes: Any) -> RuleOutcome:
    """One rule over the made-up job."""
    return check(code, job(*ranks, **changes))
