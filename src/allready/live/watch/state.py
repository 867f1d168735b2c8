"""What a watcher sees at one moment, wherever it comes from."""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready import units
from allready.model import GroupMark, NodeStatus, RankStatus, Report, ranges
from allready.text.catalog import say_value
from allready.text.ui import ui

NETWORK_KEPT_S = 10.0
"""Sockets and interfaces come with every few statuses only; the last ones are shown for so long."""
OLD_STATUS_S = 5.0
"""A status of a node counts as old after this; agents send theirs every second."""
QUIET_HEARTBEAT_S = 2.0
LONG_SITE_S = 5.0
MOVING_S = 1.0
MOMENT_S = 0.25
"""Ranks of one node are not sampled in the same moment either, and their own reports are up to 0.2 s old."""


class WatchedJob(Struct, frozen=True, kw_only=True):
    """A job and how to reach it.

    What an agent writes into its run folder (`job.json`), but for `place`.

    source: "allready" (an agent of `allready run` answers) or "processes" (ranks that another launcher started, found
    by their environment).  `place`: the agent's run folder, empty for others.  `pids`: of the ranks of a job of
    processes; `is_numbered`: their environment has no rank, and they are numbered as they were named.
    `has_diagnosis`: the agent samples its ranks.
    """

    source: str
    job_id: str
    pid: int
    place: str = ""
    node_rank: int | None = None
    num_nodes: int | None = None
    world_size: int | None = None
    master: str = ""
    name: str = ""
    report_dir: str = ""
    command: tuple[str, ...] = ()
    framework: str = ""
    started_s: float | None = None
    pids: tuple[int, ...] = ()
    is_numbered: bool = False
    has_diagnosis: bool = True
    start_ticks: int | None = None  # of the agent, see `proc.process.Stat`


class Remark(Struct, frozen=True, kw_only=True):
    """A note beside the table: a text of `ui_watch` and its values."""

    key: str
    values: Mapping[str, object] = {}

    def text(self, language: str) -> str:
        """In the reader's language; values may be hostile."""
        return ui(f"watch.{self.key}", language, **{n: say_value(v, language) for n, v in self.values.items()})


class WatchState(Struct, frozen=True, kw_only=True):
    """One sample.  `now_s`: its wall clock.  `notes`: what could not be seen, and why."""

    job: WatchedJob
    now_s: float
    statuses: tuple[NodeStatus, ...] = ()
    report: Report | None = None
    notes: tuple[Remark, ...] = ()


def newest_attempt(statuses: tuple[NodeStatus, ...], before: tuple[NodeStatus, ...]) -> tuple[NodeStatus, ...]:
    """The newest attempt's statuses, with the sockets of the sample before where this one has none."""
    last = max((s.attempt for s in statuses), default=0)
    earlier = {s.node_rank: s for s in before if s.attempt == last}
    found = []
    for status in statuses:
        known = earlier.get(status.node_rank)
        if status.attempt != last:
            continue
        if not status.sockets and known is not None and 0 <= status.time_s - known.time_s < NETWORK_KEPT_S:
            status = replace(status, sockets=known.sockets, links=status.links or known.links)
        found.append(status)
    return tuple(found)


def ages_s(statuses: tuple[NodeStatus, ...], now_s: float) -> dict[int, float]:
    """Node -> how old its status is beside the newest one; of a single node, beside this machine's clock."""
    if len(statuses) == 1:
        return {statuses[0].node_rank: max(0.0, now_s - statuses[0].time_s)}
    on_node_0 = {s.node_rank: s.by_node_0(s.time_s) for s in statuses}
    return {node: max(on_node_0.values()) - sent_s for node, sent_s in on_node_0.items()}


def remarks_on(statuses: tuple[NodeStatus, ...], now_s: float, num_nodes: int | None) -> tuple[Remark, ...]:
    """Nodes of which nothing, or nothing new, is known; that there are no ranks yet."""
    found = []
    if not any(s.ranks for s in statuses):
        found.append(Remark(key="no_ranks"))
    else:
        here = {s.node_rank for s in statuses}
        missing = sorted(set(range(min(num_nodes or 0, 100_000))) - here)
        if missing:
            found.append(Remark(key="silent_nodes", values={"nodes": ranges(missing)}))
    found += [
        Remark(key="old_node", values={"node": node, "age": f"{age_s:.0f}"})
        for node, age_s in sorted(ages_s(statuses, now_s).items())
        if age_s > OLD_STATUS_S
    ]
    return tuple(found)


class RankLine(Struct, frozen=True, kw_only=True):
    """One row of the table.  Texts are ready to be shown; "" where nothing is known.

    `lag`: operations behind the furthest rank in the group in which it is furthest behind.
    """

    rank: int
    node: int
    pid: str
    state: str
    phase: str
    silent: str  # for how long its beacon has been, if that is long
    operation: str
    lag: str
    period: str
    cpu: str
    gpu: str
    sockets: str
    site: str
    site_for: str = ""  # how long it has been there, if that is more than a moment
    is_odd: bool = False

    @property
    def site_head(self) -> str:
        """What stands before the place."""
        return f"{self.site_for}: " if self.site_for else ""


