"""An attempt without torch: for JAX, and where torch is not installed.  The roll call was the rendezvous."""

import threading
import time
from collections.abc import Callable, Mapping

from allready.launch.plan import (
    AttemptPlan,
    AttemptResult,
    base_environment,
    rank_variables,
    read_errors,
    virtual_local_rank,
    workers_of,
)
from allready.launch.workers import STOP_LOOK_S, WorkerGroup
from allready.model import ProcessEnd


def run_attempt(
    plan: AttemptPlan,
    group: WorkerGroup,
    *,
    stop: threading.Event,
    on_started: Callable[[Mapping[int, int]], None] | None = None,
    before_stop: Callable[[Mapping[int, ProcessEnd]], None] | None = None,
) -> AttemptResult:
    """`elastic.run_attempt` without a store: start the ranks, and wait for their end; blocks, so call it in a thread.

    One rank that fails ends the others of the node.  `stop` ends them within the plan's grace.  No rank is left.
    """
    started_s = time.time()
    problem = kind = ""
    pids: Mapping[int, int] = {}
    ends: Mapping[int, ProcessEnd] = {}
    is_stopped = stop.is_set()
    try:
        if not is_stopped:
            group.start(workers_of(plan, [_environment(plan, r) for r in range(plan.nproc_per_node)]))
            pids = dict(group.pids)
            if on_started is not None:
                on_started(pids)
            ends = _watch(group, len(pids), stop)
            is_stopped = stop.is_set() and len(ends) < len(pids)
    except FileNotFoundError as error:
        problem, kind = f"{error.strerror}: {error.filename}", "program"
    except (OSError, ValueError) as error:
        problem, kind = str(error), "program"
    finally:
        if before_stop is not None and len(ends) < len(pids):
            before_stop(ends)
        by_us = frozenset(pids) - frozenset(group.poll())
        ends = {**group.stop(grace_s=plan.grace_s), **ends}
    return AttemptResult(
        ends=ends,
        pids=pids,
        ended_by_us=by_us,
        started_s=started_s,
        ended_s=time.time(),
        is_stopped=is_stopped,
        problem=problem,
        problem_kind=kind,
        errors=read_errors(plan),
    )


def _watch(group: WorkerGroup, num_ranks: int, stop: threading.Event) -> Mapping[int, ProcessEnd]:
    """Until all have ended, one has failed, or `stop` is set."""
    ends = group.poll()
    while len(ends) < num_ranks and all(e.is_success for e in ends.values()) and not stop.is_set():
        ends = group.wait(len(ends), STOP_LOOK_S, stop=stop)
    return ends


def _environment(plan: AttemptPlan, local_rank: int) -> dict[str, str]:
    base = base_environment(plan, local_rank)
    virtual = virtual_local_rank(base, local_rank) if plan.virtual_local_rank else {}
    return {**base, **rank_variables(plan, local_rank), **virtual}
