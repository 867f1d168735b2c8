"""The job's store, and this process's connection to it, of which every request ends in time.

torch gives a request to its store no limit where the store's process is stopped, or its machine gone silently:
the client's thread stays in the kernel.  So a second thread ends the connection then, and the request raises.  Only
time in which this process ran counts: a machine that gives it no processor gives the store none either.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from allready.messaging.silence import comes
from allready.proc.own_sockets import Sockets, ends, sockets, tap

ANSWER_S = 5.0
"""A request takes less than a millisecond, with thousands of ranks and a busy machine a second."""
LEAST_ANSWER_S = 1.0
"""However short the wait is for which it is asked."""
_AGAIN_S = 0.1


class JobStore:
    """A store of torch's and the connection that this process has to it; none where it is in a file or in memory.

    `is_lost`: it did not answer, or the connection broke, and nothing comes from it any more.
    """

    def __init__(self, store: Any, connection: Sockets) -> None:
        self.store = store
        self.is_lost = False
        self._connection = connection

    @contextlib.contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """Requests inside, by torch too, raise once the time is over.

        Raises:
            TimeoutError: the store did not answer in time.
        """
        import torch.distributed as dist

        try:
            with _ended_after(limit_s, lambda: self._connection, self._lose):
                yield
        except dist.DistNetworkError:
            self.is_lost = True
            raise

    def _lose(self) -> None:
        self.is_lost = True

    def end(self) -> None:
        """Requests under way and to come raise; for any thread."""
        _end(self._connection)

    def under(self, prefix: str, limit_s: float = ANSWER_S) -> "Requests":
        """For keys that begin with this; who waits no longer than `limit_s` for others does not for the store."""
        import torch.distributed as dist

        return Requests(self, dist.PrefixStore(prefix, self.store), max(LEAST_ANSWER_S, min(ANSWER_S, limit_s)))

    @property
    def requests(self) -> "Requests":
        """For keys as they are."""
        return Requests(self, self.store, ANSWER_S)


class Requests:
    """A store as torch's, each of whose requests is answered within `answer_s` or raises."""

    def __init__(self, job: JobStore, store: Any, answer_s: float) -> None:
        self.store = store
        """torch's, for torch; see `JobStore.within`."""
        self._job = job
        self._answer_s = answer_s

    def set(self, key: str, value: str) -> None:
        """As torch's."""
        with self._job.within(self._answer_s):
            self.store.set(key, value)

    def wait(self, keys: list[str], limit: timedelta) -> None:
        """As torch's: raises where not all are there in time."""
        with self._job.within(limit.total_seconds() + self._answer_s):
            self.store.wait(keys, limit)

    def check(self, keys: list[str]) -> bool:
        """As torch's."""
        with self._job.within(self._answer_s):
            return bool(self.store.check(keys))

    def get(self, key: str) -> bytes:
        """As torch's."""
        with self._job.within(self._answer_s):
            return bytes(self.store.get(key))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """As torch's."""
        with self._job.within(self._answer_s):
            return [bytes(value) for value in self.store.multi_get(keys)]

    def has_extended_api(self) -> bool:
        """As torch's."""
        return bool(self.store.has_extended_api())


def connected(make: Callable[[], Any], port: int, limit_s: float) -> JobStore:
    """What `make` gives, torch's client of a store at that port.

    Raises:
        TimeoutError: the store did not answer in time.
    """
    before = sockets()

    def made() -> Sockets:
        return {fd: known for fd, known in sockets().items() if before.get(fd) != known and ends(fd)[1] == port}

    with _ended_after(limit_s, made):
        store = make()
    return JobStore(store, made())


def own(store: Any, limit_s: float) -> JobStore:
    """A store with a connection of its own, where it is one of those to which a process connects.

    Raises:
        TimeoutError: the store did not answer in time.
    """
    import torch.distributed as dist

    inner = innermost(store)
    if not isinstance(inner, dist.TCPStore):
        return JobStore(store, {})  # a file would be removed once so many copies of it have gone as there are ranks
    usual = store.timeout
    try:
        connect_s = min(limit_s, ANSWER_S) / 2  # a copy takes up to twice as long where nothing listens
        store.set_timeout(timedelta(seconds=connect_s))
        found = connected(store.clone, inner.port, limit_s)
    except dist.DistNetworkError as error:
        raise TimeoutError(f"the store did not answer: {error}") from error
    except (AttributeError, RuntimeError):  # an older torch
        return JobStore(store, {})
    finally:
        store.set_timeout(usual)
    found.store.set_timeout(usual)
    return found


def innermost(store: Any) -> Any:
    """The store below prefixes."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _end(connections: Sockets) -> None:
    for fd, known in connections.items():
        with contextlib.suppress(OSError), tap(fd, known) as connection:
            connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _ended_after(limit_s: float, found: Callable[[], Sockets], told: Callable[[], object] = int) -> Iterator[None]:
    """Once the time is over, connections that are found are ended, also those that are made after that."""
    has_ended, is_late = threading.Event(), threading.Event()

    def watch() -> None:
        if comes(has_ended.wait, limit_s):
            return
        while not has_ended.wait(_AGAIN_S):  # a process that was itself stopped meanwhile has its answer by now
            is_late.set()
            told()
            _end(found())

    thread = threading.Thread(target=watch, name="allready-store", daemon=True)
    thread.start()
    try:
        yield
    except RuntimeError as error:  # torch's
        if not is_late.is_set():
            raise
        raise TimeoutError(f"the job's store did not answer within {limit_s:g} s: stopped, or cut off") from error
    finally:
        has_ended.set()
        thread.join()
