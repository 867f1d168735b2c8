"""A made-up job of one rank per node in a ring, as agents tell of its sockets; healthy but for what a test changes."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from allready.judging.engine import RuleOutcome
from allready.model import (
    Fleet,
    Lag,
    LinkRow,
    Live,
    NodeEvidence,
    NodeStatus,
    PathSize,
    RankStatus,
    RunEvidence,
    SocketRow,
    World,
    WorldNode,
)
from allready.model.live import GroupMark
from tests.fleets import check

NOW = 1_000_000.0
NONE = frozenset({"roll", "reach", "collectives"})
Pair = tuple[int, int]

DEAD: dict[str, Any] = {
    "unacked": 1, "send_queue_bytes": 96, "backoff": 3, "retransmits": 3, "rto_s": 1.6, "last_received_s": 3.0,
    "last_sent_s": 0.5, "bytes_acked": 1000,
}  # fmt: skip
ARRIVED = {"bytes_received": 1096}
NOT_ARRIVED = {"bytes_received": 1000}


def address(node: int) -> str:
    return f"10.0.0.{node + 1}"


def row(src: int, dst: int, **changes: Any) -> SocketRow:
    """One end of the one connection between two ranks, idle by default."""
    known: dict[str, Any] = {
        "rank": src,
        "pid": 100 + src,
        "local": address(src),
        "local_port": 4000 + 10 * src + dst,
        "remote": address(dst),
        "remote_port": 4000 + 10 * dst + src,
        "rto_s": 0.2,
        "rtt_s": 0.0002,
        "last_sent_s": 0.02,
        "last_received_s": 0.02,
        "bytes_acked": 1000,
        "bytes_received": 1000,
        "busy_s": 1.0,
        "receiver_limited_s": 0.0,
        "buffer_limited_s": 0.0,
    }
    return SocketRow(**(known | changes))


def neighbours(num_nodes: int) -> list[Pair]:
    ring = {(n, (n + 1) % num_nodes) for n in range(num_nodes)} | {((n + 1) % num_nodes, n) for n in range(num_nodes)}
    return sorted(pair for pair in ring if pair[0] != pair[1])


def status(node: int, sockets: Iterable[SocketRow] = (), time_s: float = NOW, **changes: Any) -> NodeStatus:
    """One word of a node; `changes` are those of its rank."""
    rank: dict[str, Any] = {
        "rank": node,
        "pid": 100 + node,
        "process_state": "sleeping",
        "phase": "communicating",
        "num_operations": 100,
        "groups": (GroupMark(group="0", enqueued=100, completed=99, waiting_s=0.1, moved_s=time_s - 0.1),),
    }
    return NodeStatus(
        node_rank=node,
        name=f"gpu{node}",
        time_s=time_s,
        ranks=(RankStatus(**(rank | changes)),),
        sockets=tuple(sockets),
        links=(link(),),
    )


def link(*, carrier: bool = True, name: str = "eth0") -> LinkRow:
    return LinkRow(name=name, is_up=True, has_carrier=carrier)


def job(
    num_nodes: int = 4,
    rows: Mapping[Pair, Mapping[str, Any]] | None = None,
    *,
    more: Iterable[SocketRow] = (),
    heard_s: Mapping[int, float] | None = None,
    reached: Mapping[int, Mapping[int, bool]] | None = None,
    asked_s: float | None = None,
    sizes: Mapping[Pair, PathSize] | None = None,
    links: Mapping[int, LinkRow] | None = None,
    history: Mapping[int, tuple[NodeStatus, ...]] | None = None,
    lags: tuple[Lag, ...] = (),
    **changes: Any,
) -> Fleet:
    """`rows`: (from, to) -> what is different about that end; `reached`: node -> peer -> whether it answered, at
    `asked_s` (now); `sizes`: (from, to) -> how long packets may be.
    """
    rows = rows or {}
    statuses = {}
    for n in range(num_nodes):
        own = [row(*pair, **rows.get(pair, {})) for pair in neighbours(num_nodes) if pair[0] == n]
        own += [r for r in more if r.local == address(n)]
        statuses[n] = replace(status(n, own), links=((links or {}).get(n, link()),))
    at_s = asked_s if asked_s is not None else changes.get("now_s", NOW)
    asked = {
        n: NodeEvidence(
            node_rank=n,
            number=1,
            time_s=at_s,
            status=statuses[n],
            sockets=statuses[n].sockets,
            reached={address(peer): ok for peer, ok in (reached or {}).get(n, {}).items()},
            path_sizes={address(dst): size for (src, dst), size in (sizes or {}).items() if src == n},
        )
        for n in {*(reached or {}), *(src for src, _ in sizes or {})}
    }
    live: dict[str, Any] = {
        "now_s": NOW,
        "statuses": statuses,
        "heard_s": dict.fromkeys(range(num_nodes), 0.2) | dict(heard_s or {}),
        "history": history or {},
        "world_size": num_nodes,
        "evidence": asked,
        "since_s": NOW - 3,
    }
    world = World(
        num_nodes=num_nodes,
        world_size=num_nodes,
        nodes=tuple(WorldNode(node_rank=n, name=f"gpu{n}", ranks=(n,)) for n in range(num_nodes)),
    )
    run = RunEvidence(expected_ranks=num_nodes, node_of_rank={n: n for n in range(num_nodes)}, lags=lags)
    return Fleet(world=world, live=Live(**(live | changes)), run_evidence=run, inapplicable=NONE)


def ask(code: str, *arguments: Any, **changes: Any) -> RuleOutcome:
    """One rule over a made-up job."""
    return check(code, job(*arguments, **changes))