def lines_of(state: WatchState) -> tuple[RankLine, ...]:
    """The table's rows, by rank."""
    verdict = state.report.verdict if state.report is not None else None
    ranks, nodes = (verdict.culprits.ranks, verdict.culprits.nodes) if verdict is not None else ((), ())
    ahead: dict[str, int] = {}
    for status in state.statuses:
        for rank in status.ranks:
            for mark in rank.groups:
                ahead[mark.group] = max(ahead.get(mark.group, 0), mark.enqueued)
    newest_s = max((s.by_node_0(s.time_s) for s in state.statuses), default=0.0)
    found = []
    for status in state.statuses:
        queues: dict[int, tuple[int, int, int]] = {}
        for row in status.sockets:
            if row.rank is not None:
                sent, received, backoff = queues.get(row.rank, (0, 0, 0))
                queues[row.rank] = (
                    sent + row.send_queue_bytes,
                    received + row.receive_queue_bytes,
                    max(backoff, row.backoff),
                )
        for rank in status.ranks:
            busiest = max(rank.groups, key=lambda m: (m.waiting_s or 0.0, m.enqueued), default=None)
            behind = max((_behind(m, ahead[m.group], rank, status, newest_s) for m in rank.groups), default=0)
            how = ""
            if busiest is not None:
                waits = f", {_time(busiest.waiting_s)}" if busiest.waiting_s is not None else ""
                how = f"{busiest.label or busiest.group} #{busiest.enqueued}{waits}"
            ended = _ended(rank.exit_code, rank.signal)
            found.append(
                RankLine(
                    rank=rank.rank,
                    node=status.node_rank,
                    pid="" if rank.pid is None else str(rank.pid),
                    state=ended or rank.process_state,
                    phase="" if ended else rank.phase,
                    silent=_silence(rank),
                    operation=how,
                    lag=str(behind) if rank.groups else "",
                    period=_time(rank.period_s),
                    cpu=_cpu(rank),
                    gpu=_gpu(rank.gpu_busy_share, rank.gpu_power_w),
                    sockets=_queues(queues.get(rank.rank)),
                    site=rank.site,
                    site_for=_site_for(rank, status.time_s),
                    is_odd=rank.rank in ranks or status.node_rank in nodes,
                )
            )
    return tuple(sorted(found, key=lambda line: line.rank))


def _behind(mark: GroupMark, ahead: int, rank: RankStatus, status: NodeStatus, newest_s: float) -> int:
    """Operations behind the furthest rank.

    Nodes report at different moments: of a rank that goes on, what it made since its status is not counted.
    """
    gap = ahead - mark.enqueued
    goes_on = mark.moved_s is not None and status.time_s - mark.moved_s < MOVING_S
    if gap > 0 and goes_on and rank.period_s:
        gap -= math.ceil((newest_s - status.by_node_0(status.time_s) + MOMENT_S) / rank.period_s)
    return max(0, gap)


def _ended(exit_code: int | None, signal: str | None) -> str:
    if signal:
        return signal
    return "" if exit_code is None else f"exit {exit_code}"


def _silence(rank: RankStatus) -> str:
    if rank.heartbeat_age_s is None or rank.heartbeat_age_s < QUIET_HEARTBEAT_S:
        return ""
    return _time(rank.heartbeat_age_s)


def _cpu(rank: RankStatus) -> str:
    """`20%`; `20%+180%` with that of its children; `90% -40%` with the share that a quota took."""
    parts = [] if rank.cpu_share is None else [f"{rank.cpu_share:.0%}"]
    if parts and rank.children_cpu_share is not None and rank.children_cpu_share >= 0.05:
        parts.append(f"+{rank.children_cpu_share:.0%}")
    if parts and rank.throttled_share is not None and rank.throttled_share >= 0.05:
        parts.append(f" -{rank.throttled_share:.0%}")
    return "".join(parts)


def _site_for(rank: RankStatus, now_s: float) -> str:
    """For how long it has been where it is, if that is more than a moment.

    A loop may be seen at the same place in every sample: a rank that made an operation meanwhile has not stayed there.
    """
    moved_s = max((mark.moved_s for mark in rank.groups if mark.moved_s is not None), default=0.0)
    if not rank.site or rank.site_since_s is None or moved_s > rank.site_since_s:
        return ""
    stay_s = now_s - rank.site_since_s
    return _time(stay_s) if stay_s >= LONG_SITE_S else ""


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 1.0:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def _gpu(busy: float | None, power_w: float | None) -> str:
    parts = [] if busy is None else [f"{busy:.0%}"]
    return " ".join([*parts, *([] if power_w is None else [f"{power_w:.0f} W"])])


def _queues(queued: tuple[int, int, int] | None) -> str:
    if queued is None:
        return ""
    sent, received, backoff = queued
    parts = [f"{label} {units.size(value)}" for label, value in (("out", sent), ("in", received)) if value]
    return " ".join([*parts, *([f"backoff {backoff}"] if backoff else [])]) or "-"


def as_json(state: WatchState) -> dict[str, Any]:
    """For `--once --json`: everything, in plain values."""
    import msgspec

    body: dict[str, Any] = msgspec.to_builtins(
        {
            "schema": "allready.watch/1",
            "job": state.job,
            "now_s": state.now_s,
            "statuses": state.statuses,
            "notes": [note.text("en") for note in state.notes],
        },
        str_keys=True,
    )
    report = state.report
    body["status"] = None if report is None else str(report.status)
    body["verdict"] = None if report is None else msgspec.to_builtins(report.verdict, str_keys=True)
    return body
