"""The socket that `allready watch` talks to: in the agent's private run folder, for the same user only.

One JSON object per line, one answer per line.  `{"op": "state"}` gives the job, the newest status of every node that
this agent knows of, and the report as it stands; `{"op": "gather"}` asks for stacks and records of all ranks now and
says where they will be kept.
"""

import asyncio
import logging
import os
import time

import msgspec
from msgspec.structs import replace

from allready.agent.context import AgentContext
from allready.agent.line_server import LineServer
from allready.agent.messages import Request
from allready.live.watch.attach import ABOUT, SOCKET
from allready.live.watch.state import WatchedJob
from allready.messaging.wire import ANY_RANK, NodeHello, to_json
from allready.proc.process import read_stat
from allready.redaction import masked
from allready.report.json_report import write_atomic

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 4096
MAX_COMMAND = 8192
MAX_WATCHERS = 32
QUIET_S = 30.0
"""A client that asks nothing for this long is closed."""
WATCHED_S = 4.0
"""So long after the last question a client is taken to be watching."""


class Control:
    """The server; `open`, and `close` always."""

    def __init__(self, agent: AgentContext, hello: NodeHello) -> None:
        self._agent, self._hello = agent, hello
        self._state = agent.state
        self.about = self._describe()
        self._server = LineServer(
            lambda: _Watcher(self), quiet_s=QUIET_S, max_clients=MAX_WATCHERS, max_bytes=MAX_LINE_BYTES
        )
        self._unwatch: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Listen, and write `job.json`.  Where a socket cannot be had, there is only the file."""
        run_dir = self._agent.run_dir
        try:
            await self._server.open(run_dir, SOCKET)
        except OSError as error:
            log.warning("no control socket, so `allready watch` cannot show this job: %s", error)
        write_atomic(run_dir / ABOUT, to_json(self.about), is_lasting=False, is_own=True)

    async def close(self) -> None:
        if self._unwatch is not None:
            self._unwatch.cancel()
        await self._server.close()

    def _describe(self) -> WatchedJob:
        agent, request, hello = self._agent, self._agent.request, self._hello
        command = masked(" ".join([request.command.target, *request.command.arguments]))
        own = read_stat(os.getpid())
        return WatchedJob(
            source="allready",
            job_id=request.job_id,
            pid=os.getpid(),
            node_rank=None if hello.node_rank == ANY_RANK else hello.node_rank,
            num_nodes=hello.num_nodes,
            master=f"{request.master_addr}:{request.master_port}" if request.master_port else "",
            name=agent.name,
            report_dir=str(agent.report_dir.absolute()),
            command=tuple(command[:MAX_COMMAND].split(" ")),
            framework=request.framework,
            started_s=time.time(),
            has_diagnosis=request.diagnosis,
            start_ticks=own.start_ticks if own is not None else None,
        )

    def answer(self, line: bytes) -> dict[str, object]:
        try:
            request = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return {"error": "not JSON"}
        op = request.get("op") if isinstance(request, dict) else None
        if op == "state":
            self._note_watcher()
            statuses = self._state.statuses
            return {
                "job": self.about,
                "now_s": time.time(),
                "report": self._state.reports.last,
                # A view has no use for the single operations, which are most of it.
                "statuses": [replace(statuses[n], pace=()) for n in sorted(statuses)],
            }
        if op == "gather":
            return {"folder": self._gather() if self._state.statuses else ""}
        return {"error": f"no such operation: {str(op)[:40]!r}"}

    def _gather(self) -> str:
        """Ask node 0 for stacks and records of all ranks; the folder that will have this node's."""
        self._state.requests.put_nowait(Request(gather=True))
        return str((self._agent.report_dir / f"attempt{self._state.attempt}").absolute())

    def _note_watcher(self) -> None:
        if self._unwatch is None:
            self._state.requests.put_nowait(Request(watch=True))
        else:
            self._unwatch.cancel()
        self._unwatch = asyncio.get_running_loop().call_later(WATCHED_S, self._stop_watching)

    def _stop_watching(self) -> None:
        self._unwatch = None
        self._state.requests.put_nowait(Request(watch=False))


class _Watcher:
    """One connection of `allready watch`."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def answer(self, line: bytes) -> object:
        return self._control.answer(line)

    def goes_on(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is kept for it."""
