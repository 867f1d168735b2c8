"""The ranks of one attempt on this node: from node 0's plan to how they ended, in a thread."""

import asyncio
import contextlib
import logging
import os
import signal as signals
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from allready.agent import messages
from allready.agent.context import AgentContext
from allready.agent.earlier import put_aside_node
from allready.launch import logs
from allready.launch import plan as planning
from allready.launch.flag_kinds import streams
from allready.launch.plan import AttemptPlan, AttemptResult
from allready.launch.request import Note, RunRequest
from allready.launch.run_ranks import run_ranks
from allready.launch.workers import WorkerGroup
from allready.live import run_paths
from allready.live.environment import WRAPPER, beacon_environment, installed_torch, rank_environment
from allready.live.node.handle import RankHandle
from allready.model import ProcessEnd
from allready.proc.process import read_regular

log = logging.getLogger(__name__)

GATHER_BEFORE_END_S = 2.5
"""After a rank has failed, the others are sampled for at most this long before they are ended."""
MOVED_S = 1.0
"""A sample shows what a signal brought about when it is so much newer."""
STOP_EXTRA_S = 10.0
"""Ending an attempt may take the grace and this long."""


class LocalAttempt:
    """`start` once, `close` always.

    Called in the loop's thread: `send` with what node 0 is to get (STARTED, and ENDED when every rank was reaped), and
    `on_end` for every rank that has ended, `on_again` for one that was started again while the others go on.
    """

    def __init__(
        self,
        orders: messages.Plan,
        context: AgentContext,
        *,
        send: Callable[[str, object], None],
        on_end: Callable[[ProcessEnd], None],
        on_again: Callable[[int], None],
    ) -> None:
        context.on_start()
        self.number = orders.attempt
        self._orders, self._context = orders, context
        self._send, self._on_end, self._on_again = send, on_end, on_again
        self._pids: Mapping[int, int] = {}
        self._log_dirs = {
            rank: run_paths.rank_log_dir(context.report_dir.absolute(), orders.attempt, orders.node_rank, rank)
            for rank in orders.ranks
        }
        put_aside_node(context.report_dir, orders.attempt, orders.node_rank)
        self._show = show = _show_of(context.request)
        local = {rank: number for number, rank in enumerate(orders.ranks)}
        template = context.request.torchrun.get("log_line_prefix_template")
        prefixes = logs.prefixes(orders.node_rank, orders.ranks, num_nodes=orders.num_nodes)
        if template:
            prefixes = logs.templated(template, context.request.role, local)
        terminal = logs.Terminal(
            sys.stdout.fileno(),
            prefix=lambda rank: prefixes[rank] if template or orders.world_size > 1 else b"",
            streams=lambda rank: show.streams(rank, local[rank]),
            on_problem=context.say,
        )
        self._group = WorkerGroup(
            on_lines=terminal.lines,
            on_batch=terminal.flush,
            on_end=lambda end: self._in_loop(self._on_end, end),
            on_problem=context.say,
            scratch=context.run_dir,
        )
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._stopped_s = 0.0
        self._result = AttemptResult(unmoved=self._unmoved)
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"allready-attempt-{self.number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def handles(self) -> Mapping[int, RankHandle]:
        """The ranks that run, for the observer."""
        environ, host = os.environ | dict(self._context.request.environment), socket.gethostname()
        return {
            rank: RankHandle(
                rank=rank,
                local_rank=local_rank,
                pid=self._pids[rank],
                log_path=self._log_dirs[rank] / logs.OUT_LOG,
                nccl_log_glob=planning.nccl_log_glob(environ, self._log_dirs[rank], self._pids[rank], host=host),
                gpu=_gpu_of(local_rank, self._context.request.devices),
            )
            for local_rank, rank in enumerate(self._orders.ranks)
            if rank in self._pids
        }

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything that the ranks printed so far is in their logs; whether that came about in time."""
        return self._group.flush(timeout_s)

    def stop(self, signal: str) -> None:
        """End the ranks: the signal, the grace, then SIGKILL for whole process groups.  A second call sends SIGTERM."""
        if self._done.is_set():
            return
        if self._stop.is_set():
            self._group.signal(signals.SIGTERM)
            return
        self._result.stop_signal = signals.Signals.__members__.get(signal, signals.SIGTERM)
        self._stopped_s = time.time()
        self._stop.set()
        self._group.wake()

    def stop_once(self, signal: str) -> None:
        """As `stop`, where no process has called that before."""
        if not self._stop.is_set():
            self.stop(signal)

    def pass_on(self, signal: str) -> None:
        """Give the ranks a signal that ends nothing; blocks a moment, so call it in a thread."""
        passed = self._group.pass_on(signals.Signals[signal], time.monotonic())
        if passed is not None:
            ranks = ",".join(map(str, passed))
            key = "run.signal_passed" if passed else "run.signal_unhandled"
            self._context.say(Note(key=key, values={"signal": signal, "ranks": ranks}))

    def _unmoved(self) -> tuple[int, ...]:
        """Ranks whose main thread is where it was when the signal came."""
        status = self._context.state.statuses.get(self._orders.node_rank)
        if status is None or status.time_s <= self._stopped_s + MOVED_S:
            return ()
        return tuple(r.rank for r in status.ranks if r.site_since_s is not None and r.site_since_s < self._stopped_s)

    async def wait(self) -> None:
        """Until every rank has ended and was reaped; bounded by the grace."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._context.request.grace_s + STOP_EXTRA_S):
                await self._done.wait()

    def close(self) -> None:
        """Close what the attempt opened; ranks that would not end in time are killed."""
        self._group.close()
        if self._thread.ident is not None:
            self._thread.join(2.0)

    # -- in the thread

    def _run(self) -> None:
        try:
            ended = self._run_ranks()
        except Exception as error:
            log.exception("attempt %s", self.number)
            ended = messages.Ended(attempt=self.number, problem=f"{type(error).__name__}: {error}"[:2000])
        self._in_loop(self._finished, ended)

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
            self._loop.call_soon_threadsafe(call, *arguments)

    def _finished(self, ended: messages.Ended) -> None:
        self._done.set()
        self._send(messages.ENDED, ended)

    def _run_ranks(self) -> messages.Ended:
        request = self._context.request

        def started(pids: Mapping[int, int]) -> None:
            self._pids = dict(pids)
            self._in_loop(self._send, messages.STARTED, messages.Started(attempt=self.number, pids=self._pids))

        def before_stop(_ends: Mapping[int, ProcessEnd]) -> None:
            """A rank has failed: the others live until node 0 has received what they were doing."""
            if request.diagnosis:
                self._stop.wait(GATHER_BEFORE_END_S + 1.0)

        def before_again(rank: int) -> None:
            if request.diagnosis:  # what the dead process reported of its operations is not the new one's
                run_paths.make_rank_dir(self._context.run_dir, rank)

        def again(pids: Mapping[int, int], rank: int) -> None:
            self._pids = dict(pids)
            self._in_loop(self._on_again, rank)

        result = run_ranks(
            self._plan(),
            self._group,
            over_torch=request.framework != "jax" and find_spec("torch") is not None,
            stop=self._stop,
            on_started=started,
            before_again=before_again,
            on_again=again,
            before_stop=before_stop,
            result=self._result,
        )
        for rank in sorted(result.not_needed):
            self._context.say(Note(key="workers.rank_late", values={"rank": str(rank)}))
        ends = {rank: end for rank, end in result.ends.items() if rank not in result.not_needed}
        return messages.Ended(
            attempt=self.number,
            ends=tuple(self._explained(rank, end, result) for rank, end in sorted(ends.items())),
            problem=result.problem or None,
            problem_kind=result.problem_kind,
        )

    def _explained(self, rank: int, end: ProcessEnd, result: AttemptResult) -> ProcessEnd:
        from allready.judging.end_causes import TAIL_BYTES, explained  # no start needs signatures

        last = b""
        if not end.is_success:
            last = read_regular(self._log_dirs[rank] / logs.OUT_LOG, TAIL_BYTES, end=True) or b""
        return explained(end, last, by_us=rank in result.ended_by_us, error=result.errors.get(rank, ""))

    def _plan(self) -> AttemptPlan:
        request, orders = self._context.request, self._orders
        environ = dict(os.environ)
        env: dict[str, str] = dict(request.environment)
        notes: list[Note] = []
        for added, remarks in (
            planning.omp_threads(environ | env, request.nproc_per_node),
            planning.visible_devices(environ | env, request.devices),
        ):
            env |= added
            notes += remarks
        rank_env: dict[int, dict[str, str]] = {}
        for number, rank in enumerate(orders.ranks):
            own, remarks = planning.nccl_log(
                environ | env, self._log_dirs[rank], request.nccl_log, request.nccl_log_subsystems
            )
            notes += remarks if number == 0 else []
            rank_env[number] = own
        wrapper: tuple[str, ...] = ()
        if not request.command.is_program and (request.diagnosis or request.framework == "jax"):
            wrapper = (WRAPPER,)  # JAX's part needs it, with or without a beacon
            for number in range(len(orders.ranks)):
                rank_env[number] |= {"ALLREADY_PARENT_PID": str(os.getpid())}
        if wrapper and request.diagnosis:
            env |= beacon_environment(environ | env, torch_version=installed_torch())
            for number, rank in enumerate(orders.ranks):
                run_paths.make_rank_dir(self._context.run_dir, rank)
                rank_env[number] |= rank_environment(self._context.run_dir, rank)
        if request.framework == "jax":
            self._jax(environ | env, rank_env)
        if orders.attempt == 0:
            for note in notes:
                self._context.say(note)
        return AttemptPlan(
            command=request.command,
            num_nodes=orders.num_nodes,
            node_rank=orders.place,
            nproc_per_node=len(orders.ranks),
            log_dirs=tuple(self._log_dirs[rank] for rank in orders.ranks),
            first_rank=orders.ranks[0],
            world_size=orders.world_size,
            job_id=orders.job_id,
            rdzv_id=f"{orders.job_id}-{orders.instance}-{orders.attempt}",
            attempt=orders.attempt,
            max_restarts=orders.max_restarts,
            rank_restarts=request.rank_restarts,
            master_addr=orders.master_addr,
            store_port=orders.store_port,
            local_addr=request.local_addr,
            role=request.role,
            wrapper=wrapper,
            env=env,
            rank_env=rank_env,
            split=frozenset(n for n in range(len(orders.ranks)) if self._show.needs_split(n)),
            copies=self._copies(),
            virtual_local_rank="virtual_local_rank" in request.torchrun,
            rank_cpus=request.rank_cpus,
            monitor_interval_s=request.monitor_interval_s,
            grace_s=request.grace_s,
            signals_to_handle=request.torchrun.get("signals_to_handle", planning.SIGNALS_TO_HANDLE),
            numa_binding=request.torchrun.get("numa_binding", ""),
        )

    def _copies(self) -> dict[int, dict[str, Path]]:
        base = self._context.request.log_base
        if base is None:
            return {}
        folder = Path(base) / f"{self._orders.job_id}_{self._orders.instance[:8]}" / f"attempt_{self._orders.attempt}"
        return {
            number: files
            for number in range(len(self._orders.ranks))
            if (files := logs.torchrun_files(folder, self._show, number))
        }

    def _jax(self, env: Mapping[str, str], rank_env: dict[int, dict[str, str]]) -> None:
        from allready.facts.gpu import count_visible
        from allready.facts.live import LiveHost
        from allready.launch.jax import jax_environment

        orders = self._orders
        for number, rank in enumerate(orders.ranks):
            rank_env[number] |= jax_environment(
                self._context.request,
                process_id=rank,
                local_rank=number,
                num_processes=orders.world_size,
                host=orders.coordinator,
                port=orders.coordinator_ports[0],
                run_dir=str(self._context.run_dir),
                num_gpus=len(self._context.request.devices) or count_visible(LiveHost(), timeout_s=5.0),
                environ=env,
            )


def _show_of(request: RunRequest) -> logs.Show:
    return logs.Show(
        redirects=streams(request.torchrun.get("redirects", "0")),
        tee=streams(request.torchrun.get("tee", "0")),
        quiet_ranks=frozenset(request.quiet_ranks),
        local_ranks=frozenset(request.shown_local_ranks),
    )


def _gpu_of(local_rank: int, devices: tuple[str, ...]) -> int | None:
    """The GPU that a rank most likely uses: torch's convention is device LOCAL_RANK of those that are visible."""
    visible = devices or tuple(v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v)
    if not visible:
        return local_rank
    name = visible[local_rank] if local_rank < len(visible) else ""
    return int(name) if name.isdecimal() else None
