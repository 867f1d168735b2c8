"""In a JAX rank: all processes meet at process 0, on the very port where its coordinator will listen.

Process 0 listens on the first free port of the list, every other process asks at these ports until one answers with
this job's token.  So nobody joins a coordinator of an earlier attempt or of another job, a path that is blocked shows
here with its reason, and who is missing is known by number.  When all are there and have answered once more, process 0
closes the port, and JAX opens it anew.  Standard library only.

Lines of JSON: hello {"token", "process"} ->; <- {"here": n, "missing": [...]} every second; <- {"ask": k};
-> {"yes": k}; <- {"go": "host:port"} or {"give_up": why}.
"""

import json
import random
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

MAX_LINE_BYTES = 65_536
MAX_STRANGERS = 4096  # connections that said nothing useful yet
STATUS_S = 1.0
SILENCE_S = 15.0  # without a word of process 0
FIRST_WORD_S, LATER_WORDS_S = 2.0, 5.0  # of who is missing


class GiveUpError(Exception):
    """All attempts are used up; the message says who is missing or what is in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the agent wants of this process.  `nodes`: (name, number of processes), in the order of process numbers."""

    process: int
    num_processes: int
    host: str
    ports: tuple[int, ...]
    token: str
    attempts: int = 5
    timeout_s: float = 10.0
    backoff: tuple[float, float, float] = (1.0, 30.0, 0.25)
    nodes: tuple[tuple[str, int], ...] = ()
    given_address: str = ""  # of the script itself
    bind_port: int | None = None  # where process 0 listens, if not at the address's port

    def to_json(self) -> str:
        """For the environment of the rank."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """Raises ValueError: it is not what `to_json` writes."""
        try:
            raw = json.loads(text)
            raw["ports"], raw["backoff"] = tuple(raw["ports"]), tuple(raw["backoff"])
            raw["nodes"] = tuple((str(name), int(number)) for name, number in raw["nodes"])
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
        """The script's own numbers; names of nodes hold for ours only."""
        is_same = num_processes == self.num_processes
        return replace(self, process=process, num_processes=num_processes, nodes=self.nodes if is_same else ())

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
        base, most, jitter = self.backoff
        return min(most, base * 2.0 ** min(attempt, 60)) * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311

    def shown(self, process: int) -> str:
        """`3 (gpu01)`."""
        first = 0
        for name, number in self.nodes:
            if first <= process < first + number:
                return f"{process} ({name})"
            first += number
        return str(process)


def say(text: str) -> None:
    """One line for whoever reads this rank's log."""
    sys.stderr.write(f"allready: jax.distributed.initialize: {text}\n")
    sys.stderr.flush()


def pause(wait_s: float) -> None:
    """Nothing to do until the next attempt."""
    time.sleep(wait_s)


def meet(orders: Orders, *, failed: int = 0, patience_s: float = 0.0) -> tuple[str, int]:
    """Wait until all processes are here: (the coordinator's address, attempts that failed so far).

    Args:
        orders: whose attempts, time-outs and waits hold.
        failed: attempts that are used up already.
        patience_s: go on at least so long, whatever the number of attempts (the script's own time-out).

    Raises:
        GiveUpError: all attempts are used up.
    """
    budget = _Budget(orders, failed, patience_s)
    return (_Host(orders, budget).run() if orders.process == 0 else _Guest(orders, budget).run()), budget.failed


class _Budget:
    """Attempts and their ends."""

    def __init__(self, orders: Orders, failed: int, patience_s: float) -> None:
        self.orders = orders
        self.failed = failed
        self.started = time.monotonic()
        self._patience_until = self.started + patience_s
        self.attempt_ends = self.started + orders.timeout_s

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def is_over(self) -> bool:
        """The running attempt has used its time."""
        return time.monotonic() >= self.attempt_ends

    def fail(self, why: str) -> float:
        """One attempt less: seconds until the next one.  Raises GiveUpError after the last."""
        self.failed += 1
        orders = self.orders
        if self.failed >= orders.attempts and time.monotonic() >= self._patience_until:
            raise GiveUpError(f"{why} after {_attempts(self.failed)} ({self.elapsed_s:.0f} s)")
        wait_s = orders.wait_s(min(self.failed, orders.attempts) - 1)
        total = max(orders.attempts, self.failed)
        say(f"attempt {self.failed} of {total}: {why}; again in {wait_s:.1f} s")
        self.attempt_ends = time.monotonic() + wait_s + orders.timeout_s
        return wait_s


def _attempts(number: int) -> str:
    return "1 attempt" if number == 1 else f"{number} attempts"


