"""A recorded run as the live feed that its agents would have sent: statuses and answers into the real monitor.

A recording has a few moments of a job: how far ranks had come when it made no progress, their stacks then, and how
each of them ended.  The feed shows these moments in their order: a job that stands (if anything recorded shows it
standing), then its ends in the order of their times, each with the last output that the rank wrote.
"""

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from allready.agent.local_verdict import HISTORY_S, LocalView
from allready.evidence.inputs import find, open_plain
from allready.evidence.nccl_record import encoded, read_nccl_record
from allready.evidence.read import read_all
from allready.evidence.readers import ReaderContext
from allready.evidence.reading import Reading
from allready.evidence.stacks.read import read_stacks
from allready.judging.analysis import Analysis
from allready.judging.assemble import assemble, world_of
from allready.judging.hang import HangKind, blame_hang
from allready.judging.run_signs import TIME_TO_SPEAK_S, WAITED, has_stopped
from allready.judging.stall import BUSY, WAITING
from allready.judging.stall_files import left_early, peer_ended
from allready.judging.waits import snapshots
from allready.live.digests import digests_of, with_root
from allready.live.monitor.monitor import Monitor
from allready.live.node.tails import TAIL_BYTES
from allready.model import (
    Death,
    FaultClass,
    Fleet,
    GroupMark,
    GroupProgress,
    LinkRow,
    Loss,
    LossReason,
    Mismatch,
    NodeEvidence,
    NodeStatus,
    Operation,
    Origin,
    PaceSample,
    Position,
    ProcessStack,
    ProcessState,
    RankEvidence,
    RankStatus,
    Recorder,
    Report,
    Role,
    RunEvidence,
    SocketRow,
    World,
    WorldNode,
)
from allready.model.process import SystemCall
from allready.signatures import load
from tests.judging.motion import Motion
from tests.live.monitor.made import entry

STEP_S = 0.2
HANG_AFTER_S = 8.0
STANDS_S = 3 * HANG_AFTER_S
"""For so long the feed shows a job that stands; the monitor knows its verdict by then."""
SILENT_LOOKS_S = 3.0
"""Agents that report keep what they see within less."""
HEARD_S = 0.6
"""For so long, at least, the hub has had statuses of a rank whose agent then saw it end."""
STOOD_S = 1.0
"""Ranks that had waited for so long at the last look of their agents had come to a stand."""
SILENT_S = 10.0
"""The hub gives up an agent from which nothing came for so long."""
AFTER_ENDS_S = 8.0
LOOK_S = 0.1
EXIT_SEEN_S = 2.0
"""Agents look at their workers ten times a second, and clocks of nodes differ."""
NUM_BEFORE = 50
"""Operations that all ranks made alike before one that differs."""
LAST_LINES = 60

OUTPUT = cast("Recorder", "output")
"""Of progress: only what ranks wrote tells it."""

PHASES = {
    "in_collective": "communicating", "gpu_wait": "communicating", "import_or_compile": "importing", "io": "saving",
    "data_loading": "loading", "exit": "ending",
}  # fmt: skip
STATES = {"stopped": ProcessState.STOPPED}
CALLS = {"sleep": "clock_nanosleep", "lock": "futex", "subprocess_wait": "wait4", "network_wait": "recvfrom"}
WRITER = re.compile(r"^\s*(?:\d+:\s?)?\[(?:default|rank)?(\d+)\]:?\s?(?:\[rank\d+\]:\s?)?")
"""What launchers put before the lines of a rank."""
NCCL_LOG = re.compile(r"/nccl\.[^/]+\.log$")
"""A file that NCCL_DEBUG_FILE named for one process."""
CLOSED = ("closed by peer", "connection reset", "broken pipe")
FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
FAILED = re.compile(r"distributed/elastic/.*failed \(exitcode: ")
"""The launcher's first word on a failed rank; what follows without a rank's mark is the launcher's own."""
LAUNCHERS = re.compile(r"distributed/elastic/|Sending process \d+ closing signal|\.launch(?:er)?:|slurmstepd|srun:")


