"""In a JAX rank: all processes meet through their agents before JAX's own `initialize` begins.

The rank asks the agent of its node, over a socket in the run folder, until node 0 says go: `agent.jax_meeting`.
Lines of JSON: the rank's (`jax_meeting.Waiting`), and the agent's {"why", "notes", "go",
"give_up", ...} (`jax_meeting.Meeting`).  Without an agent: `allready.jax.roll_call`.
"""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from allready.launch.backoff import Backoff

SOCKET = "ranks.sock"
"""In the agent's run folder."""
MAX_BYTES = 1 << 20
ASK_EVERY_S = 0.1
ANSWER_S = 10.0  # of the agent, which is on this machine
FIRST_WORD_S, LATER_WORDS_S = 2.0, 5.0  # of who is missing


class GiveUpError(Exception):
    """All attempts are used up; the message says who is missing or what is in the way.  `missing`: as far as known."""

    def __init__(self, text: str, missing: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.missing = missing


class Orders(Struct, frozen=True, kw_only=True):
    """What the agent wants of this process.  `attempts`, `timeout_s`, `backoff` hold for JAX's own part as well.

    `address`: where the coordinator is planned.  `coordinator`, `bind`: what the script itself gives instead, or "".
    """

    process: int
    num_processes: int
    address: str
    run_dir: str  # of the agent
    attempts: int = 5
    timeout_s: float = 10.0
    backoff: Backoff = Backoff(most_s=30.0)
    coordinator: str = ""
    bind: str = ""

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """Raises ValueError: it is not what `to_json` writes."""
        try:
            return msgspec.json.decode(text, type=cls)
        except ValueError as error:
            raise ValueError(f"the orders in the environment cannot be read: {error}") from None


def say(text: str) -> None:
    """One line for this rank's log."""
    sys.stderr.write(f"allready: jax.distributed.initialize: {text}\n")
    sys.stderr.flush()


def pause(wait_s: float) -> None:
    """Nothing to do until the next attempt."""
    time.sleep(wait_s)


def meet(orders: Orders, *, failed: int = 0, patience_s: float = 0.0) -> tuple[str, int]:
    """Wait until all processes are here and reach process 0: (the coordinator's address, attempts that failed so far).

    `failed` attempts are used up already; it goes on for at least `patience_s` (the script's own time-out), whatever
    the number of attempts.

    Raises:
        GiveUpError: all attempts are used up, or the agent is gone.
    """
    own = {"process": orders.process, "num_processes": orders.num_processes, "coordinator": orders.coordinator,
           "bind": orders.bind, "failed": failed, "patience_s": patience_s}  # fmt: skip
    with _connection(orders.run_dir) as agent:
        return follow(lambda: _ask(agent, own))


def follow(ask: Callable[[], dict[str, Any]], *, every_s: float = ASK_EVERY_S) -> tuple[str, int]:
    """Ask until the answer is to go on, and say meanwhile what is waited for; returns and raises as `meet` does."""
    began, next_word = time.monotonic(), time.monotonic() + FIRST_WORD_S
    number, num_notes = None, 0
    while True:
        answer = ask()
        if answer.get("number") != number:
            number, num_notes = answer.get("number"), 0
        for note in (answer.get("notes") or [])[num_notes:]:
            say(note)
            num_notes += 1
            next_word = time.monotonic() + LATER_WORDS_S
        if answer.get("give_up"):
            raise GiveUpError(answer["give_up"], tuple(answer.get("missing") or ()))
        if answer.get("go"):
            return answer["go"], answer["failed"]
        if time.monotonic() >= next_word and answer.get("why"):
            next_word = time.monotonic() + LATER_WORDS_S
            say(f"{answer['why']} ({time.monotonic() - began:.0f} s)")
        pause(every_s)


@contextlib.contextmanager
def _connection(run_dir: str) -> Iterator[socket.socket]:
    folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # the whole path may be too long
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_S)
        try:
            sock.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            yield sock
        except OSError as error:
            raise GiveUpError(f"the agent of this node does not answer: {error}") from None
        finally:
            os.close(folder)


def _ask(agent: socket.socket, own: dict[str, Any]) -> dict[str, Any]:
    agent.sendall(json.dumps(own).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        data = agent.recv(65_536)
        line += data
        if not data or len(line) > MAX_BYTES:
            raise GiveUpError("the agent of this node is gone")
    answer: dict[str, Any] = json.loads(line)
    return answer