@dataclass(slots=True, eq=False)
class _Peer:
    """A connection to process 0, of whoever it is."""

    sock: socket.socket
    process: int | None = None
    buffer: bytearray = field(default_factory=bytearray)
    said_yes: int = 0


class _Host:
    """Process 0."""

    def __init__(self, orders: Orders, budget: _Budget) -> None:
        self.orders = orders
        self.budget = budget
        self.selector = selectors.DefaultSelector()
        self.peers: dict[int, _Peer] = {}
        self.strangers: set[_Peer] = set()
        self.listener: socket.socket | None = None
        self.port = 0
        self.question = 0
        self.is_asked = False
        self.next_word = time.monotonic() + FIRST_WORD_S
        self.next_status = 0.0

    def run(self) -> str:
        """Until all are here and have answered; the port is free again afterwards."""
        try:
            while True:
                if self.listener is None and not self._listen():
                    pause(self.budget.fail(self._taken()))
                    continue
                self._serve(0.1)
                if self._all_answered():
                    address = self.orders.address(self.port)
                    self._tell_all({"go": address})
                    return address
                self._words()
                if self.budget.is_over():
                    self.budget.fail(self._missing_words())
        except GiveUpError as error:
            self._tell_all({"give_up": str(error)})
            raise
        finally:
            self._close()

    def _listen(self) -> bool:
        ports = (self.orders.bind_port,) if self.orders.bind_port else self.orders.ports
        for port in ports:
            listener = listening(port)
            if listener is not None:
                self.listener, self.port = listener, self.orders.ports[0] if self.orders.bind_port else port
                self.selector.register(listener, selectors.EVENT_READ)
                return True
        return False

    def _taken(self) -> str:
        ports = ", ".join(
            str(port) for port in ((self.orders.bind_port,) if self.orders.bind_port else self.orders.ports)
        )
        return f"port {ports} of this machine is held by another program (an earlier coordinator?)"

    def _serve(self, wait_s: float) -> None:
        for key, _ in self.selector.select(wait_s):
            if key.fileobj is self.listener:
                self._accept()
            else:
                self._read(key.data)

    def _accept(self) -> None:
        assert self.listener is not None
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return  # it was gone before it was taken
        if len(self.strangers) >= MAX_STRANGERS:
            sock.close()
            return
        sock.setblocking(False)
        peer = _Peer(sock)
        self.strangers.add(peer)
        self.selector.register(sock, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        peer.buffer += data
        if not data or len(peer.buffer) > MAX_LINE_BYTES:
            self._drop(peer)
            return
        for line in _lines(peer.buffer):
            self._heard(peer, line)

    def _heard(self, peer: _Peer, line: dict[str, Any]) -> None:
        if peer.process is not None:
            peer.said_yes = line["yes"] if isinstance(line.get("yes"), int) else peer.said_yes
            return
        process = line.get("process")
        if line.get("token") != self.orders.token:
            self._tell(peer, {"wrong_job": True})
            self._drop(peer)
        elif type(process) is not int or not 0 < process < self.orders.num_processes:
            self._tell(peer, {"give_up": f"there is no process {process!r} among {self.orders.num_processes}"})
            self._drop(peer)
        else:
            if process in self.peers:  # it lost its connection and came again
                self._drop(self.peers[process])
            self.strangers.discard(peer)
            peer.process = process
            self.peers[process] = peer
            self.is_asked = False
            self.next_status = 0.0

    def _all_answered(self) -> bool:
        """Everybody is here and has said so since the last one came: none of them is a connection without a process."""
        if len(self.peers) < self.orders.num_processes - 1:
            return False
        if not self.is_asked:
            self.is_asked = True
            self.question += 1
            self._tell_all({"ask": self.question})
        return len(self.peers) == self.orders.num_processes - 1 and all(
            peer.said_yes == self.question for peer in self.peers.values()
        )

    def _words(self) -> None:
        now = time.monotonic()
        if now >= self.next_status:
            self.next_status = now + STATUS_S
            self._tell_all({"here": len(self.peers) + 1, "missing": self._missing()[:32]})
        if now >= self.next_word:
            self.next_word = now + LATER_WORDS_S
            say(f"{self._missing_words()} ({self.budget.elapsed_s:.0f} s)")

    def _missing(self) -> list[int]:
        return [number for number in range(1, self.orders.num_processes) if number not in self.peers]

    def _missing_words(self) -> str:
        missing = self._missing()
        if not missing:
            silent = sorted(n for n, peer in self.peers.items() if peer.said_yes != self.question)
            return f"process {_listed(self.orders, silent)} is connected and does not answer"
        here = self.orders.num_processes - len(missing)
        verb = "is" if len(missing) == 1 else "are"
        noun = "process" if len(missing) == 1 else "processes"
        return f"{noun} {_listed(self.orders, missing)} {verb} missing, {here} of {self.orders.num_processes} are here"

    def _tell_all(self, message: dict[str, Any]) -> None:
        for peer in list(self.peers.values()):
            self._tell(peer, message)

    def _tell(self, peer: _Peer, message: dict[str, Any]) -> None:
        try:
            peer.sock.send(_line({"token": self.orders.token, **message}))
        except OSError:  # gone, or its buffer is full of our words because it reads none
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        self.strangers.discard(peer)
        if peer.process is not None and self.peers.get(peer.process) is peer:
            del self.peers[peer.process]
        if peer.sock.fileno() >= 0:
            self.selector.unregister(peer.sock)
            peer.sock.close()

    def _close(self) -> None:
        for peer in [*self.peers.values(), *self.strangers]:
            self._drop(peer)
        if self.listener is not None:
            self.listener.close()
        self.selector.close()


class _Guest:
    """Every other process."""

    def __init__(self, orders: Orders, budget: _Budget) -> None:
        self.orders = orders
        self.budget = budget
        self.why = "process 0 was not asked yet"

    def run(self) -> str:
        """Until process 0 says go."""
        next_word = time.monotonic() + FIRST_WORD_S
        while True:
            for port in self.orders.ports:
                address = self._ask(port)
                if address is not None:
                    return address
            if time.monotonic() >= next_word:
                next_word = time.monotonic() + LATER_WORDS_S
                say(f"process {self.orders.shown(0)} is not there yet: {self.why} ({self.budget.elapsed_s:.0f} s)")
            if self.budget.is_over():
                pause(self.budget.fail(f"process {self.orders.shown(0)} is not there: {self.why}"))
            else:
                pause(0.2)

    def _ask(self, port: int) -> str | None:
        where = self.orders.address(port)
        left_s = max(0.1, min(3.0, self.budget.attempt_ends - time.monotonic()))
        try:
            sock = socket.create_connection((self.orders.host, port), timeout=left_s)
        except ConnectionRefusedError:
            self._note(f"nothing listens at {where}", 0)
            return None
        except TimeoutError:
            self._note(f"no answer from {where} (a packet filter?)", 1)
            return None
        except OSError as error:
            self._note(f"{where}: {error.strerror or error}", 1)
            return None
        with sock:
            return self._wait(sock, where)

    def _wait(self, sock: socket.socket, where: str) -> str | None:
        buffer = bytearray()
        heard = False
        last = time.monotonic()
        try:
            sock.sendall(_line({"token": self.orders.token, "process": self.orders.process}))
            sock.settimeout(0.5)
            while time.monotonic() - last < (SILENCE_S if heard else 3.0):
                try:
                    data = sock.recv(4096)
                except TimeoutError:
                    continue
                buffer += data
                if not data or len(buffer) > MAX_LINE_BYTES or (not heard and not buffer.startswith(b"{")):
                    break
                for line in _lines(buffer):
                    if line.get("wrong_job"):
                        self._note(f"a coordinator of another job or of an earlier attempt answers at {where}", 2)
                        return None
                    if line.get("token") != self.orders.token:
                        continue
                    heard, last = True, time.monotonic()
                    if "give_up" in line:
                        raise GiveUpError(str(line["give_up"])[:500])
                    if "ask" in line:
                        sock.sendall(_line({"yes": line["ask"]}))
                    if "go" in line:
                        return str(line["go"])
        except OSError as error:
            self._note(f"{where}: {error.strerror or error}", 2)
            return None
        if heard:
            self.why = f"it went away from {where}"
        else:
            self._note(f"another program answers at {where}, not process 0 of this job (an earlier coordinator?)", 2)
        return None

    def _note(self, why: str, weight: int) -> None:
        """The most telling of what the ports say: one that is filtered tells more than one that is not used."""
        if weight or not self.why.startswith(("another", "a coordinator", "no answer")):
            self.why = why


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
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if error.errno in _NO_SUCH_FAMILY:
                continue
            return None
        return listener
    return None


_NO_SUCH_FAMILY = {97, 99}  # EAFNOSUPPORT, EADDRNOTAVAIL: IPv6 is switched off


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _lines(buffer: bytearray) -> Iterator[dict[str, Any]]:
    """The whole lines, taken out of `buffer`; what is no JSON object is passed over."""
    while (end := buffer.find(b"\n")) >= 0:
        line = bytes(buffer[:end])
        del buffer[: end + 1]
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _listed(orders: Orders, processes: list[int]) -> str:
    shown = ", ".join(orders.shown(number) for number in processes[:8])
    return shown + (f" and {len(processes) - 8} more" if len(processes) > 8 else "")
