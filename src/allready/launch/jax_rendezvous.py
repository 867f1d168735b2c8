"""In a JAX rank: all processes meet through their agents before JAX's own `initialize` begins.

The rank tells the agent of its node where it stands, again and again, over a socket in the run folder; node 0 puts
together who is here (`allready.agent.jax_meeting`).  Process 0 listens on the first free port of its list, where JAX's
coordinator will be, and every other process tries to reach it there.  So no process joins a coordinator of an earlier
attempt or of another job, a path that is blocked shows with its reason, and who is missing is known by number.  When
all are ready, process 0 closes the port, and JAX opens it anew.  Standard library only.

Lines of JSON: the rank sends a `Standing`; the agent answers {"why", "notes", "address", "go", "give_up"}.
"""

import json
import os
import random
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

SOCKET = "ranks.sock"
"""In the agent's run folder."""
MAX_LINE_BYTES = 65_536
ASK_EVERY_S = 0.1
ANSWER_S = 10.0  # of the agent, which is on this machine
PROBE_S = 2.0
FIRST_WORD_S, LATER_WORDS_S = 2.0, 5.0  # of who is missing


class GiveUpError(Exception):
    """All attempts are used up; the message says who is missing or what is in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the agent wants of this process.  `attempts`, `timeout_s`, `backoff` also hold for JAX's own part."""

    process: int
    num_processes: int
    host: str
    ports: tuple[int, ...]
    token: str
    run_dir: str  # of the agent
    attempts: int = 5
    timeout_s: float = 10.0
    backoff: tuple[float, float, float] = (1.0, 30.0, 0.25)
    given_address: str = ""  # of the script itself
    bind_port: int | None = None  # where process 0 listens, if not at the address's port

    def to_json(self) -> str:
        """For the environment of the rank."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """Raises ValueError: it is not what `to_json` writes."""
        try:
            raw = json.loads(text)
            raw["ports"], raw["backoff"] = tuple(raw["ports"]), tuple(raw["backoff"])
            made = cls(**raw)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError(f"the orders in the environment cannot be read: {error}") from None
        if not (made.ports and made.attempts >= 1 and len(made.backoff) == 3):
            raise ValueError("the orders in the environment are not complete")
        return made

    def address(self, port: int) -> str:
        """`host:port`, with brackets around IPv6."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def with_ids(self, *, process: int, num_processes: int) -> "Orders":
        """The script's own numbers."""
        return replace(self, process=process, num_processes=num_processes)

    def with_address(self, address: str, bind: str = "") -> "Orders":
        """The script's own coordinator; an address without a port stays JAX's to complain about."""
        host, _, port = address.rpartition(":")
        _, _, bind_port = bind.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            return replace(self, given_address=address)
        return replace(
            self,
            given_address=address,
            host=host.strip("[]"),
            ports=(int(port),),
            bind_port=int(bind_port) if bind_port.isdecimal() else None,
        )

    def wait_s(self, attempt: int) -> float:
        """The wait after failed attempt `attempt` (from 0)."""
        return backoff_s(self.backoff, attempt)


def backoff_s(backoff: tuple[float, float, float], attempt: int) -> float:
    """The wait after failed attempt `attempt` (from 0): base x 2^attempt up to a most, times 1 +- jitter."""
    base, most, jitter = backoff
    return min(most, base * 2.0 ** min(attempt, 60)) * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311


@dataclass(slots=True, kw_only=True)
class Standing:
    """Where one process stands.  `coordinator`: of the script, "" where it is ours; `address`: where process 0 listens.

    `is_ready`: process 0 listens, or is reached.  `problem`: why not.  `failed`: attempts that JAX itself used up;
    `patience_s`: go on at least so long (the script's own time-out).
    """

    process: int
    num_processes: int
    coordinator: str = ""
    address: str = ""
    is_ready: bool = False
    problem: str = ""
    failed: int = 0
    patience_s: float = 0.0


def say(text: str) -> None:
    """One line for whoever reads this rank's log."""
    sys.stderr.write(f"allready: jax.distributed.initialize: {text}\n")
    sys.stderr.flush()


def pause(wait_s: float) -> None:
    """Nothing to do until the next attempt."""
    time.sleep(wait_s)


