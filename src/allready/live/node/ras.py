"""NCCL's RAS: one question to any rank of this node gives the progress of all ranks of the job.

A stopped rank makes RAS itself wait for seconds, so a question runs on in the background: what comes too late for one
gathering is there for the next.
"""

import json
import socket
import threading
import time
from collections.abc import Collection, Mapping

from msgspec import Struct

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.tasks import Task
from allready.live.node.sockets import Owner, listeners
from allready.model.addresses import split_endpoint
from allready.patterns import compiled
from allready.proc.process import environ_of

DEFAULT = ("localhost", 28028)
VARIABLE = "NCCL_RAS_ADDR"
QUESTION_S = 12.0
FIRST_WORD_S = 0.3
"""A connection may land on a rank that is stopped: it does not answer, and the next one mostly lands elsewhere."""
MAX_TRIES = 12
MAX_BYTES = 16 << 20
COLLECT_S = 2
KEPT_S = 20.0

_PID_IN_JSON = r'"pid"\s*:\s*(\d{1,10})'
_PID_IN_TEXT = r"\b[Pp]rocess (\d{1,10}) on node"


class Answer(Struct, frozen=True):
    """A RAS answer as it came, and when."""

    text: str
    time_s: float


def address_of(pid: int) -> tuple[str, int]:
    """Where the RAS of a process listens: its NCCL_RAS_ADDR, else localhost:28028."""
    return parse_address(environ_of(pid).get(VARIABLE, "")) or DEFAULT


def parse_address(text: str) -> tuple[str, int] | None:
    """`host:port`, `[v6]:port`, or `:port` of this machine."""
    text = text.strip()
    return split_endpoint(f"localhost{text}" if text.startswith(":") else text)


class RasAsker:
    """At most one question at a time.  For one gathering at a time."""

    def __init__(self) -> None:
        self._task: Task[Answer] | None = None
        self._stop = threading.Event()

    def ask(self, pids: Collection[int], owned: Mapping[int, Owner], *, timeout_s: float) -> tuple[str, str | None]:
        """An answer about these ranks' job (at most 20 s old), "" without one; and why there is none.

        (`""`, None) when no rank listens: the job does not use NCCL, or one without RAS.

        Args:
            owned: whose the sockets are, by inode: proves that it is our ranks who listen.
        """
        until = time.monotonic() + timeout_s
        if self._task is None:
            place = self._place(pids, owned)
            if isinstance(place, str):
                return "", place or None
            host, port, all_ours = place
            ours = frozenset(pids)
            self._task = Task(lambda: _question(host, port, ours, all_ours, self._stop), "ras")
        try:
            answer = self._task.result(timeout_s=max(0.0, until - time.monotonic()))
        except DeadlineExceeded:
            return "", "RAS has not answered yet (a rank that is stopped makes it wait); asked on"
        except FactUnavailable as error:
            self._task = None
            return "", f"RAS: {error}"
        self._task = None
        if time.time() - answer.time_s > KEPT_S:
            return "", "RAS answered too late"
        return answer.text, None

    def close(self) -> None:
        """Let a running question end; its thread does within a second."""
        self._stop.set()
        self._task = None

    @staticmethod
    def _place(pids: Collection[int], owned: Mapping[int, Owner]) -> tuple[str, int, bool] | str:
        """Host, port and whether only our ranks listen there; or why there is no rank to ask ("": none listens)."""
        for host, port in dict.fromkeys(address_of(pid) for pid in pids):
            try:
                found = listeners(port, timeout_s=0.2)
            except FactUnavailable as error:
                return f"RAS: {error}"
            ours = [inode for inode in found if inode in owned]
            if ours:
                return host, port, len(ours) == len(found)
        return ""


def _question(host: str, port: int, ours: frozenset[int], all_ours: bool, stop: threading.Event) -> Answer:
    until = time.monotonic() + QUESTION_S
    problem = FactUnavailable("no rank answered")
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FactUnavailable("{host}: {error}", host=host, error=error) from error
    for n in range(MAX_TRIES):
        if stop.is_set() or time.monotonic() >= until:
            break
        family, kind, protocol, _, address = places[n % len(places)]
        try:
            with socket.socket(family, kind, protocol) as sock:
                text = _talk(sock, address, until, stop)
        except (OSError, ValueError) as error:
            problem = FactUnavailable("{error}", error=str(error) or type(error).__name__)
            stop.wait(0.05)
            continue
        if _is_ours(text, ours, all_ours):
            return Answer(text, time.time())
        problem = FactUnavailable("the answer is of another job")
    raise problem


def _talk(sock: socket.socket, address: object, until: float, stop: threading.Event) -> str:
    sock.settimeout(FIRST_WORD_S)
    sock.connect(address)  # type: ignore[arg-type]
    reader = _Lines(sock)
    sock.sendall(b"CLIENT PROTOCOL 2\n")
    if not reader.line(time.monotonic() + FIRST_WORD_S, stop).startswith("SERVER PROTOCOL"):
        raise ValueError("something else listens at the port of RAS")
    sock.sendall(b"SET FORMAT json\n")
    has_json = reader.line(min(until, time.monotonic() + 1.0), stop).strip().upper() == "OK"
    sock.sendall(f"TIMEOUT {COLLECT_S}\n".encode())
    reader.line(min(until, time.monotonic() + 1.0), stop)
    sock.sendall(b"STATUS\n" if has_json else b"VERBOSE STATUS\n")
    text = reader.rest(until, stop)
    if not text.strip():
        raise ValueError("RAS closed the connection without an answer")
    return text


class _Lines:
    """What a socket gives, line by line and then to its end, with deadlines and a bound."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = b""

    def line(self, until: float, stop: threading.Event) -> str:
        while b"\n" not in self._data:
            if not self._more(until, stop):
                raise ValueError("RAS closed the connection")
        line, _, self._data = self._data.partition(b"\n")
        return line.decode(errors="replace")

    def rest(self, until: float, stop: threading.Event) -> str:
        while self._more(until, stop):
            pass
        return self._data.decode(errors="replace")

    def _more(self, until: float, stop: threading.Event) -> bool:
        while True:
            left = until - time.monotonic()
            if left <= 0 or stop.is_set():
                raise TimeoutError("RAS did not answer in time")
            self._sock.settimeout(min(left, 0.5))
            try:
                data = self._sock.recv(1 << 16)
            except TimeoutError:
                continue
            self._data += data
            if len(self._data) > MAX_BYTES:
                raise ValueError(f"RAS's answer is larger than {MAX_BYTES >> 20} MiB")
            return bool(data)


def _is_ours(text: str, ours: frozenset[int], all_ours: bool) -> bool:
    """An answer of another job of this user names other processes.  Where it names none, who listens must do."""
    named = {int(pid) for pid in compiled(_PID_IN_JSON).findall(text) or compiled(_PID_IN_TEXT).findall(text)}
    if named & ours:
        return True
    if text.lstrip().startswith("{"):
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if isinstance(answer, dict) and answer.get("communicators") == []:
            return all_ours
        return False if named else all_ours
    return all_ours  # the text form names only processes that stand out