@dataclass
class Feed:
    """One recorded run, played to a monitor."""

    readings: list[Reading]
    run: RunEvidence
    now: float = 100.0
    began: float = 100.0
    ended: dict[int, Death | None] = field(default_factory=dict)  # rank -> its death; None: in order
    ended_at: dict[int, float] = field(default_factory=dict)  # rank -> the feed's time
    told: set[int] = field(default_factory=set)  # nodes whose calls were reported
    judge: Monitor = field(init=False)

    def __post_init__(self) -> None:
        saved = _saved(self.readings)
        self.is_all_well = _is_all_well(self.run, saved)
        self.motion = Motion(self.readings) if self.is_all_well else Motion([])
        self.wall_s = (self.motion.begins_s or self.run.last_time_s or 1_790_000_000.0) - self.now
        self.world = _world(self.run)
        self.run = replace(self.run, deaths=tuple(_placed(d, self.run, self.world) for d in self.run.deaths))
        self.stuck_s = self.wall_s + self.now
        self.groups = _groups(self.run)
        self.pairs = [g for g in self.groups if g.pair is not None]
        self.starting = _starting(self.run)
        self.stacks = _stacks_of_waits(self.run) | {
            s.rank: s for s in self.run.stacks if s.rank is not None and s.role in {"rank", "other"}
        }
        of_processes = {s: p.rank for p in self.run.processes if p.rank is not None for s in p.sources}
        self.nccl_logs: dict[int, str] = {}
        for path, events in ((r.source.path, r.events) for r in self.readings if NCCL_LOG.search(r.source.path)):
            writers = {of_processes[path]} if path in of_processes else {self._writer(e.origin) for e in events}
            self.nccl_logs |= {rank: path for rank in writers if rank is not None}
        self.nccl_records = {rank: _nccl_record(path) for rank, path in self.nccl_logs.items()}
        self.judge = Monitor(hang_after_s=HANG_AFTER_S, world=self.world)
        kept = [(s.time_s, r) for s in saved for r in s.status.ranks if r.rank not in self.run.ended_well]
        self.seen = {r.rank: (at_s, r) for at_s, r in kept if not r.is_gone}
        self.left = {r.rank for _, r in kept if r.is_gone and r.exit_code == 0}
        self.gpus = {r.rank: _gpu(r) for s in saved for r in s.status.ranks}
        self.down = {s.node_rank: s for s in saved if _has_no_link(s)}
        self.addresses = {s.node_rank: _named_addresses(s) for s in saved}
        self.cut_off = tuple(sorted({*_cut_off(self.run, self.world), *self.down, *_fell_silent(saved)}))
        self.has_dumps = any(r.dumps for r in self.readings)
        self.entries = {r: _entries(self.run.mismatches, r, self.stuck_s) for n in self.world.nodes for r in n.ranks}

    def _writer(self, origin: Origin) -> int | None:
        """The rank of a line; where none is known, the only one of its node."""
        return origin.rank if origin.rank is not None else _only_rank(origin.node, self.run, self.world)

    def end(self, deaths: Mapping[int, Death | None]) -> None:
        """These ranks are gone from now on."""
        self.ended |= deaths
        self.ended_at |= dict.fromkeys(deaths, self.now)

    def play(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            for node in self._heard():
                self.judge.take_status(self._status(node), self.now, self.wall_s + self.now)
            order = self.judge.wants(self.now)
            if order is not None:
                self.answer(order.number, with_dump=order.with_dump)
            self.judge.judge(self.now, self.wall_s + self.now)
            self.now += STEP_S

    def answer(self, number: int = 0, *, with_dump: bool = True) -> None:
        """All agents that report send their evidence."""
        for node in self._heard():
            self.judge.take_evidence(self._answer(node, number, with_dump=with_dump), self.now)

    def _heard(self) -> Sequence[WorldNode]:
        """Nodes whose agents report: those that lost the network are for a while, then the hub gives them up."""
        if self.now - self.began < SILENT_S:
            return self.world.nodes
        for number in self.cut_off:
            self.judge.lose(number, Loss(reason=LossReason.SILENT, silent_s=SILENT_S), self.now)
        return [n for n in self.world.nodes if n.node_rank not in self.cut_off]

    def _status(self, node: WorldNode) -> NodeStatus:
        ahead_s = next((c.offset_s for c in self.run.clocks if c.node in {node.name, f"node{node.node_rank}"}), 0.0)
        now_s = self.wall_s + self.now + ahead_s
        pace = () if node.node_rank in self.told else tuple(s for r in node.ranks for s in self._pace(r))
        self.told.add(node.node_rank)
        return NodeStatus(
            node_rank=node.node_rank,
            name=node.name,
            time_s=now_s,
            clock_offset_s=ahead_s,
            ranks=tuple(map(self._rank, node.ranks)),
            pace=(*pace, *(s for r in node.ranks for s in self.motion.pace(r, now_s))),
        )

    def _pace(self, rank: int) -> Iterator[PaceSample]:
        entries = self.entries[rank]
        roots = {m.seq: m.by_rank[rank].root for m in self.run.mismatches if rank in m.by_rank}
        digests = {seq: with_root(d, roots.get(seq)) for seq, d in digests_of(entries).items()}
        if entries:
            yield PaceSample(
                rank=rank,
                group="0",
                seqs=tuple(e["collective_seq_id"] for e in entries),
                created_s=tuple(e["time_created_ns"] / 1e9 for e in entries),
                digests=tuple(digests[e["collective_seq_id"]] for e in entries),
                size_bytes=tuple(4 * e["input_sizes"][0][0] for e in entries),
            )

    def _rank(self, rank: int) -> RankStatus:
        if rank in self.ended:
            return self._ended(rank, self.ended[rank])
        moving = self.motion.marks(rank, self.wall_s + self.now)
        if moving:
            return self._moving(rank, moving)
        if rank in self.seen and not self.starting:
            return self._as_seen(*self.seen[rank])
        stack = self.stacks.get(rank)
        doing = stack.activity if stack is not None else ""
        waited_s = self.wall_s + self.now - self.stuck_s
        marks = tuple(
            mark
            for g in self.groups
            for mark in _mark(g, rank, self.stuck_s, waited_s, self.world.world_size, self.pairs)
        )
        waits = any(m.waiting_s is not None for m in marks)
        is_busy = doing in BUSY or (not waits and self._works_alone(rank))
        phase = PHASES.get(doing, "communicating" if waits and not doing else "computing")
        return RankStatus(
            rank=rank,
            pid=self._pid(rank),
            process_state=STATES.get(doing, ProcessState.RUNNING if is_busy else ProcessState.SLEEPING),
            phase=("joining" if rank in self.starting else "starting") if self.starting else phase,
            heartbeat_age_s=waited_s if doing == "stopped" else 0.1,
            cpu_share=1.0 if is_busy else 0.0,
            children_cpu_share=0.0,
            groups=marks,
            period_s=0.1,
            num_operations=0 if self.starting else max((m.enqueued for m in marks), default=0) + NUM_BEFORE,
            framework="jax" if self._is_jax() else "torch",
            site=str(stack.site or "") if stack is not None else "",
            site_since_s=self.stuck_s,
            **self.gpus.get(rank, {}),
        )

    def _as_seen(self, time_s: float, status: RankStatus) -> RankStatus:
        """What the agent kept of its last look, as it goes on: who waited or gave no sign then, does so still."""
        since_s = self.wall_s + self.now - time_s
        marks = tuple(replace(m, waiting_s=m.waiting_s and m.waiting_s + since_s) for m in status.groups)
        is_stopped = status.process_state is ProcessState.STOPPED
        age_s = status.heartbeat_age_s
        return replace(
            status, groups=marks, heartbeat_age_s=age_s + since_s if age_s is not None and is_stopped else age_s
        )

    def _moving(self, rank: int, marks: tuple[GroupMark, ...]) -> RankStatus:
        waits = any(m.waiting_s is not None for m in marks)
        return RankStatus(
            rank=rank,
            pid=self._pid(rank),
            process_state=ProcessState.SLEEPING if waits else ProcessState.RUNNING,
            phase="communicating" if waits else "computing",
            heartbeat_age_s=0.1,
            groups=marks,
            num_operations=sum(m.enqueued for m in marks),
            framework="torch",
        )

    def _works_alone(self, rank: int) -> bool:
        """Its output, or that of its node where no line tells the rank, shows long work of one rank."""
        node = next(n.node_rank for n in self.world.nodes if rank in n.ranks)
        return any(
            e.signature == "torch.single_rank_work"
            and (
                e.origin.rank == rank
                or (e.origin.rank is None and self.run.node_numbers.get(e.origin.node or "") == node)
            )
            for e in self.run.events
        )

    def _ended(self, rank: int, death: Death | None) -> RankStatus:
        signal = death.signal if death is not None and death.kind != "exception" else None
        code = 0 if death is None else death.exit_code
        if death is not None and death.kind == "exception" and code is None:
            code = 1  # Python's own for an exception that no rank caught
        is_oom = death is not None and death.kind == "oom"
        return RankStatus(
            rank=rank,
            pid=self._pid(rank),
            process_state=ProcessState.KILLED if signal else ProcessState.EXITED,
            exit_code=None if signal else code,
            signal=signal,
            ended_s=self.wall_s + self.ended_at[rank],
            oom_killed=is_oom,
        )

    def _pid(self, rank: int) -> int:
        return next((p.pid for p in self.run.processes if p.rank == rank and p.pid is not None), 100_000 + rank)

    def _is_jax(self) -> bool:
        return any("jax" in f.file for s in self.run.stacks for t in s.threads for f in t.frames) or any(
            e.signature.startswith("jax.") for e in self.run.events
        )

    def _answer(self, node: WorldNode, number: int, *, with_dump: bool) -> NodeEvidence:
        ranks = tuple(self._evidence(self._rank(r), with_dump=with_dump) for r in node.ranks)
        status = NodeStatus(
            node_rank=node.node_rank,
            name=node.name,
            time_s=self.wall_s + self.now,
            ranks=tuple(r.status for r in ranks),
        )
        ras = next((r.source.path for r in self.readings if r.ras), None) if node.node_rank == 0 else None
        return NodeEvidence(
            has_whole_logs=True,
            node_rank=node.node_rank,
            number=number,
            time_s=self.wall_s + self.now,
            status=status,
            ranks=ranks,
            ras=_text(ras),
            kernel_lines=tuple(e.text for e in self.run.events if e.signature.startswith("kernel.")),
        )

    def _evidence(self, status: RankStatus, *, with_dump: bool) -> RankEvidence:
        rank, dump, ring = status.rank, b"", "" if self.has_dumps else _ring(self.entries[status.rank])
        for reading in self.readings:
            if not any(d.rank == rank for d in reading.dumps):
                continue
            if reading.source.path.endswith(".json"):
                ring = _text(reading.source.path)
            else:
                dump = Path(reading.source.path).read_bytes()
        stack = self.stacks.get(rank) if rank not in self.ended else None
        doing = stack.activity if stack is not None else ""
        call = CALLS.get(doing, "running" if doing in BUSY else "poll" if doing in WAITING else "")
        return RankEvidence(
            rank=rank,
            status=status,
            dump=base64.b64encode(dump).decode(),
            ring=ring,
            stack=_frames(stack, status.pid) if stack is not None else "",
            log_tail=_last_words(self.ended.get(rank), rank),
            nccl_log_tail=_text(self.nccl_logs.get(rank))[-TAIL_BYTES:],
            nccl_record=self.nccl_records.get(rank, "") if with_dump else "",
            syscall=SystemCall(name=call) if call else None,
            wchan="nfs_wait" if doing == "io" else None,
        )


def _nccl_record(path: str) -> str:
    """As an agent makes it of the file, once that stands."""
    size = Path(path).stat().st_size
    with open_plain(path) as stream:
        return encoded(read_nccl_record(stream, path, ReaderContext(), size_bytes=size))


def replay(folder: Path) -> Report:
    """The report of the monitor when it has the whole run."""
    readings = read_all(find([str(folder)]), workers=1)
    feed = Feed(readings, assemble(readings))
    run = feed.run
    all_well = feed.is_all_well
    if all_well:
        feed.play(feed.motion.ends_s - feed.motion.begins_s)
    in_motion = feed.judge.last
    given_up_s = [e.time_s for e in run.events if e.signature in WAITED and e.time_s is not None]
    own = [d for d in run.deaths if d.rank is not None and not d.by_launcher and not d.earlier]
    refused = {e.origin.source for e in run.events if e.role is Role.ROOT and e.signature.startswith("nccl.")}
    first = [
        d
        for d in own
        if (not d.is_collective_error and (not given_up_s or (d.time_s or 0.0) < min(given_up_s)))
        or d.origin.source in refused
    ]
    if not all_well:
        done = _done(run)
        gone = (
            r
            for n in feed.world.nodes
            for r in n.ranks
            if r in run.ended_well
            or r in feed.left
            or left_early(run, r) is not None
            or n.node_rank in done
            or _left_untold(run, r)
        )
        if feed.left:
            feed.play(HEARD_S)
        feed.end(dict.fromkeys(gone))
        for rank in _lost(feed) - set(feed.ended):
            feed.end({rank: Death(kind="exit", rank=rank, origin=Origin(source=""), text="")})
    if (not first or feed.gpus) and not all_well:  # agents saw them run and stand
        feed.play(STANDS_S)
    ordered = sorted(own, key=lambda d: (d not in first, d.time_s is None, d.time_s or 0.0))
    for death, following in zip_longest(ordered, ordered[1:]):
        if death.rank is not None and feed.ended.get(death.rank) is None:
            feed.end({death.rank: death})
        times = [d.time_s for d in (death, following) if d is not None and d.time_s is not None]
        gap_s = max(times) - min(times) if len(times) == 2 else 1.0
        if gap_s >= LOOK_S:
            feed.play(min(1.0, gap_s))
    if all_well:
        feed.end(dict.fromkeys(range(run.expected_ranks)))
        feed.answer()  # agents read what NCCL logged when all of theirs have ended
    feed.play(AFTER_ENDS_S)
    report = feed.judge.finish(feed.now, feed.wall_s + feed.now)
    if all_well and report.verdict is None and in_motion is not None:
        return in_motion  # a job that was slow and ended well: its end withdraws what was reported of its pace
    return _own_word(feed) or report


def _is_all_well(run: RunEvidence, saved: Sequence[NodeEvidence]) -> bool:
    """Whether all ranks ended in order, or nothing recorded shows that they ever stood."""
    if run.expected_ranks and len(run.ended_well) >= run.expected_ranks:
        return True
    case = Analysis(Fleet(world=World(num_nodes=1, world_size=0), run_evidence=run))
    waits = [m.waiting_s or 0.0 for s in saved for r in s.status.ranks for m in r.groups]
    stood = bool(run.deaths) or max(waits) >= STOOD_S if waits else case.of(has_stopped)
    return bool(run.expected_ranks) and not stood


def _own_word(feed: Feed) -> Report | None:
    """The report of a node that node 0 does not hear and whose own interface is down, as its agent writes it there.

    NCCL's log has the interface that the job uses and, once that is down, that no route is left from there; where its
    agent's last look at its interfaces was kept, that has both.
    """
    unreachable = {e.origin.node for e in feed.run.events if e.signature == "nccl.network_unreachable"}
    for number in feed.cut_off:
        own, of_node_0 = (_addresses(feed.run, n) or feed.addresses.get(n, {}) for n in (number, 0))
        is_down = number in feed.down or number in {feed.run.node_numbers.get(n or "") for n in unreachable}
        if not own or not of_node_0 or not is_down:
            continue
        view = LocalView(number, feed.world, {number: tuple(own.values()), 0: tuple(of_node_0.values())})
        now_s = feed.wall_s + feed.now
        for age_s, is_up in ((HISTORY_S / 2, True), (0.0, False)):
            sockets = (
                SocketRow(rank=None, pid=None, local=local, local_port=1, remote=remote, remote_port=1)
                for local in own.values()
                for remote in of_node_0.values()
            )
            links = tuple(LinkRow(name=name, is_up=is_up, has_carrier=is_up) for name in own)
            view.see(NodeStatus(node_rank=number, name="", time_s=now_s - age_s, sockets=tuple(sockets), links=links))
        return view.judge(now_s, silent_s=SILENT_S)
    return None


def _addresses(run: RunEvidence, node: int) -> dict[str, str]:
    """Interfaces that NCCL chose for the ranks of a node, and their addresses."""
    used = (p for p in run.processes if p.rank is not None and run.node_of_rank.get(p.rank) == node)
    return {name: address for p in used for name, address in p.interfaces}


def _gpu(rank: RankStatus) -> dict[str, Any]:
    return {name: getattr(rank, name) for name in RankStatus.__struct_fields__ if name.startswith("gpu")}


def _saved(readings: Sequence[Reading]) -> list[NodeEvidence]:
    """What agents kept of their last answers, without what stands in files of its own."""
    files = [Path(r.source.path) for r in readings if r.source.kind == "node status"]
    return [msgspec.json.decode(f.read_bytes(), type=NodeEvidence) for f in files]


def _has_no_link(saved: NodeEvidence) -> bool:
    """Whether no interface but the loopback carries anything."""
    others = [row for row in saved.links if row.name != "lo"]
    return bool(others) and not any(row.has_carrier for row in others)


def _fell_silent(saved: Sequence[NodeEvidence]) -> set[int]:
    """Nodes whose agents kept no later look, while those of most others did."""
    last_s = sorted(s.time_s for s in saved)
    return {s.node_rank for s in saved if last_s[len(last_s) // 2] - s.time_s > SILENT_LOOKS_S}


def _named_addresses(saved: NodeEvidence) -> dict[str, str]:
    """Interface -> address, where there is only one besides the loopback."""
    names = [row.name for row in saved.links if row.name != "lo"]
    return {names[0]: saved.addresses[0]} if len(names) == 1 and saved.addresses else {}


def _cut_off(run: RunEvidence, world: World) -> tuple[int, ...]:
    """Nodes that lost the network, as RAS saw them: nothing of their agents arrives either."""
    blame = Analysis(Fleet(world=world, run_evidence=run)).of(blame_hang)
    return blame.nodes if blame.kind is HangKind.CUT_OFF else ()


def _left_untold(run: RunEvidence, rank: int) -> bool:
    """The others lost it, and its launcher reported how the other ranks of its node ended: it had ended with 0."""
    victims = _gave_up(run)
    told = {d.rank for d in run.deaths if d.rank is not None and (d.exit_code is not None or d.signal is not None)}
    lost = [d for d in victims.values() if any(word in d.text.lower() for word in CLOSED)]
    node = run.node_of_rank.get(rank)
    return (
        2 * len(lost) > len(victims)
        and rank not in victims
        and rank not in told
        and node is not None
        and node in {run.node_of_rank.get(r) for r in told}
    )


def _only_rank(node: str | None, run: RunEvidence, world: World) -> int | None:
    """The rank of a node that has one only."""
    ranks = [r for n in world.nodes if n.node_rank == run.node_numbers.get(node or "") for r in n.ranks]
    return ranks[0] if len(ranks) == 1 else None


def _placed(death: Death, run: RunEvidence, world: World) -> Death:
    """With its rank, where its node has one only."""
    rank = death.rank if death.rank is not None else _only_rank(death.node or death.origin.node, run, world)
    return replace(death, rank=rank)


def _lost(feed: "Feed") -> set[int]:
    """The rank that is missing, where peers saw it close its connections: it had ended."""
    run = feed.run
    if not peer_ended(Analysis(Fleet(world=World(num_nodes=1, world_size=0), run_evidence=run))):
        return set()
    told = {d.rank for d in run.deaths} | run.ended_well
    missing = {r for n in feed.world.nodes for r in n.ranks} - told - set(_gave_up(run))
    return missing if len(missing) == 1 else set()


def _done(run: RunEvidence) -> set[int]:
    """Nodes whose agent already waited for the others when a rank of another ended: all of theirs had ended."""
    first_s = min((d.time_s for d in run.deaths if d.time_s is not None and not d.by_launcher), default=None)
    failed = {run.node_numbers.get(d.node or d.origin.node or "") for d in run.deaths if not d.earlier}
    found: set[int] = set()
    for event in run.events:
        number = run.node_numbers.get(event.origin.node or "")
        if event.signature != "elastic.exit_barrier_failed" or number is None or number in failed:
            continue
        since_s = (event.time_s or 0.0) - float(event.values.get("elapsed", "nan"))
        if first_s is not None and since_s <= first_s + EXIT_SEEN_S:
            found.add(number)
    return found


def _world(run: RunEvidence) -> World:
    """The job's members; ranks without a known node are on the first, nodes without a rank have the next."""
    known = world_of(run)
    size = max(
        known.world_size, 1 + max(run.node_of_rank, default=-1), 1 + max((d.rank or 0 for d in run.deaths), default=0)
    )
    placed = {r for n in known.nodes for r in n.ranks}
    rest = tuple(r for r in range(size) if r not in placed)
    without = [n for n in known.nodes if not n.ranks]
    if len(without) == len(rest):  # one each
        given = dict(zip((n.node_rank for n in without), rest, strict=True))
        known = replace(known, nodes=tuple(replace(n, ranks=n.ranks or (given[n.node_rank],)) for n in known.nodes))
        rest = ()
    nodes = [(n.node_rank, n.name or f"node{n.node_rank}", n.ranks) for n in known.nodes] or [(0, "node0", ())]
    per_node = max(len(ranks) for _, _, ranks in nodes)
    for at, (number, name, ranks) in enumerate(nodes):
        if not ranks and not rest and at > 0:
            nodes[at] = (number, name, tuple(range(size, size + per_node)))
            size += per_node
    return World(
        num_nodes=len(nodes),
        world_size=size,
        nodes=tuple(
            WorldNode(node_rank=number, name=name, ranks=tuple(sorted((*ranks, *(rest if at == 0 else ())))))
            for at, (number, name, ranks) in enumerate(nodes)
        ),
    )


def _groups(run: RunEvidence) -> list[GroupProgress]:
    """How far ranks came in each group, by what tells most of it."""
    found: dict[str, GroupProgress] = {}
    for snapshot in snapshots(Analysis(Fleet(world=World(num_nodes=1, world_size=0), run_evidence=run))):
        for wait in (*snapshot.waits, *snapshot.level):
            if wait.progress is not None and (snapshot.source == "torch" or not found):
                found.setdefault(wait.progress.group, wait.progress)
    for progress in run.progress:
        if progress.source == "flight recorder":
            found.setdefault(progress.group, progress)
    waits = any(p.stuck is not None for g in found.values() for p in g.positions.values())
    return list(found.values()) if waits else _of_victims(run) or list(found.values())


def _gave_up(run: RunEvidence) -> dict[int, Death]:
    """Ranks whose last output are that a wait or a connection failed: until then they were in that operation."""
    return {
        d.rank: d
        for d in run.deaths
        if d.rank is not None and d.is_collective_error and not d.earlier and (d.text or not d.by_launcher)
    }


def _of_victims(run: RunEvidence) -> list[GroupProgress]:
    """Where no record tells who waits: those that gave up waiting in an operation were in it.

    A rank that its launcher ended soon after may have been in it too, unless no other process is left to have been
    missing.
    """
    victims = _gave_up(run)
    waited = [d for d in victims.values() if not any(word in d.text.lower() for word in CLOSED)]
    if not victims or _starting(run) or (not waited and len(victims) < 2):
        return []
    since_s = min((d.time_s for d in victims.values() if d.time_s is not None), default=0.0)
    ranks = {r for n in _world(run).nodes for r in n.ranks}
    others = ranks - set(victims)
    if not others:
        return []
    soon = {d.rank for d in run.deaths if d.by_launcher and (d.time_s or 0.0) <= since_s + TIME_TO_SPEAK_S}
    entered = set(victims) | (others & soon if others - soon else set())
    stuck = Operation(seq=NUM_BEFORE, name="")
    at = Position(enqueued=NUM_BEFORE, completed=NUM_BEFORE - 1, stuck=stuck)
    return [GroupProgress(group="0", source=OUTPUT, label="default_pg", positions=dict.fromkeys(sorted(entered), at))]


def _starting(run: RunEvidence) -> set[int]:
    """Ranks that waited for others to come to the start, until they gave up; empty where the job had started."""
    known = load()
    waited = [
        e
        for e in run.events
        if e.role in {Role.ROOT, Role.RECORD}
        and e.signature in known
        and known[e.signature].fault_class is FaultClass.START_ABSENT
    ]
    victims = set(_gave_up(run))
    begun = {c.rank: c.init_completed for p in run.processes for c in p.comms if c.nranks == run.expected_ranks}
    if run.progress or any(e.role is Role.ROOT and e.signature.startswith("nccl.") for e in run.events):
        return set()
    if begun and not any(begun.values()):
        return set(begun)
    own = {d.rank for d in run.deaths if d.rank is not None and not d.by_launcher and not d.earlier}
    ranks = {r for n in _world(run).nodes for r in n.ranks}
    return victims if waited and own <= victims < ranks else set()


def _stacks_of_waits(run: RunEvidence) -> dict[int, ProcessStack]:
    """Where ranks stood that gave up waiting: their tracebacks tell it, as a stack would have."""
    found = {}
    for rank, death in _gave_up(run).items():
        traceback = _last_words(death, rank).rpartition("Traceback (most recent call last)")[2]
        frames = [FRAME.search(line) for line in traceback.splitlines()]
        lines = [f'  File "{m[1]}", line {m[2]} in {m[3]}' for m in reversed(frames) if m is not None]
        text = "\n".join(["Current thread 0x0000000000000001 (most recent call first):", *lines]) + "\n"
        stacks = assemble([read_stacks(text.encode(), f"rank{rank}")]).stacks if lines else ()
        if stacks:
            found[rank] = replace(stacks[0], rank=rank)
    return found


def _mark(
    group: GroupProgress, rank: int, stuck_s: float, waited_s: float, size: int, pairs: Sequence[GroupProgress]
) -> Iterator[GroupMark]:
    members = group.members or tuple(sorted({*group.positions, *group.absent})) or tuple(range(size))
    if group.source == OUTPUT:
        members = tuple(range(size))
    if rank not in members or group.pair is not None:
        return
    position = group.positions.get(rank)
    waiting = [p.stuck.seq for p in group.positions.values() if p.stuck is not None]
    if position is None:  # nothing is recorded of it: it has not come to what the others wait in
        enqueued, stuck = max(waiting, default=1) - 1, None
    else:
        enqueued, stuck = position.enqueued, position.stuck
    completed = enqueued if stuck is None else stuck.seq - 1
    for pair in pairs:  # a cell counts sends and receives with the rest of their group
        made = pair.positions.get(rank)
        if made is not None and pair.name == group.name:
            stuck = stuck or made.stuck
            enqueued += made.enqueued
            completed += made.enqueued - (made.stuck is not None)
    yield GroupMark(
        group=group.name,
        label=group.label,
        members=members,
        enqueued=enqueued,
        completed=completed,
        waiting_s=None if stuck is None else waited_s,
        moved_s=stuck_s,
    )


def _entries(mismatches: Sequence[Mismatch], rank: int, now_s: float) -> list[Any]:
    """What a recorder would hold where only NCCL's log has the calls: equal ones, and then those that differ."""
    found = []
    for mismatch in mismatches:
        operation = mismatch.by_rank.get(rank)
        if mismatch.source != "coll log" or mismatch.kind == "peer" or operation is None:
            continue
        usual = next(iter(mismatch.by_rank.values()))
        for seq in range(max(1, mismatch.seq - NUM_BEFORE), mismatch.seq + 1):
            call = operation if seq == mismatch.seq else usual
            at_s = now_s - 0.1 * (mismatch.seq + 1 - seq)
            size = call.num_elements if seq == mismatch.seq else 100
            found.append(entry(seq, at_s, call.name, size or 1, call.dtype or "Float", done=seq < mismatch.seq))
        break
    return found


def _ring(entries: list[Any]) -> str:
    return json.dumps({"version": "2.10", "entries": entries, "pg_config": {}, "pg_status": {}}) if entries else ""


def _frames(stack: ProcessStack, pid: int | None) -> str:
    """As faulthandler writes them, with the head that agents put before."""
    lines = [f"--- Process {pid}: rank {stack.rank}, pid {pid}, host node ---"]
    for number, thread in enumerate(sorted(stack.threads, key=lambda t: not t.is_main), start=1):
        head = "Current thread" if thread.is_main else "Thread"
        lines.append(f"{head} 0x{number:016x} (most recent call first):")
        lines += [f'  File "{f.file}", line {f.line or 1} in {f.function}' for f in thread.frames]
    return "\n".join(lines) + "\n"


def _last_words(death: Death | None, rank: int) -> str:
    """The lines around a death in the file that tells of it, as far as they are this rank's and not its launcher's.

    What a library writes when it aborts has no mark of a rank before it.
    """
    if death is None or death.origin.line is None:
        return death.text if death is not None else ""
    lines = _text(death.origin.source).splitlines()[: death.origin.line + LAST_LINES]
    report = next((n for n, line in enumerate(lines) if FAILED.search(line)), len(lines))
    lines = [line for n, line in enumerate(lines) if not LAUNCHERS.search(line) and (n < report or WRITER.match(line))]
    marks = [WRITER.match(line) for line in lines]
    writers = {int(m[1]) for m in marks if m is not None}
    if rank in writers:
        is_abort = death.signal == "SIGABRT" or writers == {rank}
        of_rank = [is_abort if m is None else int(m[1]) == rank for m in marks]
        lines = [line[m.end() if m else 0 :] for line, m, own in zip(lines, marks, of_rank, strict=True) if own]
    return "\n".join(lines[-3 * LAST_LINES :]) + "\n"


def _text(path: str | None) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace") if path and Path(path).is_file() else ""


def outcome(report: Report, world: World) -> tuple[str, tuple[int, ...]]:
    """Class and ranks of its verdict; where it names nodes alone, the ranks of these."""
    verdict = report.verdict
    if verdict is None:
        return "HEALTHY", ()
    return str(verdict.fault_class), verdict.culprits.ranks or _ranks_of(verdict.culprits.nodes, world)


def outcome_of_files(report: Report, fed: Report) -> tuple[str, tuple[int, ...]]:
    """The same of files.  Where these tell no nodes, who wrote the line that accuses its node stands for that node."""
    world, own, other = fed.world, report.verdict, fed.verdict
    found = outcome(report, world)
    if own is None or other is None or own.code != other.code or report.world.nodes:
        return found
    if not own.culprits.ranks or other.culprits.ranks:
        return found
    nodes = [n.node_rank for n in world.nodes if set(own.culprits.ranks) & set(n.ranks)]
    return found[0], _ranks_of(nodes, world)


def _ranks_of(nodes: Collection[int], world: World) -> tuple[int, ...]:
    return tuple(sorted(r for n in world.nodes if n.node_rank in nodes for r in n.ranks))
