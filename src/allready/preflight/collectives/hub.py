"""Node 0's part in a run: start it on all nodes, follow it, see that everything is ended."""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from allready import units
from allready.errors import DeadlineExceeded, ExchangeError
from allready.judging.arbiter import is_error
from allready.judging.link_paths import broken_in
from allready.judging.rank_traffic import RankTraffic, link_findings
from allready.judging.stages import Ending, judge
from allready.messaging.channel import LOST, HubSide, Narrator, convert
from allready.model import CollectiveRun, Live, Phrase, ProcessState, RankState, StageResult, World, WorldNode, ranges
from allready.model.fill import said, texts
from allready.model.operations import SWEEPS
from allready.preflight.collectives import wire
from allready.preflight.collectives.spec import SEARCHES, RunSpec
from allready.preflight.collectives.tracker import StageTracker

_TICK_S = 0.25
_EXAMINE_S = 2.5
_SAMPLE_AFTER_S = 3.0
_SAMPLE_EVERY_S = 3.0
_SLOW_AFTER_S = 6.0
_STOP_S = 7.0
_STOP_WHEN_CANCELLED_S = 2.0
_SAY_WAITING_AFTER_S = 1.0
_SAY_EVERY_S = 0.25
_MAX_STATES = 64
_NOT_REACHED = said("not reached")
_UNACKNOWLEDGED = "data between the nodes goes unacknowledged"
_TOO_SLOW = "data between the nodes moves too slowly"
_SHAPES: Mapping[str, type[wire.Progress | wire.Examined | wire.Traffic | wire.Stopped]] = {
    wire.PROGRESS: wire.Progress,
    wire.EXAMINED: wire.Examined,
    wire.TRAFFIC: wire.Traffic,
    wire.STOPPED: wire.Stopped,
}
_runs = itertools.count(1)


async def conduct(hub: HubSide, spec: RunSpec, narrator: Narrator) -> CollectiveRun:
    """One run of the staged collectives, over within the deadlines of `spec` whatever the ranks do.

    Every node of `spec` must be in, or on its way into, `agent.take_part` when START reaches it.  When this returns
    or raises, also by cancellation, all nodes that are still connected were asked to end their ranks.  Messages of
    other stages that arrive meanwhile are dropped.
    """
    absent = [n for n in spec.nproc if n not in hub.nodes]
    if absent:
        return _never_started(spec, absent)
    return await _Run(hub, spec, narrator).conduct()


def _never_started(spec: RunSpec, absent: list[int]) -> CollectiveRun:
    """No rank is started when a node is missing: the ranks could only wait for it."""
    detail = said("node {nodes} is not connected", nodes=ranges(absent))
    tracker = StageTracker(spec, 0.0)
    for node_rank in absent:
        tracker.lose(node_rank, detail, 0.0)
    ending = judge(tracker.record, Ending(outcome="failed"))
    node_of = {r: n for n, here in spec.ranks_of.items() for r in here}
    first, *rest = spec.stages
    ranks = tuple(_unknown(r, node_of[r], spec, detail) for r in ending.culprits)
    failed = _stage(spec, first, "failed", detail=detail, ranks=ranks, culprits=ending.culprits)
    return CollectiveRun(
        label=spec.label,
        backend=spec.backend,
        ranks=tuple(node_of),
        extra_env=dict(spec.extra_env),
        is_grown=spec.is_grown,
        stages=(failed, *(_stage(spec, name, "skipped", detail=_NOT_REACHED) for name in rest)),
    )


def _stage(spec: RunSpec, name: str, outcome: str, **more: Any) -> StageResult:
    usual = {"deadline_s": spec.whole_deadline_s(name), "duration_s": 0.0, **texts(detail=more.pop("detail", ""))}
    return StageResult(name=name, outcome=outcome, **(usual | more))


