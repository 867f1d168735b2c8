"""torchelastic's agent over our own worker group: the only module that knows its internals.

Imports torch, which takes a second: import it where an attempt begins.  Written against torch 2.4 to 2.13: hooks take
whatever arguments a version passes, and constructors get only what all versions know.  Restarts are decided elsewhere,
so one agent lives for one attempt.
"""

import contextlib
import dataclasses
import importlib
import inspect
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.elastic.rendezvous.registry as registry
from msgspec.structs import replace
from torch.distributed import TCPStore
from torch.distributed.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerSpec, WorkerState
from torch.distributed.elastic.events import Event
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.launcher.api import LaunchConfig

from allready.launch.plan import (
    AttemptPlan,
    AttemptResult,
    AttemptStopped,
    BeforeStop,
    base_environment,
    end_ranks,
    error_file,
    rank_variables,
    virtual_local_rank,
    workers_of,
)
from allready.launch.workers import POLL_S, STOP_POLL_S, Worker, WorkerGroup
from allready.messaging.job_store import ANSWER_S, JobStore, connected
from allready.model import OVER, REJOIN, ProcessEnd
from allready.model.addresses import endpoint
from allready.model.process import ProcessState, signal_number
from allready.proc.process import read_stat

_HEALTHY_S = 2.0  # an end is noticed at once: torchelastic need not learn more often that all is well
_PAUSE_S = 0.005  # torchelastic's own loop sleeps so long between two polls; the rest is waited in the poll itself
_STORE_SLACK_S = 10.0
_LEAVE_S = 2.0
_CONNECT_S = 1.0
_CONTINUE_S = 5.0
"""A rank that is stopped when the others have ended is continued after so long."""
_STILL = {True: "ended", False: "stopped"}
"""What an agent says of ranks none of which runs: whether some have ended."""
_KNOWS_SIGNALS = "signals_to_handle" in {f.name for f in dataclasses.fields(LaunchConfig)}