def meet(orders: Orders, *, failed: int = 0, patience_s: float = 0.0) -> tuple[str, int]:
    """Wait until all processes are here and reach process 0: (the coordinator's address, attempts that failed so far).

    Args:
        orders: of the agent.
        failed: attempts that are used up already.
        patience_s: go on at least so long, whatever the number of attempts (the script's own time-out).

    Raises:
        GiveUpError: all attempts are used up, or the agent is gone.
    """
    standing = Standing(
        process=orders.process,
        num_processes=orders.num_processes,
        coordinator=orders.given_address,
        failed=failed,
        patience_s=patience_s,
    )
    listener: Listener | None = None
    agent = _Agent(orders.run_dir)
    began, next_word, num_notes, number = time.monotonic(), time.monotonic() + FIRST_WORD_S, 0, None
    try:
        while True:
            if orders.process == 0 and listener is None:
                listener = _listen(orders, standing)
            answer = agent.ask(standing)
            if answer.get("number") != number:  # another meeting: process 0 may be elsewhere
                number, num_notes = answer.get("number"), 0
                standing.is_ready = listener is not None
            notes = answer.get("notes") or []
            for note in notes[num_notes:]:
                say(str(note)[:500])
                next_word = time.monotonic() + LATER_WORDS_S
            num_notes = len(notes)
            if answer.get("give_up"):
                raise GiveUpError(str(answer["give_up"])[:500])
            if answer.get("go"):
                return str(answer["go"]), int(answer.get("failed") or 0)
            if orders.process != 0 and answer.get("address") and not standing.is_ready:
                standing.problem = probe(str(answer["address"]), orders.token)
                standing.is_ready = not standing.problem
            if time.monotonic() >= next_word and answer.get("why"):
                next_word = time.monotonic() + LATER_WORDS_S
                say(f"{answer['why']} ({time.monotonic() - began:.0f} s)")
            pause(ASK_EVERY_S)
    finally:
        agent.close()
        if listener is not None:
            listener.close()


class _Agent:
    """The conversation with this node's agent."""

    def __init__(self, run_dir: str) -> None:
        folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # the whole path may be too long
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_S)
        try:
            self._socket.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        except OSError as error:
            self._socket.close()
            raise GiveUpError(f"the agent of this node does not answer: {error}") from None
        finally:
            os.close(folder)
        self._buffer = b""

    def ask(self, standing: Standing) -> dict[str, Any]:
        try:
            self._socket.sendall(json.dumps(asdict(standing)).encode() + b"\n")
            while b"\n" not in self._buffer:
                data = self._socket.recv(MAX_LINE_BYTES)
                if not data or len(self._buffer) > 16 * MAX_LINE_BYTES:
                    raise GiveUpError("the agent of this node is gone")
                self._buffer += data
        except OSError as error:
            raise GiveUpError(f"the agent of this node does not answer: {error}") from None
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else {}

    def close(self) -> None:
        self._socket.close()


def _listen(orders: Orders, standing: Standing) -> "Listener | None":
    ports = (orders.bind_port,) if orders.bind_port else orders.ports
    for port in ports:
        found = listening(port)
        if found is not None:
            standing.address = orders.address(orders.ports[0] if orders.bind_port else port)
            standing.is_ready, standing.problem = True, ""
            return Listener(found, orders.token)
    held = ", ".join(map(str, ports))
    standing.problem = f"port {held} of this machine is held by another program (an earlier coordinator?)"
    return None


class Listener:
    """Process 0's port until JAX takes it: whoever connects gets the token of this attempt."""

    def __init__(self, listener: socket.socket, token: str) -> None:
        self._listener = listener
        self._token = token.encode()
        listener.settimeout(0.2)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="allready-port", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:  # nobody came meanwhile, or it was gone before it was taken
                continue
            with peer:
                peer.settimeout(1.0)
                try:
                    peer.sendall(self._token)
                except OSError:
                    continue

    def close(self) -> None:
        """The port is free afterwards."""
        self._is_over.set()
        self._thread.join(2.0)
        self._listener.close()


def probe(address: str, token: str) -> str:
    """Why process 0 of this attempt is not reached at `address`; "" when it is."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S) as sock:
            sock.settimeout(PROBE_S)
            answer = b""
            while len(answer) < len(token) and (data := sock.recv(256)):
                answer += data
    except ConnectionRefusedError:
        return f"nothing listens at {address}"
    except TimeoutError:
        return f"no answer from {address} (a packet filter?)"
    except (OSError, ValueError) as error:
        return f"{address}: {getattr(error, 'strerror', None) or error}"
    if answer == token.encode():
        return ""
    return f"another program answers at {address}, not process 0 of this job (an earlier coordinator?)"


def listening(port: int) -> socket.socket | None:
    """A listener on all addresses, None if the port is taken.

    Without SO_REUSEPORT, on purpose: gRPC sets it, and would share the port with a coordinator that is still there.
    """
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - as JAX's own does
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((address, port))
            listener.listen(1024)
        except OSError as error:
            listener.close()
            if error.errno in _NO_SUCH_FAMILY:
                continue
            return None
        return listener
    return None


_NO_SUCH_FAMILY = {97, 99}  # EAFNOSUPPORT, EADDRNOTAVAIL: IPv6 is switched off
