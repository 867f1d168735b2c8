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
import socket
import time
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from allready import __version__
from allready.agent.context import AgentContext
from allready.evidence.secrets import masked
from allready.launch.request import RunRequest
from allready.live.node.process import read_stat
from allready.messaging.wire import Hello, to_json

log = logging.getLogger(__name__)

VERSION = 1
SOCKET = "control.sock"
ABOUT = "job.json"
LONGEST_LINE_BYTES = 4096
LONGEST_COMMAND = 8192
LONGEST_ADDRESS = 100
MAX_WATCHERS = 32
QUIET_S = 30.0
"""A client that asks nothing for this long is closed."""
WATCHED_S = 4.0
"""So long after the last question somebody is taken to be watching."""


class Control:
    """The server; `open`, and `close` always."""

    def __init__(self, terms: AgentContext, about: dict[str, Any]) -> None:
        self._terms = terms
        self._about = about
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._unwatch: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, run_dir: Path, terms: AgentContext, request: RunRequest, hello: Hello) -> Self:
        """Listen, and write `job.json`.  Where a socket cannot be had, there is only the file."""
        command = masked(" ".join([request.command.target, *request.command.arguments]))
        own = read_stat(os.getpid())
        about = {
            "version": VERSION,
            "tool_version": __version__,
            "pid": os.getpid(),
            "job_id": request.job_id,
            "instance": terms.instance,
            "name": terms.name,
            "node_rank": hello.node_rank,
            "num_nodes": hello.num_nodes,
            "master_addr": request.master_addr,
            "master_port": request.master_port,
            "report_dir": str(terms.report_dir.absolute()),
            "started_s": time.time(),
            "command": command[:LONGEST_COMMAND].split(" "),
            "framework": request.framework,
            "start_ticks": own.start_ticks if own is not None else 0,
            "diagnosis": request.diagnosis,
        }
        control = cls(terms, about)
        try:
            with contextlib.suppress(FileNotFoundError):
                (run_dir / SOCKET).unlink()  # of this agent, before it followed somebody else
            sock = _listen(run_dir)
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
            terms = self._terms
            return {
                "job": self._about,
                "now_s": time.time(),
                "report": terms.last_report,
                # Nobody who watches has a use for the single operations, which are most of it.
                "statuses": [replace(terms.statuses[n], pace=()) for n in sorted(terms.statuses)],
            }
        if op == "gather":
            has_ranks = self._terms.on_wish is not None and bool(self._terms.statuses)
            return {"folder": self._terms.want_evidence() if has_ranks else ""}
        return {"error": f"no such operation: {str(op)[:40]!r}"}

    def _is_watched(self) -> None:
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            if self._unwatch is None:
                self._terms.want_overview(True)
            else:
                self._unwatch.cancel()
            self._unwatch = loop.call_later(WATCHED_S, self._nobody_watches)

    def _nobody_watches(self) -> None:
        self._unwatch = None
        self._terms.want_overview(False)


def _listen(run_dir: Path) -> socket.socket:
    """The listening socket; a path too long for an address is reached through a descriptor of its folder.

    Raises:
        OSError: it cannot be had.
    """
    path = run_dir / SOCKET
    folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        is_long = len(os.fsencode(path)) > LONGEST_ADDRESS
        sock.bind(f"/proc/self/fd/{folder}/{SOCKET}" if is_long else str(path))
        sock.listen(MAX_WATCHERS)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    finally:
        os.close(folder)
    return sock
