"""What the agents' own code sees of sockets, asked from inside a node's network namespace."""

import ctypes
import os
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from allready.live.node.sockets import owners, rows_of
from allready.model import SocketRow

CLONE_NEWNET = 0x40000000


class Inside:
    """A thread that lives in the network namespace of a process and does there what it is given."""

    def __init__(self, pid: int) -> None:
        self._work: queue.Queue[tuple[Callable[[], Any], queue.Queue[Any]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(pid,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(10)

    def rows(self, ranks: Mapping[int, int]) -> tuple[SocketRow, ...]:
        """Connections of the processes in `ranks` (pid -> rank), without those on loopback."""
        owned = owners((rank, pid) for pid, rank in ranks.items())
        rows: tuple[SocketRow, ...] = self.do(lambda: rows_of(owned, timeout_s=5.0))
        return tuple(row for row in rows if not row.remote.startswith("127."))

    def do(self, task: Callable[[], Any]) -> Any:
        answer: queue.Queue[Any] = queue.Queue()
        self._work.put((task, answer))
        found = answer.get(timeout=20)
        if isinstance(found, BaseException):
            raise found
        return found

    def _run(self, pid: int) -> None:
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.setns(namespace, CLONE_NEWNET)
        error = OSError(ctypes.get_errno(), "setns") if failed else None
        os.close(namespace)
        while (item := self._work.get()) is not None:
            task, answer = item
            try:
                answer.put(error if error is not None else task())
            except Exception as raised:  # noqa: BLE001 - given to who asked
                answer.put(raised)
