"""Which names and addresses this machine has, to find itself in a list of nodes."""

import contextlib
import socket
from collections.abc import Callable

from msgspec import Struct

from allready.model.addresses import is_loopback, parse

RESOLVE_S = 3.0


def _resolved(name: str) -> tuple[str, ...]:
    from allready.errors import FactUnavailable
    from allready.facts.live import LiveHost

    try:
        return LiveHost().resolve(name, timeout_s=RESOLVE_S)
    except FactUnavailable:
        return ()


class Identity(Struct, frozen=True, kw_only=True):
    """`resolve` gives the addresses of a name, () when it has none; it ends by itself within seconds."""

    names: tuple[str, ...]  # as the machine calls itself, short or with domain
    addresses: tuple[str, ...]  # of all interfaces, loopback left out
    resolve: Callable[[str], tuple[str, ...]] = _resolved

    def has_name(self, word: str) -> bool:
        """The host name: exactly, or short against long (gpu01 and gpu01.cluster.org, but not another domain's)."""
        wanted = word.lower().rstrip(".")
        if parse(wanted) is not None:
            return False
        for name in (own.lower().rstrip(".") for own in self.names):
            short = wanted.split(".")[0] == name.split(".")[0]
            if wanted == name or (short and ("." not in wanted or "." not in name)):
                return True
        return False

    def is_at(self, word: str) -> bool:
        """Whether a connection to `word` ends on this machine, as far as names and addresses tell."""
        if self.has_name(word):
            return True
        plain = parse(word.strip("[]"))
        found = [plain] if plain is not None else [parse(text) for text in self.resolve(word)]
        own = {parse(text) for text in self.addresses}
        return any(a is not None and (a.is_loopback or a.is_unspecified or a in own) for a in found)

    def has_address(self, word: str) -> bool:
        """An own address, or a name that resolves to one; loopback does not count."""
        own = {parse(text) for text in self.addresses}
        plain = parse(word.strip("[]"))
        found = {plain} if plain is not None else {parse(text) for text in self.resolve(word)}
        return bool({address for address in found if address is not None and not address.is_loopback} & own)


def own_identity() -> Identity:
    """Of this machine, from the kernel; no name server is asked."""
    from allready.facts.netlink import addresses

    kept = {text for text in addresses(timeout_s=RESOLVE_S) if not is_loopback(text)}
    return Identity(names=(socket.gethostname(),), addresses=tuple(sorted(kept)))


def default_address() -> str:
    """The own address on the way to other networks, "" without one; nothing is sent."""
    for family, elsewhere in ((socket.AF_INET, "198.51.100.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((elsewhere, 9))
            return str(sock.getsockname()[0])
    return ""
