"""An attempt over torchelastic: the nodes meet at torch's store, and its agent watches our worker group."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from allready.launch.plan import AttemptPlan, AttemptResult, AttemptStopped, BeforeStop, end_ranks, read_errors
from allready.launch.workers import WorkerGroup

if TYPE_CHECKING:
    from allready.launch.elastic_agent import ElasticAgent

_PORT_TAKEN = ("eaddrinuse", "address already in use")


def preload() -> None:
    """Import what `run_attempt` needs (about a second); to be called in a thread while the nodes meet.

    Raises:
        ImportError: there is no torch, or it has no torchelastic.
    """
    from allready.launch import elastic_agent

    del elastic_agent


def run_attempt(
    plan: AttemptPlan,
    group: WorkerGroup,
    *,
    stop: threading.Event,
    on_started: Callable[[Mapping[int, int]], None] | None = None,
    before_stop: BeforeStop | None = None,
) -> AttemptResult:
    """Meet the other nodes at the store, start the ranks, and wait for their end; blocks, so call it in a thread.

    One rank that fails ends the others of the node.  `stop` ends them within the plan's grace.  `on_started(pids)` is
    called when all ranks run, and `before_stop(ends)` once before ranks that still run are terminated, whatever the
    reason: the time to sample them.  No rank is left in any case, and the store's port is free again.
    """
    result = AttemptResult(started_s=time.time())
    agent: ElasticAgent | None = None
    try:
        from allready.launch import elastic_agent

        agent = elastic_agent.ElasticAgent(
            plan, group, result, stop=stop, on_started=on_started, before_stop=before_stop
        )
        agent.run()
    except AttemptStopped:
        pass
    except Exception as error:  # noqa: BLE001 - torch raises RuntimeError and its own; all of them end this attempt
        result.problem, result.problem_kind = _explain(error, has_met=result.has_met)
    finally:
        end_ranks(plan, group, result, None)
        if agent is not None:
            agent.release()
    result.ended_s = time.time()
    result.errors = read_errors(plan)
    return result


def _explain(error: Exception, *, has_met: bool) -> tuple[str, str]:
    if has_met and isinstance(error, OSError):  # of starting the ranks
        return f"{error.strerror}: {error.filename}" if error.filename else str(error), "program"
    text = " ".join(f"{type(error).__name__}: {error}".split())[:1000]
    if any(mark in text.lower() for mark in _PORT_TAKEN):
        return text, "port"
    return text, "torch" if has_met or isinstance(error, ImportError | AttributeError | TypeError) else "rendezvous"
