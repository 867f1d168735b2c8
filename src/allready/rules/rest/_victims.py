"""Lines of those who lost somebody, where nobody's own fault is in the files."""

import re
from collections.abc import Iterable, Sequence

from allready.model import Aftermath, Culprits, Event
from allready.rules._common import is_loopback
from allready.rules._process import chain_behind, died, got_on
from allready.signatures import load

_EXCEPTION = re.compile(r"\b\w*(?:Error|Exception)\b: ")
_PORT = re.compile(r"(?:<\d{1,5}>|(?<=\]):\d{1,5})$")


def lost(after: Aftermath, signatures: Iterable[str]) -> list[Event]:
    """Consequences of these kinds, earliest first, of processes that did not simply go on or end well."""
    wanted = set(signatures)
    found = [
        e
        for e in after.events
        if e.signature in wanted
        and e.role is load()[e.signature].role  # the table's: an attempt that is over has another
        and (e.origin.rank is None or e.origin.rank not in after.ended_well)
    ]
    return [e for e in found if not got_on(after, e) or is_fatal(after, e)]


def is_fatal(after: Aftermath, event: Event) -> bool:
    """Whether the process that wrote it failed by it: an exception, a chain of error codes, its end."""
    is_raised = bool(event.extra) or bool(event.values.get("site")) or _EXCEPTION.search(event.text) is not None
    return is_raised or bool(chain_behind(after, event)) or any(
        d.is_collective_error or d.by_launcher for d in died(after, event.origin)
    )  # fmt: skip


def plain(peer: str) -> str:
    """`10.0.0.2`, `gpu01`, without port and brackets."""
    return _PORT.sub("", peer.strip()).strip("[]").removeprefix("::ffff:")


def writers(events: Sequence[Event]) -> set[tuple[object, ...]]:
    """Who wrote them, one for each process."""
    return {
        (e.origin.rank,) if e.origin.rank is not None else (e.origin.source, e.origin.host, e.origin.pid)
        for e in events
    }


def ranks_at(after: Aftermath, address: str) -> set[int]:
    """Ranks that are known to live at an address or on a host of that name."""
    found = set(after.peers.get(address, ()))
    node = node_at(after, address)
    if not found and node is not None:
        found = {r for r, n in after.node_of_rank.items() if n == node}
    return found


def node_at(after: Aftermath, address: str) -> int | None:
    """The node with this address or name, if it is known to be one."""
    ranks = after.peers.get(address, ())
    nodes = {after.node_of_rank[r] for r in ranks if r in after.node_of_rank}
    if len(nodes) == 1:
        return next(iter(nodes))
    named = {n for key, n in after.node_numbers.items() if _same_host(key, address)}
    return next(iter(named)) if len(named) == 1 else None


def _same_host(one: str, other: str) -> bool:
    if any(c.isalpha() for c in one) and any(c.isalpha() for c in other) and ":" not in one + other:
        return one.partition(".")[0].lower() == other.partition(".")[0].lower()
    return one == other


def is_own(after: Aftermath, address: str, events: Sequence[Event]) -> bool:
    """Whether one who complains lives there himself: then he is as much a victim as the others, or it is one node."""
    if is_loopback(address):
        return True
    hosts = {h for e in events for h in (e.origin.host, e.origin.node) if h}
    if any(_same_host(h, address) for h in hosts):
        return True
    spoken = {e.origin.rank for e in events if e.origin.rank is not None}
    node = node_at(after, address)
    return bool(ranks_at(after, address) & spoken) or (
        node is not None and node in {after.node_of_rank.get(r) for r in spoken}
    )


def named(after: Aftermath, events: Sequence[Event], value: str) -> list[tuple[str, list[Event]]]:
    """Addresses that are complained of and from which nobody complains, those of most complainants first."""
    by_address: dict[str, list[Event]] = {}
    for event in events:
        address = plain(event.values.get(value, ""))
        if address and address != "?":
            by_address.setdefault(address, []).append(event)
    strangers = [(a, them) for a, them in by_address.items() if not is_own(after, a, events)]
    return sorted(strangers, key=lambda one: -len(writers(one[1])))


def culprit_at(after: Aftermath, address: str) -> Culprits:
    """The node there, where it is known."""
    node = node_at(after, address)
    return Culprits() if node is None else Culprits(nodes=(node,))
