"""The socket that `allready watch` talks to: in the agent's private run folder, for the same user only.

One JSON object per line, one answer per line.  `{"op": "state"}` gives the job, the newest status of every node that
this agent knows of, and the report as it stands; `{"op": "gather"}` asks for stacks and records of all ranks now and
says where they will be kept.
"""

import asyncio
import contextlib
import json
import logging
import os
import time
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from allready import __version__
from allready.agent.context import AgentContext
from allready.agent.jax_meeting import listen_in
from allready.agent.messages import Request
from allready.evidence.secrets import masked
from allready.messaging.wire import Hello, to_json
from allready.proc.process import read_stat

log = logging.getLogger(__name__)

VERSION = 1
SOCKET = "control.sock"
ABOUT = "job.json"
LONGEST_LINE_BYTES = 4096
LONGEST_COMMAND = 8192
MAX_WATCHERS = 32
QUIET_S = 30.0
"""A client that asks nothing for this long is closed."""
WATCHED_S = 4.0
"""So long after the last question somebody is taken to be watching."""


class Control:
    """The server; `open`, and `close` always."""

    def __init__(self, agent: AgentContext, about: dict[str, Any]) -> None:
        self._agent = agent
        self._state = agent.state
        self._about = about
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._unwatch: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, agent: AgentContext, hello: Hello) -> Self:
        """Listen, and write `job.json`.  Where a socket cannot be had, there is only the file."""
        request, run_dir = agent.request, agent.run_dir
        command = masked(" ".join([request.command.target, *request.command.arguments]))
        own = read_stat(os.getpid())
        about = {
            "version": VERSION,
            "tool_version": __version__,
            "pid": os.getpid(),
            "job_id": request.job_id,
            "instance": agent.instance,
            "name": agent.name,
            "node_rank": hello.node_rank,
            "num_nodes": hello.num_nodes,
            "master_addr": request.master_addr,
            "master_port": request.master_port,
            "report_dir": str(agent.report_dir.absolute()),
            "started_s": time.time(),
            "command": command[:LONGEST_COMMAND].split(" "),
            "framework": request.framework,
            "start_ticks": own.start_ticks if own is not None else 0,
            "diagnosis": request.diagnosis,
        }
        control = cls(agent, about)
        try:
            sock = listen_in(run_dir, SOCKET, backlog=MAX_WATCHERS)
            control._server = await asyncio.start_unix_server(control._serve, sock=sock, limit=LONGEST_LINE_BYTES)
        except OSError as error:
            log.warning("no control socket, so nobody can watch this job: %s", error)
        part = run_dir / f"{ABOUT}.part"
        part.write_text(json.dumps(about), encoding="utf-8")
        part.replace(run_dir / ABOUT)
        return control

    async def close(self) -> None:
        """End the server and every conversation."""
        if self._unwatch is not None:
            self._unwatch.cancel()
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= MAX_WATCHERS:
            writer.close()
            return
        self._writers.add(writer)
        try:
            while True:
                async with asyncio.timeout(QUIET_S):
                    line = await reader.readline()
                if not line:
                    return
                writer.write(to_json(self._answer(line)) + b"\n")
                async with asyncio.timeout(5.0):
                    await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return  # gone, quiet, or not our protocol
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, line: bytes) -> Any:
        try:
            request = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return {"error": "not JSON"}
        op = request.get("op") if isinstance(request, dict) else None
        if op == "state":
            self._is_watched()
            statuses = self._state.statuses
            return {
                "job": self._about,
                "now_s": time.time(),
                "report": self._state.reports.last,
                # Nobody who watches has a use for the single operations, which are most of it.
                "statuses": [replace(statuses[n], pace=()) for n in sorted(statuses)],
            }
        if op == "gather":
            return {"folder": self._gather() if self._state.statuses else ""}
        return {"error": f"no such operation: {str(op)[:40]!r}"}

    def _gather(self) -> str:
        """Ask node 0 for stacks and records of all ranks; the folder that will have this node's."""
        self._state.requests.put_nowait(Request(gather=True))
        return str((self._agent.report_dir / f"attempt{self._state.attempt}").absolute())

    def _is_watched(self) -> None:
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            if self._unwatch is None:
                self._state.requests.put_nowait(Request(watch=True))
            else:
                self._unwatch.cancel()
            self._unwatch = loop.call_later(WATCHED_S, self._nobody_watches)

    def _nobody_watches(self) -> None:
        self._unwatch = None
        self._state.requests.put_nowait(Request(watch=False))
