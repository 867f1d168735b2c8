"""The socket that `allready watch` talks to: in the agent's private run folder, for the same user only.

One JSON object per line, one answer per line.  `{"op": "state"}` gives the job, the newest status of every node that
this agent knows of, and the report as it stands; `{"op": "gather"}` asks for stacks and records of all ranks now and
says where they will be kept.
"""

import asyncio
import json
import logging
import os
import time
from typing import Any

import msgspec
from msgspec.structs import replace

from allready import __version__
from allready.agent.context import AgentContext
from allready.agent.line_server import LineServer
from allready.agent.messages import Request
from allready.evidence.secrets import masked
from allready.messaging.wire import Hello
from allready.proc.process import read_stat

log = logging.getLogger(__name__)

VERSION = 1
SOCKET = "control.sock"
ABOUT = "job.json"
MAX_LINE_BYTES = 4096
MAX_COMMAND = 8192
MAX_WATCHERS = 32
QUIET_S = 30.0
"""A client that asks nothing for this long is closed."""
WATCHED_S = 4.0
"""So long after the last question a client is taken to be watching."""


class Control:
    """The server; `open`, and `close` always."""

    def __init__(self, agent: AgentContext, hello: Hello) -> None:
        self._agent, self._hello = agent, hello
        self._state = agent.state
        self._about = self._describe()
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
        part = run_dir / f"{ABOUT}.part"
        part.write_text(json.dumps(self._about), encoding="utf-8")
        part.replace(run_dir / ABOUT)

    async def close(self) -> None:
        if self._unwatch is not None:
            self._unwatch.cancel()
        await self._server.close()

    def _describe(self) -> dict[str, Any]:
        agent, request = self._agent, self._agent.request
        command = masked(" ".join([request.command.target, *request.command.arguments]))
        own = read_stat(os.getpid())
        return {
            "version": VERSION,
            "tool_version": __version__,
            "pid": os.getpid(),
            "job_id": request.job_id,
            "instance": agent.instance,
            "name": agent.name,
            "node_rank": self._hello.node_rank,
            "num_nodes": self._hello.num_nodes,
            "master_addr": request.master_addr,
            "master_port": request.master_port,
            "report_dir": str(agent.report_dir.absolute()),
            "started_s": time.time(),
            "command": command[:MAX_COMMAND].split(" "),
            "framework": request.framework,
            "start_ticks": own.start_ticks if own is not None else 0,
            "diagnosis": request.diagnosis,
        }

    def answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return {"error": "not JSON"}
        op = request.get("op") if isinstance(request, dict) else None
        if op == "state":
            self._note_watcher()
            statuses = self._state.statuses
            return {
                "job": self._about,
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

    async def answer(self, line: bytes) -> Any:
        return self._control.answer(line)

    def goes_on(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is kept for it."""
