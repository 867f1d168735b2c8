"""A made-up job for the judge: ranks do what a test says, agents speak every second, questions are answered at once."""

import base64
import json
import pickle
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from allready.live.digests import digests_of
from allready.live.monitor.monitor import Monitor
from allready.model import (
    Finding,
    GroupMark,
    NodeEvidence,
    NodeStatus,
    PaceSample,
    RankEvidence,
    RankStatus,
    Report,
    World,
    WorldNode,
)
from allready.model.process import SystemCall

WALL = 1_790_000_000.0
STACK = """--- Process {pid}: rank {rank}, pid {pid}, host gpu ---
Current thread 0x0000000000000001 (most recent call first):
{frames}
"""
IN_ALL_REDUCE = (
    '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce\n'
    '  File "/home/u/train.py", line 12 in <module>'
)
IN_USERS = '  File "/home/u/train.py", line 30 in save\n  File "/home/u/train.py", line 14 in <module>'


def entry(
    seq: int, at_s: float, name: str = "all_reduce", size: int = 100, dtype: str = "Float", done: bool = True
) -> Any:
    """One entry of a Gloo ring, as torch 2.13 writes it."""
    return {
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "record_id": seq,
        "pg_id": 0,
        "is_p2p": False,
        "process_group": ["0", "default_pg"],
        "profiling_name": f"gloo:{name}",
        "input_dtypes": [dtype],
        "output_dtypes": [dtype],
        "input_sizes": [[size]],
        "output_sizes": [[size]],
        "retired": done,
        "state": "scheduled",
        "time_created_ns": int(at_s * 1e9),
        "time_discovered_completed_ns": 0,
        "time_discovered_started_ns": 0,
        "timeout_ms": 1800000,
    }


