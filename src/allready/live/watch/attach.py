"""Find the agents of `allready run` on this node, and talk to one."""

import json
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from allready.errors import AllreadyError
from allready.live import run_paths
from allready.live.watch.state import WatchedJob, WatchState, newest_attempt, remarks_on
from allready.model import NodeStatus, ProcessState, Report
from allready.proc.clocks import read_small
from allready.proc.process import ProcessId, is_running, read_stat

ANSWER_S = 3.0
OTHERS_S = 3.0
"""Node 0 sends the statuses of the other nodes only while the job is watched: the first ones take a moment."""
ASK_AGAIN_S = 0.2
LARGEST_ANSWER_BYTES = 64 * 2**20
LARGEST_ABOUT_BYTES = 1 << 20
ABOUT, SOCKET = "job.json", "control.sock"


class NotAnsweringError(AllreadyError):
    """The agent does not answer: it has ended, or is stopped."""


def jobs() -> tuple[WatchedJob, ...]:
    """Jobs of this user whose agent runs on this machine, newest first."""
    found = [job for folder in run_paths.run_dirs() if (job := about(folder)) is not None]
    return tuple(sorted(found, key=lambda job: -(job.started_s or 0.0)))


def about(folder: Path) -> WatchedJob | None:
    """The job of a run folder; None where it is another user's, or the agent is gone."""
    job = described(folder)
    return job if job is not None and is_alive(job) else None


def described(folder: Path) -> WatchedJob | None:
    """What an agent has written into its run folder, whether or not it is still there; None where it is another
    user's."""
    try:
        info = folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
            return None
        data = read_small(str(folder / ABOUT), LARGEST_ABOUT_BYTES) or b""
        return replace(msgspec.json.decode(data, type=WatchedJob), place=str(folder))
    except (OSError, ValueError, RecursionError):
        return None


def is_alive(job: WatchedJob) -> bool:
    """Whether the agent is there: it listens at its socket, or (where it has none) the process still runs."""
    folder = Path(job.place)
    if (folder / SOCKET).exists():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            try:
                with run_paths.socket_address(folder, SOCKET) as address:
                    sock.connect(address)
            except BlockingIOError:
                return True  # its queue is full: it does not answer, but it is there
            except OSError:
                return False
            return True
    return is_running(agent_of(job))


def agent_of(job: WatchedJob) -> ProcessId | int:
    """The agent's process; its pid alone where it could not read when it had started."""
    return job.pid if job.start_ticks is None else ProcessId(job.pid, job.start_ticks)


class Attachment:
    """Conversations with one agent; `close` at the end.  One that does not answer may be asked again."""

    def __init__(self, job: WatchedJob) -> None:
        self.job = job
        self._socket: socket.socket | None = None
        self._data = b""
        self._statuses: tuple[NodeStatus, ...] = ()

    def read(self, *, wait_for_all_s: float = 0.0) -> WatchState:
        """The job as its agent sees it now.

        Args:
            wait_for_all_s: so long for the statuses of all nodes.

        Raises:
            NotAnsweringError: the agent ended, is stopped, or speaks another version.
        """
        deadline = time.monotonic() + wait_for_all_s
        while True:
            state = self._read()
            here = {s.node_rank for s in state.statuses}
            is_all = state.job.num_nodes is None or len(here) >= state.job.num_nodes
            old = any(note.key == "old_node" for note in state.notes)
            if (is_all and not old) or not here or time.monotonic() >= deadline:
                return state
            time.sleep(ASK_AGAIN_S)

    def gather(self) -> str:
        """Ask for stacks and records of all ranks; the folder that will have them in a moment, "" without ranks."""
        return str(self._ask({"op": "gather"}).get("folder", ""))

    def close(self) -> None:
        """End the conversation; the job is not touched."""
        sock, self._socket, self._data = self._socket, None, b""
        if sock is not None:
            sock.close()

    def _read(self) -> WatchState:
        answer = self._ask({"op": "state"})
        try:
            statuses = msgspec.convert(answer["statuses"], tuple[NodeStatus, ...], str_keys=True)
            report = msgspec.convert(answer["report"], Report | None, str_keys=True)
            now_s = float(answer["now_s"])
        except (msgspec.ValidationError, KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
            raise NotAnsweringError(f"the agent's answer is not of this version: {error}") from error
        statuses = newest_attempt(statuses, self._statuses)
        self._statuses = statuses
        return WatchState(
            job=self.job,
            now_s=now_s,
            statuses=statuses,
            report=report,
            notes=remarks_on(statuses, now_s, self.job.num_nodes),
        )

    def _ask(self, question: dict[str, str]) -> dict[str, Any]:
        """One question, one line of answer, within `ANSWER_S`."""
        deadline = time.monotonic() + ANSWER_S
        try:
            if self._socket is None:
                self._connect()
            sock = self._socket
            assert sock is not None
            sock.settimeout(ANSWER_S)
            sock.sendall(json.dumps(question).encode() + b"\n")
            answer = msgspec.json.decode(self._line(sock, deadline))
        except (OSError, ValueError, RecursionError) as error:
            self.close()  # a late answer must not be taken for that to the next question
            raise NotAnsweringError(self._why(error)) from error
        if not isinstance(answer, dict) or "error" in answer:
            self.close()
            raise NotAnsweringError(f"the agent (pid {self.job.pid}) answers: {str(answer)[:200]}")
        return answer

    def _connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(ANSWER_S)
        try:
            with run_paths.socket_address(Path(self.job.place), SOCKET) as address:
                sock.connect(address)
        except OSError:
            sock.close()
            raise
        self._socket, self._data = sock, b""

    def _line(self, sock: socket.socket, deadline: float) -> bytes:
        parts, size = [self._data], len(self._data)
        while b"\n" not in parts[-1]:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            sock.settimeout(left)
            data = sock.recv(1 << 18)
            size += len(data)
            if not data or size > LARGEST_ANSWER_BYTES:
                raise ConnectionResetError("it closed the connection" if not data else "its answer has no end")
            parts.append(data)
        line, _, self._data = b"".join(parts).partition(b"\n")
        return line

    def _why(self, error: BaseException) -> str:
        now = read_stat(self.job.pid)
        if now is not None and now.state in ProcessState.FROZEN:
            remedy = (
                f"to go on: kill -CONT {self.job.pid}" if now.state is ProcessState.STOPPED else "a debugger holds it"
            )
            return f"the agent (pid {self.job.pid}) is {now.state} and does not answer; {remedy}"
        if isinstance(error, FileNotFoundError) and now is not None:
            return f"the agent (pid {self.job.pid}) has no socket for watchers"
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return f"the agent (pid {self.job.pid}) does not answer: {why}"
