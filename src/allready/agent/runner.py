"""One attempt on this node: from node 0's plan to ranks that run, and to how they ended."""

import os
import signal as signals
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from allready.agent import messages
from allready.launch import logs
from allready.launch import plan as planning
from allready.launch.outcome import TAIL_BYTES, explained
from allready.launch.plan import AttemptPlan, AttemptResult
from allready.launch.request import Note, RunRequest
from allready.launch.workers import WorkerGroup
from allready.live import run_paths
from allready.live.environment import WRAPPER, beacon_environment, installed_torch, rank_environment
from allready.live.node.handle import RankHandle
from allready.model import ProcessEnd

GATHER_BEFORE_END_S = 2.5
"""After a rank has failed, the others are sampled for at most this long before they are ended."""


class Runner:
    """One attempt; `run` once, in a thread; `close` always."""

    def __init__(
        self, plan: messages.Plan, request: RunRequest, *, run_dir: Path, report_dir: Path, say: Callable[[Note], None]
    ) -> None:
        self._orders = plan
        self._request = request
        self._run_dir = run_dir
        self._report_dir = report_dir
        self._say = say
        self._pids: Mapping[int, int] = {}
        self._on_end: Callable[[ProcessEnd], None] = lambda _end: None
        self._log_dirs = {
            rank: run_paths.rank_log_dir(report_dir.absolute(), plan.attempt, plan.node_rank, rank)
            for rank in plan.ranks
        }
        show = _show_of(request)
        local = {rank: number for number, rank in enumerate(plan.ranks)}
        prefixes = logs.prefixes(plan.node_rank, plan.ranks, num_nodes=plan.num_nodes)
        terminal = logs.Terminal(
            sys.stdout.fileno(),
            prefix=lambda rank: prefixes[rank] if plan.world_size > 1 else b"",
            streams=lambda rank: show.streams(rank, local[rank]),
            on_problem=say,
        )
        self._group = WorkerGroup(
            on_line=terminal.line,
            on_batch=terminal.flush,
            on_end=self._ended,
            on_problem=say,
            scratch=run_dir,
        )
        self._show = show

    def run(
        self,
        *,
        stop: threading.Event,
        on_started: Callable[[Mapping[int, int], tuple[str, ...]], None],
        on_end: Callable[[ProcessEnd], None],
    ) -> messages.Ended:
        self._on_end = on_end

        def started(pids: Mapping[int, int]) -> None:
            self._pids = dict(pids)
            on_started(self._pids, ())

        plan = self._plan()
        result = self._run_attempt(plan, stop, started)
        return messages.Ended(
            attempt=self._orders.attempt,
            ends=tuple(self._explained(rank, end, result) for rank, end in sorted(result.ends.items())),
            problem=result.problem or None,
            problem_kind=result.problem_kind,
            was_stopped=result.is_stopped,
        )

    def _explained(self, rank: int, end: ProcessEnd, result: AttemptResult) -> ProcessEnd:
        tail = b"" if end.is_success else _tail(self._log_dirs[rank] / logs.OUT_LOG)
        return explained(end, tail, by_us=rank in result.ended_by_us, error=result.errors.get(rank, ""))

    def handles(self) -> Mapping[int, RankHandle]:
        local = {rank: number for number, rank in enumerate(self._orders.ranks)}
        return {
            rank: RankHandle(
                rank=rank,
                local_rank=local[rank],
                pid=pid,
                log_path=self._log_dirs[rank] / logs.OUT_LOG,
                nccl_log_glob=f"{self._log_dirs[rank]}/nccl.*.log",
                gpu=_gpu_of(local[rank], self._request.devices),
            )
            for rank, pid in self._pids.items()
        }

    def stop_with(self, number: int) -> None:
        """The signal that ranks get first when the attempt is stopped; they get it now."""
        if number != signals.SIGTERM:
            self._group.signal(number)

    def wake(self) -> None:
        self._group.wake()

    def close(self) -> None:
        self._group.close()

    def _run_attempt(
        self, plan: AttemptPlan, stop: threading.Event, started: Callable[[Mapping[int, int]], None]
    ) -> AttemptResult:
        if self._request.framework == "jax" or find_spec("torch") is None:
            from allready.launch.plain import run_attempt
        else:
            from allready.launch.elastic import run_attempt

        def before_stop(_ends: Mapping[int, ProcessEnd]) -> None:
            """A rank has failed: the others live until node 0 has received what they were doing."""
            if self._request.diagnosis:
                stop.wait(GATHER_BEFORE_END_S + 1.0)

        return run_attempt(plan, self._group, stop=stop, on_started=started, before_stop=before_stop)

    def _plan(self) -> AttemptPlan:
        request, orders = self._request, self._orders
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
                run_paths.make_rank_dir(self._run_dir, rank)
                rank_env[number] |= rank_environment(self._run_dir, rank)
        if request.framework == "jax":
            self._jax(environ | env, rank_env)
        if orders.attempt == 0:
            for note in notes:
                self._say(note)
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
            monitor_interval_s=request.monitor_interval_s,
            grace_s=request.grace_s,
        )

    def _copies(self) -> dict[int, dict[str, Path]]:
        base = self._request.log_base
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
                self._request,
                process_id=rank,
                local_rank=number,
                num_processes=orders.world_size,
                host=orders.coordinator,
                port=orders.coordinator_ports[0],
                run_dir=str(self._run_dir),
                num_gpus=len(self._request.devices) or count_visible(LiveHost(), timeout_s=5.0),
                environ=env,
            )

    def _ended(self, end: ProcessEnd) -> None:
        self._on_end(end)


def _show_of(request: RunRequest) -> logs.Show:
    flags: Mapping[str, Any] = request.torchrun
    return logs.Show(
        tee_all=request.tee,
        redirects=logs.parse_std(flags["redirects"]) if flags.get("redirects") else logs.Std.NONE,
        tee=logs.parse_std(flags["tee"]) if flags.get("tee") else logs.Std.NONE,
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


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except OSError:
        return b""
