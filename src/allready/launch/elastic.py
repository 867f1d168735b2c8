"""torchelastic's agent over our own worker group: the only file that knows its internals.

Written against torch 2.4 to 2.13: hooks take whatever arguments a version passes, and constructors get only what all
versions know.  Restarts are decided elsewhere, so one agent lives for one attempt.
"""

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from allready.launch.plan import (
    SIGNALS_TO_HANDLE,
    AttemptPlan,
    AttemptResult,
    base_environment,
    error_file,
    rank_variables,
    read_errors,
    virtual_local_rank,
    workers_of,
)
from allready.launch.workers import STOP_LOOK_S, WorkerGroup
from allready.model import ProcessEnd
from allready.model.process import signal_number

_POLL_S = 0.02
_HEALTHY_S = 2.0  # an end is noticed at once: torchelastic need not hear more often that all is well
_PAUSE_S = 0.005  # torchelastic's own loop sleeps so long between two looks; the rest is waited in the look itself
_STORE_SLACK_S = 10.0
_CONNECT_S = 1.0
_PORT_TAKEN = ("eaddrinuse", "address already in use")


class _Stopped(Exception):  # noqa: N818 - a state, not a mistake
    """`stop` was set while the nodes met, or while they wait for each other's end."""


def preload() -> None:
    """Import what `run_attempt` needs (about a second); to be called in a thread while the nodes meet.

    Raises:
        ImportError: there is no torch, or it has no torchelastic.
    """
    _agent_class()


def run_attempt(
    plan: AttemptPlan,
    group: WorkerGroup,
    *,
    stop: threading.Event,
    on_started: Callable[[Mapping[int, int]], None] | None = None,
    before_stop: Callable[[Mapping[int, ProcessEnd]], None] | None = None,
) -> AttemptResult:
    """Meet the other nodes at the store, start the ranks, and wait for their end; blocks, so call it in a thread.

    One rank that fails ends the others of the node.  `stop` ends them within the plan's grace.  `on_started(pids)` is
    called when all ranks run, and `before_stop(ends)` once before ranks that still live are ended, whatever the reason:
    the time to look at them.  No rank is left in any case, and the store's port is free again.
    """
    started_s = time.time()
    agent: Any = None
    problem, kind = "", ""
    try:
        agent = _agent_class()(plan, group, stop, on_started, before_stop)
        agent.run()
    except _Stopped:
        pass
    except Exception as error:  # noqa: BLE001 - torch raises RuntimeError and its own; all of them end this attempt
        problem, kind = _explain(error, is_met=agent is not None and agent.is_met)
    finally:
        ends = dict(group.stop(grace_s=plan.grace_s))
        if agent is not None:
            ends = {**ends, **agent.ends}
            agent.let_go()
    return AttemptResult(
        ends=ends,
        pids={} if agent is None else agent.pids,
        ended_by_us=frozenset() if agent is None else agent.ended_by_us,
        started_s=started_s,
        ended_s=time.time(),
        is_stopped=agent is not None and agent.is_stopped,
        problem=problem,
        problem_kind=kind,
        errors=read_errors(plan),
    )


def _explain(error: Exception, *, is_met: bool) -> tuple[str, str]:
    if is_met and isinstance(error, OSError):  # of starting the ranks
        return f"{error.strerror}: {error.filename}" if error.filename else str(error), "program"
    text = " ".join(f"{type(error).__name__}: {error}".split())[:1000]
    if any(mark in text.lower() for mark in _PORT_TAKEN):
        return text, "port"
    return text, "torch" if is_met or isinstance(error, ImportError | AttributeError | TypeError) else "rendezvous"


