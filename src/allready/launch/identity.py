"""Which names and addresses this machine has, to find itself in a list of nodes."""

import socket
from collections.abc import Callable

from msgspec import Struct

from allready.messaging.sockets import source_address
from allready.model.addresses import Address, parse

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


def own_addresses() -> tuple[str, ...]:
    """All by which others may reach this machine, link-local ones of IPv4 last: two machines that share a cable may
    have no others.  Those of IPv6 are left out; they mean nothing without an interface.
    """
    found = (a for a in _addresses() if a.version == 4 or not a.is_link_local)
    return tuple(map(str, sorted(found, key=lambda a: a.is_link_local)))


def own_identity() -> Identity:
    """Of this machine, from the kernel; no name server is asked."""
    return Identity(names=(socket.gethostname(),), addresses=tuple(map(str, _addresses())))


def _addresses() -> list[Address]:
    """As `ip addr` shows them, without loopback."""
    from allready.facts.netlink import addresses

    found = map(parse, addresses(timeout_s=RESOLVE_S))
    return [a for a in found if a is not None and not a.is_loopback]


def default_address() -> str:
    """The own address on the way to other networks, "" without one."""
    return source_address("198.51.100.1") or source_address("2001:db8::1") or ""