def _unknown(rank: int, node_rank: int, spec: RunSpec, why: str | Phrase, step: str | Phrase = "") -> RankState:
    return RankState(
        rank=rank,
        node_rank=node_rank,
        local_rank=rank - spec.ranks_of[node_rank][0],
        pid=None,
        state=ProcessState.UNKNOWN,
        **texts(step=step, error=why),
    )


class _Run:
    def __init__(self, hub: HubSide, spec: RunSpec, narrator: Narrator) -> None:
        self._hub, self._spec, self._narrator = hub, spec, narrator
        self._id = f"{os.getpid()}-{next(_runs)}"
        self._tracker = StageTracker(spec, time.monotonic())
        self._num_shown = 0  # stages whose end was narrated
        self._shown_s = 0.0
        self._stop_s = _STOP_S
        self._port = 0  # to be passed on
        self._kept_alive = time.monotonic()
        self._stuck_s: float | None = None
        self._states: dict[int, RankState] = {}
        self._nodes = set(spec.nproc)  # those that have not sent STOPPED
        self._traffic = RankTraffic(
            {n: spec.names.get(n, "") for n in spec.nproc}, spec.addresses, wall_s=time.time() - time.monotonic()
        )
        self._live: Live | None = None  # what is kept of it
        self._sampled_s = self._judged_sample_s = 0.0
        self._world = World(
            num_nodes=len(spec.nproc),
            world_size=spec.world_size,
            nodes=tuple(
                WorldNode(node_rank=n, name=spec.names.get(n, ""), ranks=ranks) for n, ranks in spec.ranks_of.items()
            ),
        )

    async def conduct(self) -> CollectiveRun:
        spec = self._spec
        self._narrator.log(
            "collectives.starting",
            label=spec.label,
            backend=spec.backend,
            num_ranks=spec.world_size,
            num_nodes=len(spec.nproc),
        )
        try:
            for node_rank in spec.nproc:
                await self._hub.send(node_rank, wire.START, self._order(node_rank))
            self._tracker = StageTracker(spec, time.monotonic())
            ending = judge(self._tracker.record, await self._follow())
            ended = time.monotonic()
            self._stuck_s = round(self._tracker.stuck_s(ended), 3)
            self._show_ending(ending)
            if self._live is None and len(spec.nproc) > 1 and self._tracker.is_together(ending):
                self._live = await self._last_sample()
            if ending.outcome != "done":
                await self._examine(ending)
            return self._result(ending, ended)
        except asyncio.CancelledError:
            self._stop_s = _STOP_WHEN_CANCELLED_S
            raise
        finally:
            await self._stop()

    def _order(self, node_rank: int) -> wire.StartOrder:
        spec = self._spec
        ranks = spec.ranks_of[node_rank]
        longest_s = max(
            [*(spec.deadline_s(s) for s in spec.stages), spec.operation_deadline_s(spec.max_bytes)], default=0.0
        )
        return wire.StartOrder(
            run=self._id,
            label=spec.label,
            backend=spec.backend,
            stages=spec.stages,
            first_rank=ranks[0],
            num_ranks=len(ranks),
            world_size=spec.world_size,
            num_nodes=len(spec.nproc),
            master_addr=spec.master_addr,
            sizes=spec.sizes_asked() if (SWEEPS.keys() | SEARCHES) & set(spec.stages) else (),
            dtype=spec.dtype,
            members=spec.members,
            rails=spec.rails,
            is_bench=spec.is_bench,
            path=spec.path,
            is_graph=spec.is_graph,
            iters=spec.iters,
            warmup=spec.warmup,
            size_budget_s=spec.size_budget_s,
            sweep_budget_s=spec.sweep_budget_s,
            backend_timeout_s=max(1800.0, 2 * longest_s + 600),
            positions_every_s=max(0.1, 0.0005 * len(spec.nproc)),
            devices=spec.devices.get(node_rank, ()),
            extra_env=dict(spec.extra_env),
        )

    async def _follow(self) -> Ending:
        """Until the tracker says how it ended."""
        judged, pause_s = 0.0, 0.02 + 1e-5 * self._spec.world_size  # judging costs time in proportion to the ranks
        while True:
            with contextlib.suppress(DeadlineExceeded):
                self._take(*await self._hub.receive(timeout_s=_TICK_S))
            now = time.monotonic()
            if self._port:
                port, self._port = self._port, 0
                await self._to_all(wire.PORT, port)
            if now - self._kept_alive > wire.STILL_HERE_EVERY_S:
                self._kept_alive = now
                await self._to_all(wire.STILL_HERE)
            if now - judged < pause_s:
                continue
            judged = now
            ending = self._tracker.tick(now)
            self._narrate(now)
            if ending is not None:
                return ending
            why = await self._hopeless(now)
            if why:
                return self._tracker.break_off(why)

    async def _hopeless(self, now: float) -> str:
        """How the ranks' connections prove that a path between nodes is broken or far too slow; "" where they do not.

        Asks the nodes for what they see as long as no rank moves; long before the stage's deadline.
        """
        still_s = self._tracker.still_s(now)
        if len(self._spec.nproc) < 2 or self._spec.is_faulty or still_s < _SAMPLE_AFTER_S:
            return ""
        if now - self._sampled_s >= _SAMPLE_EVERY_S:
            await self._sample(now)
        is_answered = self._traffic.is_complete(self._nodes, since_s=self._sampled_s)
        if self._judged_sample_s == self._sampled_s or not (is_answered or now - self._sampled_s >= _EXAMINE_S):
            return ""
        self._judged_sample_s = self._sampled_s
        live = self._traffic.live(now)
        found = broken_in(live)
        if found is not None:
            why = _UNACKNOWLEDGED if found.is_sure and found.for_s >= _SAMPLE_AFTER_S else ""
        else:
            is_slow = still_s >= _SLOW_AFTER_S and any(map(is_error, link_findings(live, self._world)))
            why = _TOO_SLOW if is_slow else ""
        self._live = live if why else None
        return why

    async def _last_sample(self) -> Live:
        """At the connections as they are when a run ends."""
        await self._sample(time.monotonic())
        await self._collect(_EXAMINE_S, lambda: self._traffic.is_complete(self._nodes, since_s=self._sampled_s))
        return self._traffic.live(time.monotonic())

    async def _sample(self, now: float) -> None:
        self._sampled_s = now
        await self._to_all(wire.SAMPLE)

    def _take(self, node_rank: int, kind: str, body: Any) -> None:
        if kind == LOST:
            self._nodes.discard(node_rank)
            self._tracker.lose(
                node_rank, said("node {node} is lost: {loss}", node=node_rank, loss=body.phrase), time.monotonic()
            )
            return
        if node_rank not in self._spec.nproc:
            return
        self._traffic.note_message(node_rank, time.monotonic())
        try:
            self._take_own(node_rank, kind, body)
        except ExchangeError as error:
            self._tracker.lose(node_rank, str(error), time.monotonic())

    def _take_own(self, node_rank: int, kind: str, body: Any) -> None:
        """A message of this stage from a node that takes part.

        Raises:
            ExchangeError: it is not what it should be.
        """
        mine = self._spec.ranks_of[node_rank]
        message = convert(body, _SHAPES[kind]) if kind in _SHAPES else None
        if message is None or message.run != self._id:
            return
        if isinstance(message, wire.Progress):
            self._tracker.feed(_own(message, mine), time.monotonic())
            if message.port and 0 in mine:
                self._port = message.port
        elif isinstance(message, wire.Examined):
            self._states.update({s.rank: s for s in message.ranks if s.rank in mine})
        elif isinstance(message, wire.Traffic):
            self._traffic.take(node_rank, message.history, message.evidence, time.monotonic())
        else:
            self._nodes.discard(node_rank)
            self._tracker.lose(node_rank, said("node {node} has ended its part", node=node_rank), time.monotonic())
            if message.left:
                self._narrator.log("collectives.left", **self._who(message.left))

    async def _to_all(self, kind: str, port: int = 0) -> None:
        message = wire.RunMessage(run=self._id, port=port)
        for node_rank in sorted(self._nodes):
            await self._hub.send(node_rank, kind, message)

    async def _examine(self, ending: Ending) -> None:
        """Ask the agents of the ranks that matter what those are doing."""
        shown = set(self._shown(ending))
        wanted: set[int] = set()
        for node_rank in sorted(self._nodes):
            here = tuple(sorted(shown & set(self._spec.ranks_of[node_rank])))
            if here:
                wanted.update(here)
                await self._hub.send(node_rank, wire.EXAMINE, wire.RunMessage(run=self._id, ranks=here))
        ranks = self._tracker.ranks.values()
        await self._collect(_EXAMINE_S, lambda: wanted <= self._states.keys() | {r.rank for r in ranks if r.unknown})

    async def _stop(self) -> None:
        """Ask all agents to end their ranks, and wait a bounded time until they have."""
        await self._to_all(wire.STOP)
        await self._collect(self._stop_s, lambda: not self._nodes)

    async def _collect(self, limit_s: float, complete: Callable[[], bool]) -> None:
        deadline = time.monotonic() + limit_s
        while not complete() and (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(DeadlineExceeded):
                self._take(*await self._hub.receive(timeout_s=left_s))

    # What is shown.

    def _who(self, ranks: Iterable[int]) -> dict[str, str]:
        """Values for texts: the ranks and their nodes."""
        ranks = sorted(ranks)
        nodes = [n for n, here in self._spec.ranks_of.items() if set(here) & set(ranks)]
        names = self._spec.names
        shown = ", ".join(f"{n} ({names[n]})" if names.get(n) else str(n) for n in nodes[:4])
        return {"ranks": ranges(ranks), "nodes": f"{shown}, …" if len(nodes) > 4 else shown}

    def _narrate(self, now: float) -> None:
        tracker = self._tracker
        while self._num_shown < tracker.current:
            stage, seconds = self._spec.stages[self._num_shown], tracker.duration_s(self._num_shown, now) or 0.0
            self._narrator.log(
                "collectives.stage_done",
                stage=stage,
                seconds=f"{seconds:.1f}",
                detail=tracker.detail(self._num_shown),
                num_ranks=self._spec.world_size,
            )
            self._num_shown += 1
        if now - self._shown_s < _SAY_EVERY_S:
            return
        self._shown_s = now
        waiting = tracker.waiting(now)
        if waiting is None:
            return
        common = {"stage": waiting.stage, "seconds": f"{waiting.waited_s:.0f}", "num_ranks": self._spec.world_size}
        if waiting.stage in SWEEPS and waiting.size_bytes is not None:
            points = tracker.points()
            self._narrator.say(
                "collectives.sweep",
                size=units.size(waiting.size_bytes),
                iteration=waiting.iteration,
                busbw=units.bandwidth_with_unit(points[-1].busbw_gb_per_s if points else None),
                **common,
            )
        elif waiting.waited_s >= _SAY_WAITING_AFTER_S and waiting.num_finished:
            key = "sweep" if waiting.stage in SWEEPS else waiting.stage
            self._narrator.say(f"collectives.waiting_{key}", **self._who(waiting.ranks), **common)
        else:
            self._narrator.say("collectives.stage", num_finished=waiting.num_finished, **common)

    def _show_ending(self, ending: Ending) -> None:
        spec = self._spec
        if ending.outcome == "done":
            self._narrator.log("collectives.done", label=spec.label, num_ranks=spec.world_size)
            return
        stage = spec.stages[ending.stage]
        where = "" if ending.size_bytes is None else f" {ending.size_bytes} B #{ending.iteration}"
        values = {
            "stage": stage + where,
            "detail": ending.detail,
            "seconds": f"{self._tracker.deadline_s(ending):.0f}",
            "entered": ranges(ending.entered),
            "num_ranks": spec.world_size,
        }
        if not ending.culprits:
            self._narrator.log(f"collectives.{ending.outcome}_nobody", **values)
        elif ending.outcome == "hung" and all(self._tracker.ranks[r].stopped_since for r in ending.culprits):
            self._narrator.log("collectives.stopped", **values, **self._who(ending.culprits))
        else:
            self._narrator.log(f"collectives.{ending.outcome}", **values, **self._who(ending.culprits))

    # What is kept.

    def _result(self, ending: Ending, ended: float) -> CollectiveRun:
        spec, tracker = self._spec, self._tracker
        all_ranks = tuple(tracker.ranks)
        stages = []
        for index, name in enumerate(spec.stages):
            seconds = tracker.duration_s(index, ended)
            if ending.outcome != "done" and index == ending.stage:
                stages.append(self._bad_stage(ending, name, seconds or 0.0))
            elif index < tracker.current:
                more = {"duration_s": seconds or 0.0, "detail": tracker.detail(index)}
                stages.append(_stage(spec, name, "ok", entered=all_ranks, finished=all_ranks, **more))
            elif index < ending.stage:
                late = [r.rank for r in tracker.ranks.values() if r.finished < index]
                detail = said("rank {ranks} had not finished when the run ended", ranks=ranges(late))
                stages.append(_stage(spec, name, "skipped", detail=detail))
            else:
                stages.append(_stage(spec, name, "skipped", detail=_NOT_REACHED))
        sizes_left, left_s = tracker.left()
        return CollectiveRun(
            label=spec.label,
            backend=spec.backend,
            ranks=all_ranks,
            stages=tuple(stages),
            pids=tracker.pids(),
            points=tracker.points(),
            extra_env=dict(spec.extra_env),
            is_grown=spec.is_grown,
            path=spec.path,
            is_graph=spec.is_graph,
            diagnostics=tuple(tracker.diagnostics),
            copies_gb_per_s=tracker.speeds(),
            held_share=tracker.held(),
            num_pairs_planned=spec.num_pairs,
            pairs=tuple(tracker.pairs[key] for key in sorted(tracker.pairs)),
            groups=tuple(sorted(tracker.groups, key=lambda g: (g.round, g.members))),
            sizes_left=sizes_left,
            left_s=left_s,
            traffic=self._live,
        )

    def _bad_stage(self, ending: Ending, name: str, seconds: float) -> StageResult:
        return StageResult(
            name=name,
            outcome=ending.outcome,
            deadline_s=self._tracker.deadline_s(ending),
            duration_s=seconds,
            entered=ending.entered,
            finished=ending.finished,
            size_bytes=ending.size_bytes,
            iteration=ending.iteration,
            **texts(detail=ending.detail),
            ranks=tuple(self._state(r) for r in self._shown(ending)),
            culprits=ending.culprits,
            stuck_s=self._stuck_s,
        )

    def _shown(self, ending: Ending) -> list[int]:
        """Whose state tells something: culprits, victims, those that did not come; all when every rank came."""
        failed = (r.rank for r in self._tracker.record.failed) if ending.outcome == "failed" else ()
        first = list(dict.fromkeys([*ending.culprits, *failed]))
        absent = [r for r in self._tracker.ranks if r not in ending.entered and r not in first]
        return (first + absent or list(self._tracker.ranks))[:_MAX_STATES]

    def _state(self, number: int) -> RankState:
        rank = self._tracker.ranks[number]
        if rank.unknown is None and number in self._states:
            return self._states[number]
        step = said("entered {stage}", stage=self._spec.stages[rank.entered]) if rank.entered >= 0 else ""
        why = rank.unknown or said("the agent of node {node} did not answer", node=rank.node_rank)
        return _unknown(number, rank.node_rank, self._spec, why, step)


def _own(progress: wire.Progress, ranks: tuple[int, ...]) -> wire.Progress:
    """Only what a node reports of its own ranks."""
    return wire.Progress(
        run=progress.run,
        events=tuple(e for e in progress.events if e.rank in ranks),
        positions=tuple(p for p in progress.positions if p.rank in ranks),
    )
