"""`Host`: the only door to the machine.

Every collector goes through a `Host`, so that the same code runs on this machine (`facts.live`), on answers that were
recorded elsewhere, and on a dict in a test (tests/facts/saved_host.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from allready.errors import FactUnavailable
from allready.model.fill import phrase_of
from allready.model.fleet import FactMissing


class Host(Protocol):
    """One machine, live or saved.  Every method raises FactUnavailable with one line saying why; never anything else.

    Methods may be called from several threads at once.
    """

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of the check on that machine."""
        ...

    def read(self, path: str) -> str:
        """The text of a regular file (at most 16 MiB; undecodable bytes replaced)."""
        ...

    def listdir(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted."""
        ...

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        """Standard output of a command that ended with 0.

        At the deadline the command and its process group are killed and reaped.
        """
        ...

    def probe(self, name: str, *, timeout_s: float) -> Any:
        """A JSON-able answer that needs a library or a system call: "KIND" or "KIND:ARGUMENT".

        Kinds: interfaces, routing_rules, shared_routes, gpus, python, import:MODULE,
        import:MODULE:devices (all of them), import:MODULE:cpu (no GPU is touched), statvfs:PATH,
        digest:PATH, file_use:PATH, sockets:PID, socket_owner:INODE, user:UID, kernel_log, pci, clock.
        """
        ...

    def resolve(self, name: str, *, timeout_s: float) -> tuple[str, ...]:
        """Addresses of a host name in the resolver's order, each once, without %zone; never blocks for longer."""
        ...


def missing(error: FactUnavailable) -> FactMissing:
    """The fact that could not be read."""
    return FactMissing.because(phrase_of(error))


def text_of(host: Host, path: str) -> str:
    """The text of a file; "" where it cannot be read."""
    try:
        return host.read(path)
    except FactUnavailable:
        return ""


def names_in(host: Host, path: str) -> tuple[str, ...]:
    """The names in a directory; () where it cannot be listed."""
    try:
        return host.listdir(path)
    except FactUnavailable:
        return ()


def pids_of(host: Host) -> tuple[int, ...]:
    """All processes that can be seen."""
    return tuple(int(name) for name in names_in(host, "/proc") if name.isdecimal())


def programs_of(host: Host) -> frozenset[str]:
    """The names of their programs, as `ps -o comm` shows them."""
    return frozenset(text_of(host, f"/proc/{pid}/comm").strip() for pid in pids_of(host))


def number(text: str) -> int | None:
    """The number that `text` is in decimal digits, as the kernel writes them; None for anything else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
