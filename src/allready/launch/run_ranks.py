"""One attempt's ranks on this node, from their start to their end: over torchelastic, or without torch.

Over torchelastic the nodes meet at torch's store, and its agent watches our worker group.  Without it (JAX, or no torch
is installed) the roll call was the rendezvous.
"""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from allready.launch.plan import (
    AttemptPlan,
    AttemptResult,
    AttemptStopped,
    BeforeStop,
    base_environment,
    end_ranks,
    rank_variables,
    read_errors,
    virtual_local_rank,
    workers_of,
)
from allready.launch.workers import STOP_POLL_S, WorkerGroup

if TYPE_CHECKING:
    from allready.launch.elastic_agent import ElasticAgent

_PORT_TAKEN = ("eaddrinuse", "address already in use")


def run_ranks(
    plan: AttemptPlan,
    group: WorkerGroup,
    *,
    over_torch: bool,
    stop: threading.Event,
    on_started: Callable[[Mapping[int, int]], None] = lambda _pids: None,
    before_again: Callable[[int], None] = lambda _rank: None,
    on_again: Callable[[Mapping[int, int], int], None] = lambda _pids, _rank: None,
    before_stop: BeforeStop = lambda _ends: None,
    result: AttemptResult | None = None,
) -> AttemptResult:
    """Start the ranks and wait for their end; blocks, so call it in a thread.

    One rank that fails ends the others of the node, unless it may be started again alone (`rank_restarts`).  `stop`
    ends them within the plan's grace.  `on_started(pids)` is called when all ranks run, `before_again(rank)` and
    `on_again(pids, rank)` around the start of one of them once more, and `before_stop(ends)` once before ranks that
    still run are terminated, whatever the reason: the time to sample them.  `result` is filled where it is given.  No
    rank is left in any case, and the store's port is free again.
    """
    result = result or AttemptResult()
    agent: ElasticAgent | None = None
    try:
        if over_torch:
            from allready.launch import elastic_agent

            agent = elastic_agent.ElasticAgent(
                plan,
                group,
                result,
                stop=stop,
                on_started=on_started,
                before_again=before_again,
                on_again=on_again,
                before_stop=before_stop,
            )
            agent.run()
        else:
            _run_alone(plan, group, result, stop, on_started)
    except AttemptStopped:
        pass
    except Exception as error:  # noqa: BLE001 - torch raises RuntimeError and its own; all of them end this attempt
        result.problem, result.problem_kind = _explain(error, has_met=result.has_met)
    finally:
        end_ranks(plan, group, result, None if over_torch else before_stop)  # torch's agent has called it
        if agent is not None:
            agent.release()
    result.errors = read_errors(plan)
    return result


def _run_alone(
    plan: AttemptPlan,
    group: WorkerGroup,
    result: AttemptResult,
    stop: threading.Event,
    on_started: Callable[[Mapping[int, int]], None],
) -> None:
    """Until all have ended, one has failed, or `stop` is set."""
    result.has_met, result.is_stopped = True, stop.is_set()
    if result.is_stopped:
        return
    environs = []
    for local_rank in range(plan.nproc_per_node):
        base = base_environment(plan, local_rank)
        virtual = virtual_local_rank(base, local_rank) if plan.virtual_local_rank else {}
        environs.append({**base, **rank_variables(plan, local_rank), **virtual})
    group.start(workers_of(plan, environs))
    result.pids = dict(group.pids)
    on_started(result.pids)
    ends = group.poll()
    while len(ends) < len(result.pids) and all(e.is_success for e in ends.values()) and not stop.is_set():
        ends = group.wait(len(ends), STOP_POLL_S, stop=stop)
    result.ends = ends
    result.is_stopped = stop.is_set() and len(ends) < len(result.pids)


def _explain(error: Exception, *, has_met: bool) -> tuple[str, str]:
    if has_met and isinstance(error, OSError | ValueError):  # of starting the ranks
        filename = getattr(error, "filename", None)
        return f"{getattr(error, 'strerror', '')}: {filename}" if filename else str(error), "program"
    text = " ".join(f"{type(error).__name__}: {error}".split())[:1000]
    if any(mark in text.lower() for mark in _PORT_TAKEN):
        return text, "port"
    return text, "torch" if has_met or isinstance(error, ImportError | AttributeError | TypeError) else "rendezvous"
