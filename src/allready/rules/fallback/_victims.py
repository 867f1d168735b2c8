"""Lines of ranks that lost a peer, where no fault of their own is in the files."""

from collections.abc import Iterable, Sequence

from allready.judging.analysis import Analysis
from allready.judging.majority import is_majority
from allready.judging.processes import chain_behind, died, got_on, is_being_stopped, same_process
from allready.judging.run_signs import by_signature
from allready.judging.values import grouped
from allready.model import Culprits, Event
from allready.model.addresses import is_loopback
from allready.patterns import compiled
from allready.signatures import load

_EXCEPTION = r"\b\w*(?:Error|Exception)\b: "
_SERVICE = "nccl.proxy_echo"
_CLOSED = "nccl.peer_closed"
_PORT = r"(?:<\d{1,5}>|(?<=\]):\d{1,5})$"


def lost(case: Analysis, signatures: Iterable[str]) -> list[Event]:
    """Consequences of these kinds, earliest first, of processes that did not simply go on or end well."""
    wanted = set(signatures)
    if wanted.isdisjoint(case.of(by_signature)):
        return []
    found = [
        e
        for e in case.run.events
        if e.signature in wanted
        and e.role is load()[e.signature].role  # the table's: an attempt that is over has another
        and (e.origin.rank is None or e.origin.rank not in case.run.ended_well)
        and not _is_own_service(case, e)
    ]
    return [e for e in found if not is_being_stopped(case, e) and (not got_on(case, e) or is_fatal(case, e))]


def _is_own_service(case: Analysis, event: Event) -> bool:
    """Whether NCCL's service thread of the same process closed the connection: it could not carry out a request, and
    said so before."""
    return event.signature == _CLOSED and any(
        (reported.origin.line or 0) < (event.origin.line or 0) and same_process(reported.origin, event.origin)
        for reported in case.of(_services).get(event.origin.source, ())
    )


def _services(case: Analysis) -> dict[str, tuple[Event, ...]]:
    """Requests that service threads could not carry out, with the result that they handed back, by file."""
    services = case.of(by_signature).get(_SERVICE, ())
    return grouped((event.origin.source, event) for event in services if event.values.get("result"))


def is_fatal(case: Analysis, event: Event) -> bool:
    """Whether the process that wrote it failed by it: an exception, a chain of error codes, its end."""
    is_raised = (
        bool(event.extra) or bool(event.values.get("site")) or compiled(_EXCEPTION).search(event.text) is not None
    )
    return (
        is_raised
        or bool(chain_behind(case, event))
        or any(d.is_collective_error or d.by_launcher for d in died(case, event.origin))
    )


def plain(peer: str) -> str:
    """`10.0.0.2`, `gpu01`, without port and brackets."""
    return compiled(_PORT).sub("", peer.strip()).strip("[]").removeprefix("::ffff:")


def writers(events: Sequence[Event]) -> set[tuple[object, ...]]:
    """Who wrote them, one for each process."""
    return {
        (e.origin.rank,) if e.origin.rank is not None else (e.origin.source, e.origin.host, e.origin.pid)
        for e in events
    }


def node_at(case: Analysis, address: str) -> int | None:
    """The node with this address or name, if it is known to be one."""
    ranks = case.run.peers.get(address, ())
    nodes = {case.run.node_of_rank[r] for r in ranks if r in case.run.node_of_rank}
    if len(nodes) == 1:
        return next(iter(nodes))
    return case.of(_nodes_by_name).get(_short(address))


def _nodes_by_name(case: Analysis) -> dict[str, int]:
    found: dict[str, set[int]] = {}
    for name, number in case.run.node_numbers.items():
        found.setdefault(_short(name), set()).add(number)
    return {name: next(iter(numbers)) for name, numbers in found.items() if len(numbers) == 1}


def _short(name: str) -> str:
    """A host's name without its domain; an address as it is."""
    is_name = any(c.isalpha() for c in name) and ":" not in name
    return name.partition(".")[0].lower() if is_name else name


Named = Sequence[tuple[str, tuple[Event, ...]]]
"""Addresses, each with the lines that complain of it."""


def named(case: Analysis, events: Sequence[Event], value: str) -> Named:
    """Addresses that are complained of and do not complain, those of most complainants first.

    Who complains himself is as much a victim as the others, or all is one node.
    """
    by_address = grouped((plain(event.values.get(value, "")), event) for event in events)
    by_address = {address: them for address, them in by_address.items() if address not in {"", "?"}}
    hosts = {_short(name) for e in events for name in (e.origin.host, e.origin.node) if name}
    spoken = {e.origin.rank for e in events if e.origin.rank is not None}
    nodes = {case.run.node_of_rank[r] for r in spoken if r in case.run.node_of_rank}
    strangers = [
        (address, them)
        for address, them in by_address.items()
        if not is_loopback(address)
        and _short(address) not in hosts
        and not spoken & set(case.run.peers.get(address, ()))
        and node_at(case, address) not in nodes
    ]
    return sorted(strangers, key=lambda one: -len(writers(one[1])))


def voted(case: Analysis, found: Named) -> Named:
    """Of addresses that are complained of, those of the one place that more than half of all complainants lost.

    A place is a node, where it is known that the address is one of it; () where there is no such place, or several.
    """
    at = {address: address if (node := node_at(case, address)) is None else node for address, _ in found}
    places = grouped((at[address], (address, them)) for address, them in found)
    most = [lost for lost in places.values() if is_majority(_num_writers(lost), _num_writers(found))]
    return most[0] if len(most) == 1 else ()


def _num_writers(found: Named) -> int:
    return len(writers([event for _, them in found for event in them]))


def culprit_at(case: Analysis, address: str) -> Culprits:
    """The node there, where it is known."""
    node = node_at(case, address)
    return Culprits() if node is None else Culprits(nodes=(node,))