class ElasticAgent(SimpleElasticAgent):  # type: ignore[misc]
    """One attempt; `run` once, then `release`.  What happens is written into `result`."""

    def __init__(
        self,
        plan: AttemptPlan,
        group: WorkerGroup,
        result: AttemptResult,
        *,
        stop: threading.Event,
        on_started: Callable[[Mapping[int, int]], None],
        before_again: Callable[[int], None],
        on_again: Callable[[Mapping[int, int], int], None],
        before_stop: BeforeStop,
    ) -> None:
        self._plan, self._ours, self._result = plan, group, result
        self._stop, self._on_started, self._before_stop = stop, on_started, before_stop
        self._before_again, self._on_again = before_again, on_again
        self._workers: dict[int, Worker] = {}
        self._restarts_left = plan.rank_restarts
        self._to_restart: set[int] = set()
        self._restarted: set[int] = set()
        self._over_s: float | None = None
        self._told = ""
        self._job: JobStore | None = None
        """The nodes' store, unless torch's handler has one of another kind."""
        self._handler: Any = registry.get_rendezvous_handler(_rendezvous_of(plan))
        super().__init__(_spec_of(plan, self._handler), exit_barrier_timeout=plan.exit_barrier_timeout_s)

    def release(self) -> None:
        """Close the store: its port is free afterwards."""
        self._store = self._job = None
        self._worker_group.store = None
        self._worker_group.spec.rdzv_handler = None
        self._handler._store = None  # noqa: SLF001 - it has no other way to close it
        self._handler = None

    # -- torchelastic's hooks

    def _rendezvous(self, *arguments: Any, **more: Any) -> None:
        self._open_store()
        super()._rendezvous(*arguments, **more)

    def _assign_worker_ranks(self, store: Any, *arguments: Any, **more: Any) -> Any:
        plan = self._plan
        self._await_nodes(store, "here", plan.join_timeout_s, is_needed=True)
        with self._answered(plan.join_timeout_s + _STORE_SLACK_S):
            workers = super()._assign_worker_ranks(store, *arguments, **more)
        given = [worker.global_rank for worker in workers]
        wanted = list(range(plan.first_rank, plan.first_rank + plan.nproc_per_node))
        if given != wanted or workers[0].world_size != plan.size:
            raise RuntimeError(
                f"the store gives this node ranks {given} of {workers[0].world_size}, "
                f"the roll call {wanted} of {plan.size}"
            )
        self._result.has_met = True
        return workers

    def _start_workers(self, worker_group: Any, *_: Any, **__: Any) -> dict[int, Any]:
        if self._stop.is_set():
            self._result.is_stopped = True
            raise AttemptStopped
        environs = [self._environment(worker_group, worker) for worker in worker_group.workers]
        workers = workers_of(self._plan, environs)
        if self._plan.numa_binding:
            workers = [replace(w, argv=_bound(w.argv, w.local_rank, self._plan.numa_binding)) for w in workers]
        self._workers = {worker.rank: worker for worker in workers}
        self._ours.start(workers, spares=self._spares if self._plan.rank_restarts else None)
        pids = self._result.pids = dict(self._ours.pids)
        self._on_started(pids)
        return {rank - self._plan.first_rank: pid for rank, pid in pids.items()}

    def _shutdown(self, *_: Any, **__: Any) -> None:
        end_ranks(self._plan, self._ours, self._result, self._before_stop)

    _stop_workers = _shutdown

    def _monitor_workers(self, *_: Any, **__: Any) -> Any:
        ends = self._still_ended(self._ours.poll())
        deadline = time.monotonic() + max(self._plan.monitor_interval_s, _HEALTHY_S)
        while not self._is_decided(ends) and (left_s := deadline - time.monotonic()) > 0:
            ends = self._still_ended(self._ours.wait(len(ends), min(left_s, STOP_POLL_S), stop=self._stop))
        num_ranks = len(self._result.pids)
        if self._stop.is_set() and len(ends) < num_ranks:
            self._result.is_stopped = True
            return RunResult(state=WorkerState.FAILED)
        if self._restarted and self._is_through(ends):
            self._result.ends = ends
            self._result.not_needed = frozenset(r for r, end in ends.items() if not end.is_success)
            return RunResult(state=WorkerState.SUCCEEDED, return_values=dict.fromkeys(self._result.pids))
        failed = {rank: end for rank, end in ends.items() if not end.is_success}
        if not failed and len(ends) < num_ranks:
            self._continue_stopped(ends)
            return RunResult(state=WorkerState.HEALTHY)
        self._result.ends = ends
        if failed:
            failures = {rank: self._failure(rank, end) for rank, end in failed.items()}
            return RunResult(state=WorkerState.FAILED, failures=failures)
        return RunResult(state=WorkerState.SUCCEEDED, return_values=dict.fromkeys(ends))

    def _exit_barrier(self) -> None:
        # torch's own waits five minutes inside one call for a node that may have died.
        with contextlib.suppress(AttemptStopped, TimeoutError, RuntimeError):  # the store's node may be gone before us
            self._await_nodes(self._store, "through", self._plan.exit_barrier_timeout_s, is_needed=False)
            # The store's node closes it when the others have asked for the last time: torch would print the C++ stack
            # of a question that is cut off.
            self._await_nodes(self._store, "left", _LEAVE_S, is_needed=False, of_all=self._plan.node_rank == 0)

    def _construct_event(self, state: str, source: Any, *_: Any, **__: Any) -> Any:
        # Nothing reads these events, and torch would resolve this host's name for each of them.
        return Event(f"torchelastic.worker.status.{state}", source=source)

    # -- ours

    def _spares(self, end: ProcessEnd, others: Sequence[ProcessEnd | None]) -> bool:
        """Whether a rank that failed is started again because others go on, or was and came back too late."""
        rank = end.rank
        if end.is_success or rank is None or self._stop.is_set():
            return False
        if others and all(other is not None and other.is_success for other in others):
            return rank in self._restarted
        if not self._restarts_left or (None not in others and self._plan.num_nodes == 1):
            return False
        self._restarts_left -= 1
        self._to_restart.add(rank)
        return True

    def _is_through(self, ends: Mapping[int, ProcessEnd]) -> bool:
        """Whether all ranks have ended, and well but for some that were started again and came too late to join."""
        failed = {rank for rank, end in ends.items() if not end.is_success}
        return len(ends) == len(self._result.pids) > len(failed) and failed <= self._restarted

    def _continue_stopped(self, ends: Mapping[int, ProcessEnd]) -> None:
        """Ranks of the runtime library that are stopped while nothing else is left of the job: they have only to end,
        which they do by themselves.

        Where no rank has ended, on any node, a person may have stopped these for a while.
        """
        living = {rank: pid for rank, pid in self._result.pids.items() if rank not in ends}
        states = {stat.state for pid in living.values() if (stat := read_stat(pid)) is not None}
        is_still = states == {ProcessState.STOPPED} and self._has_ended_by_the_library()
        if not self._is_all_still(is_still, has_ended=bool(ends)):
            self._over_s = None
        elif self._over_s is None:
            self._over_s = time.monotonic()
        elif time.monotonic() - self._over_s >= _CONTINUE_S:
            self._over_s = None
            self._ours.wake_up(living)

    def _is_all_still(self, is_still: bool, *, has_ended: bool) -> bool:
        """Whether on every node all ranks have ended or are stopped, and one has ended; the other nodes learn what is
        so here (`is_still`: what has not ended is stopped)."""
        plan = self._plan
        store: Any = self._store
        word = _STILL[has_ended] if is_still else ""
        if plan.num_nodes == 1:
            return word == _STILL[True]
        try:
            with self._answered():
                if word != self._told:
                    store.set(f"allready/still/{plan.node_rank}", word)
                    self._told = word
                others = (_word_of(store, place) for place in range(plan.num_nodes) if place != plan.node_rank)
                words = [word, *others] if word else [word]
        except (RuntimeError, TimeoutError):  # the store's node is gone, or its agent is stopped
            return False
        return "" not in words and _STILL[True] in words

    def _has_ended_by_the_library(self) -> bool:
        store = getattr(self._handler, "_store", None)
        keys = [OVER, f"/worker/attempt_{self._plan.attempt}/{OVER}"]  # the second one before torch 2.7
        try:
            with self._answered():
                return store is not None and any(store.check([key]) for key in keys)
        except (RuntimeError, TimeoutError):  # its node is gone, or its agent is stopped
            return False

    def _still_ended(self, ends: Mapping[int, ProcessEnd]) -> Mapping[int, ProcessEnd]:
        """After those were started again that are to be."""
        for rank in sorted(self._to_restart & ends.keys()):
            self._to_restart.discard(rank)
            worker = self._workers[rank]
            try:
                error_file(self._plan, worker.local_rank).unlink(missing_ok=True)  # of the process before
                self._before_again(rank)
                self._ours.start_again(replace(worker, env={**worker.env, REJOIN: "1"}))
            except (OSError, ValueError):
                continue  # its end counts
            self._restarted.add(rank)
            ends = {r: end for r, end in ends.items() if r != rank}
            self._result.pids = dict(self._ours.pids)
            self._on_again(self._result.pids, rank)
        return ends

    def _open_store(self) -> None:
        # torch's handler would wait inside one call, for the store's node or, on that node, for all the others.
        plan = self._plan
        if getattr(self._handler, "_store", self) is not None:  # another kind of handler; it waits as it likes
            return
        if plan.node_rank != 0:
            self._await_listener(plan.master_addr, plan.store_port)
        limit_s = max(1.0, plan.join_timeout_s + _STORE_SLACK_S)

        def open_or_connect() -> TCPStore:
            return TCPStore(
                plan.master_addr,
                plan.store_port,
                plan.num_nodes,
                plan.node_rank == 0,
                timedelta(seconds=limit_s),
                wait_for_workers=False,
                multi_tenant=True,
            )

        self._job = connected(open_or_connect, plan.store_port, limit_s)
        self._handler._store = self._job.store  # noqa: SLF001

    def _answered(self, limit_s: float = ANSWER_S) -> contextlib.AbstractContextManager[None]:
        """Around requests to the store, of which torch ends none while the agent that has it is stopped."""
        return contextlib.nullcontext() if self._job is None else self._job.within(limit_s)

    def _await_listener(self, address: str, port: int) -> None:
        """Until the store's node listens; TimeoutError where it does not in time."""
        limit_s = self._plan.join_timeout_s
        deadline = time.monotonic() + limit_s
        while True:
            try:
                socket.create_connection((address, port), timeout=_CONNECT_S).close()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"node 0 did not open the store at {address}:{port} within {limit_s:g} s: {error}"
                    ) from error
            else:
                return
            self._pause(is_needed=True)

    def _await_nodes(self, store: Any, word: str, timeout_s: float, *, is_needed: bool, of_all: bool = True) -> None:
        """Set this node's key `word`, and wait until every node has (`of_all`); TimeoutError where some have not,
        RuntimeError without a store."""
        keys = [f"allready/{word}/{place}" for place in range(self._plan.num_nodes)]
        with self._answered():
            store.set(keys[self._plan.node_rank], "1")
        if not of_all:
            return
        deadline = time.monotonic() + timeout_s
        missing = keys
        while missing := self._not_set(store, missing):
            self._pause(is_needed=is_needed)
            if time.monotonic() > deadline:
                nodes = ", ".join(key.rpartition("/")[2] for key in missing)
                raise TimeoutError(f"node {nodes} did not come to the store within {timeout_s:g} s")

    def _not_set(self, store: Any, keys: Sequence[str]) -> list[str]:
        with self._answered():
            return [key for key in keys if not store.check([key])]

    def _pause(self, *, is_needed: bool) -> None:
        if self._stop.wait(POLL_S):
            self._result.is_stopped |= is_needed
            raise AttemptStopped

    def _is_decided(self, ends: Mapping[int, ProcessEnd]) -> bool:
        has_failed = any(not end.is_success for end in ends.values())
        return self._stop.is_set() or has_failed or len(ends) == len(self._result.pids)

    def _environment(self, worker_group: Any, worker: Any) -> dict[str, str]:
        plan, local_rank, handler = self._plan, worker.local_rank, self._handler
        agent_store = getattr(handler, "use_agent_store", handler.get_backend() == "static")  # torch 2.4: by the name
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
            "TORCHELASTIC_USE_AGENT_STORE": str(bool(agent_store)),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": base.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            "TORCHELASTIC_ERROR_FILE": str(error_file(plan, local_rank)),
        }
        if _KNOWS_SIGNALS:
            environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = plan.signals_to_handle
        if plan.virtual_local_rank:
            environ |= virtual_local_rank(base, local_rank)
        return environ

    def _failure(self, rank: int, end: ProcessEnd) -> Any:
        local_rank = rank - self._plan.first_rank
        return ProcessFailure(
            local_rank=local_rank,
            pid=self._result.pids[rank],
            exitcode=end.exit_code if end.exit_code is not None else -signal_number(end.signal),
            error_file=str(error_file(self._plan, local_rank)),
        )


