"""A sign of life of every JAX process in the coordination service, from a thread of its own: who is alive, and not."""

import atexit
import contextlib
import os
import socket
import threading
from typing import Any

import msgspec

from allready.errors import UsageError
from allready.launch.jax_rank import jax_state
from allready.model import RankProcess

ROOT = "allready/"
HEARTBEAT_S = 1.0
RANKS_PER_S = 256
"""Signs of life that process 0 takes in a second; with more processes they come less often."""
HEARTBEATS_TO_POLL = 2.5

_active: list["Presence"] = []
os.register_at_fork(after_in_child=_active.clear)


class Presence:
    """This process's part; `begin` once JAX is initialized."""

    def __init__(self, client: Any, process: int, num_processes: int) -> None:
        self.client = client
        self.process, self.num_processes = process, num_processes
        self.beat_s = max(HEARTBEAT_S, num_processes / RANKS_PER_S)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="allready-jax", daemon=True)

    @classmethod
    def begin(cls) -> None:
        """Give signs of life until the process ends; a version of JAX that shows no service for them goes without."""
        state = jax_state()
        client = getattr(state, "client", None)
        if client is None or not hasattr(client, "wait_at_barrier"):
            return
        found = cls(client, state.process_id, state.num_processes)
        try:
            found.put(f"beats/{found.process}", "0")
            own = RankProcess(host=socket.gethostname(), pid=os.getpid())
            found.put(f"processes/{found.process}", msgspec.json.encode(own).decode())
        except TypeError:  # an older one, whose keys cannot be overwritten
            return
        found._thread.start()
        _active[:] = [found]
        atexit.register(found.end)  # before JAX's own, which closes the client

    @classmethod
    def current(cls) -> "Presence":
        """Of this process."""
        client = getattr(jax_state(), "client", None)
        if client is None:
            raise UsageError("call allready.jax.initialize first")
        if not _active or client is not _active[0].client:
            raise UsageError(
                "call allready.jax.initialize first; or this version of JAX has no coordination service that fits"
            )
        return _active[0]

    def end(self) -> None:
        """The thread has ended when this returns, or its last message hangs."""
        self._ended.set()
        self._thread.join(2 * HEARTBEAT_S)

    def put(self, key: str, value: str, *, once: bool = False) -> None:
        """Raises JAX's error: with `once` also where another process has."""
        self.client.key_value_set(ROOT + key, value, allow_overwrite=not once)

    def all(self, folder: str) -> dict[str, str]:
        """What processes have put under `folder`, by the rest of the key."""
        prefix = f"{ROOT}{folder}/"
        return {key.removeprefix(prefix): value for key, value in self.client.key_value_dir_get(prefix)}

    def alive(self, processes: set[int]) -> set[int]:
        """Those of them from which a sign of life came while this was watching."""
        before = self.all("beats")
        left, changed = processes, set[int]()
        for _ in range(max(1, round(HEARTBEATS_TO_POLL * 4))):
            if not left or self._ended.wait(self.beat_s / 4):
                break
            now = self.all("beats")
            changed |= {n for n in left if now.get(str(n)) != before.get(str(n))}
            left = processes - changed
        return changed

    def _run(self) -> None:
        number = 0
        with contextlib.suppress(Exception):  # the service has ended, and JAX says so itself
            while True:
                number += 1
                self.put(f"beats/{self.process}", str(number))
                if self._ended.wait(self.beat_s):
                    return
