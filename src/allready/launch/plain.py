"""An attempt without torch: for JAX, and where torch is not installed.  The roll call was the rendezvous."""

import threading
import time
from collections.abc import Callable, Mapping

from allready.launch.plan import (
    AttemptPlan,
    AttemptResult,
    BeforeStop,
    base_environment,
    end_ranks,
    rank_variables,
    read_errors,
    virtual_local_rank,
    workers_of,
)
from allready.launch.workers import STOP_POLL_S, WorkerGroup
from allready.model import ProcessEnd


def run_attempt(
    plan: AttemptPlan,
    group: WorkerGroup,
    *,
    stop: threading.Event,
    on_started: Callable[[Mapping[int, int]], None] | None = None,
    before_stop: BeforeStop | None = None,
) -> AttemptResult:
    """`elastic.run_attempt` without a store: start the ranks, and wait for their end; blocks, so call it in a thread.

    One rank that fails ends the others of the node.  `stop` ends them within the plan's grace.  No rank is left.
    """
    result = AttemptResult(started_s=time.time(), is_stopped=stop.is_set())
    try:
        if not result.is_stopped:
            group.start(workers_of(plan, [_environment(plan, r) for r in range(plan.nproc_per_node)]))
            result.pids = dict(group.pids)
            if on_started is not None:
                on_started(result.pids)
            result.ends = _wait(group, len(result.pids), stop)
            result.is_stopped = stop.is_set() and len(result.ends) < len(result.pids)
    except FileNotFoundError as error:
        result.problem, result.problem_kind = f"{error.strerror}: {error.filename}", "program"
    except (OSError, ValueError) as error:
        result.problem, result.problem_kind = str(error), "program"
    finally:
        end_ranks(plan, group, result, before_stop)
    result.ended_s = time.time()
    result.errors = read_errors(plan)
    return result


def _wait(group: WorkerGroup, num_ranks: int, stop: threading.Event) -> Mapping[int, ProcessEnd]:
    ends = group.poll()
    while len(ends) < num_ranks and all(e.is_success for e in ends.values()) and not stop.is_set():
        ends = group.wait(len(ends), STOP_POLL_S, stop=stop)
    return ends


def _environment(plan: AttemptPlan, local_rank: int) -> dict[str, str]:
    base = base_environment(plan, local_rank)
    virtual = virtual_local_rank(base, local_rank) if plan.virtual_local_rank else {}
    return {**base, **rank_variables(plan, local_rank), **virtual}
