"""Prometheus metrics of the whole job, served by node 0's agent while the job runs: `--metrics-port`."""

import time

from allready.agent.context import AgentContext
from allready.launch.request import Note
from allready.live.watch.metrics import MetricsServer, exposition
from allready.live.watch.state import WatchedJob, WatchState, newest_attempt


def serve_metrics(agent: AgentContext, about: WatchedJob) -> MetricsServer | None:
    """The server; the caller closes it.  None where none is asked for, or the port cannot be had: the job goes on."""
    request, state = agent.request, agent.state
    if request.metrics_port is None:
        return None

    def text() -> str:
        """Called in the server's threads."""
        here = list(state.statuses.values())  # a copy: the agent goes on adding nodes
        statuses = tuple(sorted(here, key=lambda status: status.node_rank))
        now = WatchState(job=about, now_s=time.time(), statuses=newest_attempt(statuses, ()), report=state.reports.last)
        return exposition(now)

    try:
        server = MetricsServer(text, port=request.metrics_port, host=request.metrics_host)
    except OSError as error:
        values = {"host": request.metrics_host, "port": str(request.metrics_port)}
        agent.say(Note(key="run.no_metrics", values={**values, "reason": error.strerror or str(error)}))
        return None
    agent.say(Note(key="run.metrics", values={"url": server.url}))
    return server