@functools.cache
def _agent_class() -> Any:
    """The agent's class; made here because importing torch takes a second."""
    from datetime import timedelta

    import torch.distributed.elastic.rendezvous.registry as registry
    from torch.distributed import TCPStore
    from torch.distributed.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerSpec, WorkerState
    from torch.distributed.elastic.events import Event
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.launcher.api import LaunchConfig

    knows_signals = "signals_to_handle" in {f.name for f in msgspec.structs.fields(LaunchConfig)}

    class Agent(SimpleElasticAgent):  # type: ignore[misc]
        def __init__(
            self,
            plan: AttemptPlan,
            group: WorkerGroup,
            stop: threading.Event,
            on_started: Callable[[Mapping[int, int]], None] | None,
            before_stop: Callable[[Mapping[int, ProcessEnd]], None] | None,
        ) -> None:
            handler = registry.get_rendezvous_handler(
                RendezvousParameters(
                    backend="static",
                    endpoint=_endpoint(plan.master_addr, plan.store_port),
                    run_id=plan.rdzv_id or f"{plan.job_id}/attempt{plan.attempt}",
                    min_nodes=plan.num_nodes,
                    max_nodes=plan.num_nodes,
                    local_addr=plan.local_addr,
                    rank=plan.node_rank,
                    timeout=max(1, round(plan.join_timeout_s + _STORE_SLACK_S)),
                )
            )
            spec = WorkerSpec(
                role=plan.role,
                local_world_size=plan.nproc_per_node,
                entrypoint=plan.command.target,
                rdzv_handler=handler,
                max_restarts=0,
                monitor_interval=_PAUSE_S,
                master_addr=plan.master_addr,
                master_port=plan.store_port,
                local_addr=plan.local_addr,
            )
            super().__init__(spec, exit_barrier_timeout=plan.exit_barrier_timeout_s)
            self.pids: Mapping[int, int] = {}
            self.ends: Mapping[int, ProcessEnd] = {}
            self.ended_by_us: frozenset[int] = frozenset()
            self.is_met = False
            self.is_stopped = False
            self._plan, self._ours, self._stop, self._on_started = plan, group, stop, on_started
            self._before_stop = before_stop
            self._handler: Any = handler

        # -- the hooks

        def _rendezvous(self, *arguments: Any, **more: Any) -> None:
            self._open_store()
            super()._rendezvous(*arguments, **more)

        def _assign_worker_ranks(self, store: Any, *arguments: Any, **more: Any) -> Any:
            plan = self._plan
            self._await_nodes(store, "here", plan.join_timeout_s, is_needed=True)
            workers = super()._assign_worker_ranks(store, *arguments, **more)
            given = [worker.global_rank for worker in workers]
            wanted = list(range(plan.first_rank, plan.first_rank + plan.nproc_per_node))
            if given != wanted or workers[0].world_size != plan.size:
                raise RuntimeError(
                    f"the store gives this node ranks {given} of {workers[0].world_size}, "
                    f"the roll call {wanted} of {plan.size}"
                )
            self.is_met = True
            return workers

        def _start_workers(self, worker_group: Any, *_: Any, **__: Any) -> dict[int, Any]:
            if self._stop.is_set():
                self.is_stopped = True
                raise _Stopped
            environs = [self._environment(worker_group, worker) for worker in worker_group.workers]
            self._ours.start(workers_of(self._plan, environs))
            self.pids = dict(self._ours.pids)
            if self._on_started is not None:
                self._on_started(self.pids)
            return {rank - self._plan.first_rank: pid for rank, pid in self.pids.items()}

        def _stop_workers(self, *_: Any, **__: Any) -> None:
            self._shutdown()

        def _shutdown(self, *_: Any, **__: Any) -> None:
            ends = self._ours.poll()
            call, self._before_stop = self._before_stop, None
            if call is not None and len(ends) < len(self._ours.pids):
                call(ends)
            self.ended_by_us |= frozenset(self._ours.pids) - frozenset(self._ours.poll())
            self.ends = {**self._ours.stop(grace_s=self._plan.grace_s), **self.ends}

        def _monitor_workers(self, *_: Any, **__: Any) -> Any:
            ends = self._ours.poll()
            if not self._is_decided(ends):
                deadline = time.monotonic() + max(self._plan.monitor_interval_s, _HEALTHY_S)
                while not self._is_decided(ends) and (left_s := deadline - time.monotonic()) > 0:
                    ends = self._ours.wait(len(ends), min(left_s, STOP_LOOK_S), stop=self._stop)
            failed = {rank: end for rank, end in ends.items() if not end.is_success}
            if self._stop.is_set() and len(ends) < len(self.pids):
                self.is_stopped = True
                return RunResult(state=WorkerState.FAILED)
            if failed:
                self.ends = ends
                failures = {rank: self._failure(rank, end) for rank, end in failed.items()}
                return RunResult(state=WorkerState.FAILED, failures=failures)
            if len(ends) == len(self.pids):
                self.ends = ends
                return RunResult(state=WorkerState.SUCCEEDED, return_values=dict.fromkeys(ends))
            return RunResult(state=WorkerState.HEALTHY)

        def _exit_barrier(self) -> None:
            # torch's own waits five minutes inside one call for a node that may have died.
            with contextlib.suppress(_Stopped, TimeoutError, RuntimeError):  # the store's node may be gone before us
                self._await_nodes(self._store, "through", self._plan.exit_barrier_timeout_s, is_needed=False)

        def _construct_event(self, state: str, source: Any, *_: Any, **__: Any) -> Any:
            # Nobody gets these events, and torch would ask the name service for this host's name for each of them.
            return Event(f"torchelastic.worker.status.{state}", source=source)

        # -- ours

        def let_go(self) -> None:
            """Close the store: its port is free afterwards."""
            self._store = None
            self._worker_group.store = None
            self._worker_group.spec.rdzv_handler = None
            self._handler._store = None  # noqa: SLF001 - it has no other way to close it
            self._handler = None

        def _open_store(self) -> None:
            # torch's handler would wait inside one call, for the store's node or, on that node, for all the others.
            plan = self._plan
            if getattr(self._handler, "_store", self) is not None:  # another kind of handler; it waits as it likes
                return
            if plan.node_rank != 0:
                self._await_listener(plan.master_addr, plan.store_port)
            self._handler._store = TCPStore(  # noqa: SLF001
                plan.master_addr,
                plan.store_port,
                plan.num_nodes,
                plan.node_rank == 0,
                timedelta(seconds=max(1.0, plan.join_timeout_s + _STORE_SLACK_S)),
                wait_for_workers=False,
                multi_tenant=True,
            )

        def _await_listener(self, address: str, port: int) -> None:
            """Until the store's node listens.

            Raises:
                _Stopped: `stop` was set.
                TimeoutError: it does not in time.
            """
            deadline = time.monotonic() + self._plan.join_timeout_s
            while True:
                try:
                    socket.create_connection((address, port), timeout=_CONNECT_S).close()
                except OSError as error:
                    if time.monotonic() > deadline:
                        limit_s = self._plan.join_timeout_s
                        raise TimeoutError(
                            f"node 0 did not open the store at {address}:{port} within {limit_s:g} s: {error}"
                        ) from error
                else:
                    return
                if self._stop.wait(_POLL_S):
                    self.is_stopped = True
                    raise _Stopped

        def _is_decided(self, ends: Mapping[int, ProcessEnd]) -> bool:
            has_failed = any(not end.is_success for end in ends.values())
            return self._stop.is_set() or has_failed or len(ends) == len(self.pids)

        def _await_nodes(self, store: Any, word: str, timeout_s: float, *, is_needed: bool) -> None:
            """Until every node has said `word`.

            Raises:
                _Stopped: `stop` was set.
                TimeoutError: some have not in time.
                RuntimeError: the store is gone.
            """
            plan = self._plan
            keys = [f"allready/{word}/{place}" for place in range(plan.num_nodes)]
            store.set(keys[plan.node_rank], "1")
            deadline = time.monotonic() + timeout_s
            missing = keys
            while missing := [key for key in missing if not store.check([key])]:
                if self._stop.wait(_POLL_S):
                    self.is_stopped = self.is_stopped or is_needed
                    raise _Stopped
                if time.monotonic() > deadline:
                    nodes = ", ".join(key.rpartition("/")[2] for key in missing)
                    raise TimeoutError(f"node {nodes} did not come to the store within {timeout_s:g} s")

        def _environment(self, worker_group: Any, worker: Any) -> dict[str, str]:
            plan, local_rank = self._plan, worker.local_rank
            base = base_environment(plan, local_rank)
            environ = {
                **base,
                **rank_variables(plan, local_rank),
                "GROUP_RANK": str(worker_group.group_rank),
                "ROLE_RANK": str(worker.role_rank),
                "ROLE_WORLD_SIZE": str(worker.role_world_size),
                "TORCHELASTIC_RESTART_COUNT": str(plan.attempt),
                "TORCHELASTIC_MAX_RESTARTS": str(plan.max_restarts),
                "TORCHELASTIC_RUN_ID": plan.job_id,
                "TORCHELASTIC_USE_AGENT_STORE": str(_uses_agent_store(self._handler)),
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": base.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
                "TORCHELASTIC_ERROR_FILE": str(error_file(plan, local_rank)),
            }
            if knows_signals:
                environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = SIGNALS_TO_HANDLE
            if plan.virtual_local_rank:
                environ |= virtual_local_rank(base, local_rank)
            return environ

        def _failure(self, rank: int, end: ProcessEnd) -> Any:
            local_rank = rank - self._plan.first_rank
            code = end.exit_code if end.exit_code is not None else -signal_number(end.signal)
            return ProcessFailure(
                local_rank=local_rank,
                pid=self.pids[rank],
                exitcode=code,
                error_file=str(error_file(self._plan, local_rank)),
            )

    return Agent


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _uses_agent_store(handler: Any) -> bool:
    """Newer handlers say so themselves; for the older ones torch asked for the backend's name."""
    return bool(getattr(handler, "use_agent_store", handler.get_backend() == "static"))