def _word_of(store: Any, place: int) -> str:
    """What that node has said last of its ranks."""
    if store.check([f"allready/through/{place}"]):
        return _STILL[True]
    key = f"allready/still/{place}"
    return str(store.get(key).decode()) if store.check([key]) else ""


def _bound(argv: tuple[str, ...], local_rank: int, mode: str) -> tuple[str, ...]:
    """The command line that binds a rank to CPUs as torchrun does.

    Raises:
        ValueError: this torch cannot do it, or not here; has torch's reason.
    """
    try:
        binding: Any = importlib.import_module("torch.numa.binding")
        wrap = binding._maybe_wrap_command_args_with_numa_binding  # noqa: SLF001 - torchrun's own way
        options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
        index = next(name for name in inspect.signature(wrap).parameters if name.endswith("_index"))  # gpu_ before 2.15
    except (ImportError, AttributeError, ValueError, StopIteration) as error:
        raise ValueError(f"--numa-binding {mode}: torch {torch.__version__} cannot do that ({error})") from error
    try:
        return tuple(wrap(argv, numa_options=options, **{index: local_rank}))
    except Exception as error:
        raise ValueError(f"--numa-binding {mode}, local rank {local_rank}: {error}") from error


def _rendezvous_of(plan: AttemptPlan) -> Any:
    return RendezvousParameters(
        backend="static",
        endpoint=endpoint(plan.master_addr, plan.store_port),
        run_id=plan.rdzv_id or f"{plan.job_id}/attempt{plan.attempt}",
        min_nodes=plan.num_nodes,
        max_nodes=plan.num_nodes,
        local_addr=plan.local_addr,
        rank=plan.node_rank,
        timeout=max(1, round(plan.join_timeout_s + _STORE_SLACK_S)),
    )


def _spec_of(plan: AttemptPlan, handler: Any) -> Any:
    return WorkerSpec(
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