@dataclass
class Play:
    """Nodes of two ranks in a loop of ten all_reduces a second; `rank[r]` holds changes of a rank's status.

    `stuck`: no rank completes an operation from now on; who is in `absent` does not even enter it.
    """

    hang_after_s: float | None = None
    world_size: int = 4
    now: float = 100.0
    seq: int = 0
    stuck_at: float | None = None
    absent: set[int] = field(default_factory=set)
    rank: dict[int, dict[str, Any]] = field(default_factory=dict)
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)
    odd: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)  # rank -> number -> changes of its entry
    silent: set[int] = field(default_factory=set)
    reports: list[Report] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)  # when questions were asked
    told: dict[int, int] = field(default_factory=dict)
    dumps: dict[int, Any] | None = None  # rank -> frames of its calls, which only dumps have; None: it writes none
    is_paced: bool = True
    judge: Monitor = field(init=False)

    def __post_init__(self) -> None:
        nodes = tuple(WorldNode(node_rank=n, name=f"gpu{n}", ranks=self.ranks_of(n)) for n in self.nodes)
        world = World(num_nodes=len(nodes), world_size=self.world_size, nodes=nodes)
        self.judge = Monitor(hang_after_s=self.hang_after_s, world=world)

    @property
    def nodes(self) -> range:
        return range((self.world_size + 1) // 2)

    def ranks_of(self, node: int) -> tuple[int, ...]:
        return tuple(range(2 * node, min(2 * node + 2, self.world_size)))

    @property
    def wall_s(self) -> float:
        return WALL + self.now

    def stick(self, *absent: int) -> None:
        """From now on all ranks wait for these."""
        self.stuck_at, self.absent = self.now, set(absent)

    def go_on(self) -> None:
        self.stuck_at, self.absent = None, set()

    def end(
        self, rank: int, exit_code: int | None = 0, signal: str | None = None, log: str = "", **changes: Any
    ) -> None:
        self.rank[rank] = {
            "process_state": "killed" if signal else "exited",
            "exit_code": exit_code,
            "signal": signal,
            "ended_s": self.wall_s,
            "heartbeat_age_s": None,
            "cpu_share": None,
            **changes,
        }
        self.seen[rank] = {"log_tail": log, "stack": ""}

    def play(self, seconds: float) -> Report | None:
        """Let time pass; the last report."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            if self.stuck_at is None:
                self.seq += 2
            for node in self.nodes:
                if node not in self.silent:
                    self.judge.take_status(self.status(node), self.now, self.wall_s)
            order = self.judge.wants(self.now)
            if order is not None:
                self.numbers.append(order.number)
                self.asked.append(self.now)
                for node in self.nodes:
                    if node not in self.silent:
                        self.judge.take_evidence(self.answer(node, order.number, with_dump=order.with_dump), self.now)
            report = self.judge.judge(self.now, self.wall_s)
            if report is not None:
                self.reports.append(report)
            self.now += 0.2
        return self.judge.last

    def status(self, node: int) -> NodeStatus:
        ranks = self.ranks_of(node)
        pace = tuple(s for r in ranks if (s := self.pace(r)) is not None)
        return NodeStatus(
            node_rank=node, name=f"gpu{node}", time_s=self.wall_s, ranks=tuple(self.one(r) for r in ranks), pace=pace
        )

    def one(self, rank: int) -> RankStatus:
        waits = self.stuck_at is not None and rank not in self.absent
        moved = WALL + (self.stuck_at if self.stuck_at is not None else self.now)
        mark = GroupMark(
            group="0",
            label="default_pg",
            members=tuple(range(self.world_size)),
            enqueued=self.seq + waits,
            completed=self.seq,
            waiting_s=self.now - self.stuck_at if waits and self.stuck_at is not None else None,
            moved_s=moved,
        )
        known: dict[str, Any] = {
            "rank": rank,
            "local_rank": rank % 2,
            "pid": 1000 + rank,
            "process_state": "sleeping",
            "phase": "communicating" if waits else "computing",
            "heartbeat_age_s": 0.1,
            "cpu_share": 0.01 if waits else 0.2,
            "children_cpu_share": 0.0,
            "groups": (mark,),
            "period_s": 0.1,
            "num_operations": self.seq,
            "framework": "torch",
            "site": "/home/u/train.py:12 <module>" if waits else "/home/u/train.py:30 save",
            "site_since_s": moved,
        }
        changes = self.rank.get(rank, {})
        if changes.get("process_state") == "stopped" and self.stuck_at is not None:
            known["heartbeat_age_s"] = self.now - self.stuck_at
        return RankStatus(**(known | changes))

    def entries(self, rank: int, after: int = 0) -> list[Any]:
        last = self.seq + (self.stuck_at is not None and rank not in self.absent)
        begin = WALL + self.now - 0.1 * last
        return [
            entry(seq, begin + 0.1 * seq, done=seq <= self.seq, **self.odd.get(rank, {}).get(seq, {}))
            for seq in range(max(1, last - 200, after + 1), last + 1)
        ]

    def pace(self, rank: int) -> PaceSample | None:
        fresh = self.entries(rank, after=self.told.get(rank, 0)) if self.is_paced else []
        if not fresh or self.rank.get(rank, {}).get("process_state") in {"exited", "killed", "stopped"}:
            return None
        self.told[rank] = fresh[-1]["collective_seq_id"]
        digests = digests_of(fresh)
        return PaceSample(
            rank=rank,
            group="0",
            seqs=tuple(e["collective_seq_id"] for e in fresh),
            created_s=tuple(e["time_created_ns"] / 1e9 for e in fresh),
            digests=tuple(digests[e["collective_seq_id"]] for e in fresh),
            size_bytes=(400,) * len(fresh),
        )

    def dump(self, rank: int) -> Any:
        made = [e | {"frames": (self.dumps or {}).get(rank, [])} for e in self.entries(rank)]
        return {"version": "2.10", "entries": made, "pg_config": {}, "pg_status": {}}

    def answer(self, node: int, number: int, *, with_dump: bool = True) -> NodeEvidence:
        status = replace(self.status(node), pace=())
        found = []
        for rank in status.ranks:
            waits = self.stuck_at is not None and rank.rank not in self.absent
            frames = IN_ALL_REDUCE if waits else IN_USERS
            ring = json.dumps({"version": "2.10", "entries": self.entries(rank.rank), "pg_config": {}, "pg_status": {}})
            known: dict[str, Any] = {
                "stack": STACK.format(pid=rank.pid, rank=rank.rank, frames=frames),
                "ring": ring,
                "syscall": SystemCall(name="futex"),
            }
            if with_dump and self.dumps is not None:
                known["dump"] = base64.b64encode(pickle.dumps(self.dump(rank.rank))).decode()
            found.append(RankEvidence(rank=rank.rank, status=rank, **(known | self.seen.get(rank.rank, {}))))
        return NodeEvidence(node_rank=node, number=number, time_s=self.wall_s, status=status, ranks=tuple(found))


def call_at(line: int) -> Any:
    """The frames of a call in this line of the script, as torch writes them into dumps."""
    return [{"name": "<module>", "filename": "/home/u/train.py", "line": line}]


def traceback(text: str, frames: str = '  File "/home/u/train.py", line 33, in <module>\n    step()\n') -> str:
    """The last output of a Python program."""
    return f"step 12\nTraceback (most recent call last):\n{frames}{text}\n"


CLOSED = traceback(
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:61155",
    '  File "/home/u/train.py", line 12, in <module>\n    dist.all_reduce(x)\n'
    '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce\n    work.wait()\n',
)


def codes(report: Report | None) -> list[str]:
    """Findings that accuse."""
    found: tuple[Finding, ...] = report.findings if report is not None else ()
    return [f.code for f in found if f.severity.value in {"error", "blocker"}]
