"""From the nodes' rows to the evidence that rules read.  Pure: what did not answer becomes "not_run", never a guess."""

import logging

from msgspec import Struct

from allready.messaging.sockets import is_address
from allready.model import DatagramProbe, PathProbe, Phrase, Reachability
from allready.model.fill import said, texts, words_of
from allready.preflight.reach import wire
from allready.preflight.reach.schedule import Schedule

log = logging.getLogger(__name__)


class Gathered(Struct, kw_only=True):
    """What node 0 has received in this stage, by node rank."""

    endpoints: dict[int, wire.EndpointReport] = {}
    results: dict[int, wire.Result] = {}
    counted: dict[int, wire.SentCounts] = {}
    arrived: dict[int, wire.Arrived] = {}
    silent: dict[int, str] = {}  # still connected, did not answer: why
    lost: dict[int, str] = {}  # the connection broke: why

    def offer(self, node_rank: int, index: int) -> wire.AddressOffer | None:
        """One address of a node; None: there is none such."""
        report = self.endpoints.get(node_rank)
        return report.offers[index] if report is not None and 0 <= index < len(report.offers) else None


def checked(report: wire.EndpointReport) -> wire.EndpointReport:
    """An endpoint that other nodes may connect to.

    Raises:
        ValueError: an address is none, or a port is out of range.
    """
    for offer in report.offers:
        ports = (
            *offer.data_ports,
            *offer.range_ports,
            *(() if offer.datagram_port is None else (offer.datagram_port,)),
        )
        if not is_address(offer.address) or not all(0 < port < 65536 for port in ports):
            raise ValueError(f"{offer.address!r} with ports {ports} is no endpoint")
        if len(ports) > wire.MAX_LISTENERS:
            raise ValueError(f"{len(ports)} ports are too many")
    return report


def merge(request: wire.ReachRequest, schedule: Schedule, gathered: Gathered, duration_s: float) -> Reachability:
    """All paths of all planned pairs, both directions, sorted by src and dst; the master's port first."""
    partners = {r: {p for p in column if p is not None} for r, column in schedule.partners().items()}
    rows: dict[tuple[int, int], list[PathProbe]] = {}
    for src, result in gathered.results.items():
        for row in result.rows:
            probe = _path(request, src, row, gathered) if row.dst in partners.get(src, ()) else None
            if probe is None:
                log.warning("node_rank=%d reported a path that it was not asked for: node %d", src, row.dst)
            else:
                rows.setdefault((src, row.dst), []).append(probe)
    num_done = 0
    for pairs in schedule.rounds:
        for a, b in pairs:
            for src, dst in ((a, b), (b, a)):
                rows.setdefault((src, dst), [_not_run(src, dst, gathered)])
            num_done += all(any(p.outcome != "not_run" for p in rows[way]) for way in ((a, b), (b, a)))
    return Reachability(
        paths=(*_master_paths(request, gathered), *(path for way in sorted(rows) for path in rows[way])),
        datagrams=_datagrams(gathered, partners),
        num_pairs_all=schedule.num_pairs_all,
        num_pairs_planned=schedule.num_pairs,
        num_pairs_done=num_done,
        duration_s=duration_s,
        busy_ports={r: e.busy_ports for r, e in sorted(gathered.endpoints.items()) if e.busy_ports},
    )


def num_good_pairs(reach: Reachability) -> int:
    """Pairs whose every tried path is ok in both directions."""
    good: dict[tuple[int, int], set[tuple[int, bool]]] = {}
    for path in reach.paths:
        if path.kind != "master":
            pair = (min(path.src, path.dst), max(path.src, path.dst))
            good.setdefault(pair, set()).add((path.src, path.outcome == "ok"))
    return sum(ways == {(a, True), (b, True)} for (a, b), ways in good.items())


def _path(request: wire.ReachRequest, src: int, row: wire.Row, gathered: Gathered) -> PathProbe | None:
    offer = gathered.offer(row.dst, row.offer)
    if offer is None or row.port not in (*offer.data_ports, *offer.range_ports):
        return None
    outcome = row.outcome
    detail: str | Phrase | tuple[Phrase, ...] = words_of(row, "detail")
    gone = next((r for r in (row.dst, src) if r in gathered.lost), None)
    if gone is not None and outcome not in {"ok", "not_run"}:
        # A dying node refuses, is silent or answers half: that shows nothing of the path.
        form = "{lost}; seen before that was known: {outcome}, {detail}"
        detail = said(form, lost=_lost(gone, gathered), outcome=outcome, detail=detail)
        outcome = "not_run"
    return PathProbe(
        src=src,
        dst=row.dst,
        kind="data" if row.port in offer.data_ports else "range",
        address=offer.address,
        port=row.port,
        outcome=outcome,
        interface=offer.interface,
        src_address=row.src_address,
        passed_bytes=request.payloads_bytes[: max(0, row.num_passed)],
        stuck_bytes=row.stuck_bytes if outcome == "stuck" else None,
        rtt_s=row.rtt_s,
        throughput_gb_per_s=row.throughput_gb_per_s,
        duration_s=row.duration_s,
        num_segments=max(0, row.num_sent),
        num_retransmits=max(0, row.num_retransmits),
        **(texts(detail=detail) if detail else {}),
    )


def _not_run(src: int, dst: int, gathered: Gathered) -> PathProbe:
    """A direction that was planned and of which nothing is known, with the best reason there is."""
    offer = gathered.offer(dst, 0)
    if src in gathered.lost or dst in gathered.lost:
        detail = _lost(src if src in gathered.lost else dst, gathered)
    elif src in gathered.silent or dst in gathered.silent:
        who = src if src in gathered.silent else dst
        detail = said("node {node}: {why}", node=who, why=gathered.silent[who])
    elif dst in gathered.endpoints and offer is None:
        detail = said("node {node} opened no port: {why}", node=dst, why=words_of(gathered.endpoints[dst], "why"))
    else:
        detail = said("the time for this stage was over")
    return PathProbe(
        src=src,
        dst=dst,
        kind="data",
        address=offer.address if offer else "",
        port=offer.data_ports[0] if offer and offer.data_ports else 0,
        outcome="not_run",
        interface=offer.interface if offer else None,
        **texts(detail=detail),
    )


def _lost(node_rank: int, gathered: Gathered) -> Phrase:
    form = "the connection to node {node} broke during this stage: {why}"
    return said(form, node=node_rank, why=gathered.lost[node_rank])


def _master_paths(request: wire.ReachRequest, gathered: Gathered) -> list[PathProbe]:
    """The master's port needs no probe: every answer of this stage came through it."""
    if request.master is None:
        return []
    address, port = request.master
    why = texts(detail=said("the connection of this check itself"))
    return [
        PathProbe(src=r, dst=0, kind="master", address=address, port=port, outcome="ok", **why)
        for r in sorted(gathered.results)
        if r != 0 and r not in gathered.lost
    ]


def has_partial_losses(gathered: Gathered) -> bool:
    """Whether some packets of the bursts in one direction arrived, and others did not."""
    arrived = _arrivals(gathered)
    return any(
        0 < sum(_bursts(row, arrived.get((src, row.dst, row.offer)))) < sum(row.bursts)
        for src, result in gathered.results.items()
        for row in result.sent
    )


def _arrivals(gathered: Gathered) -> dict[tuple[int, int, int], wire.ArrivedRow]:
    return {(row.src, dst, row.offer): row for dst, found in gathered.arrived.items() for row in found.rows}


def _datagrams(gathered: Gathered, partners: dict[int, set[int]]) -> tuple[DatagramProbe, ...]:
    """One per address and direction, where both the sender and the receiver reported their part."""
    arrived = _arrivals(gathered)
    probes = []
    for src, result in sorted(gathered.results.items()):
        sent = {(row.dst, row.offer): row for row in result.sent}
        if src in gathered.counted:
            sent |= {(row.dst, row.offer): row for row in gathered.counted[src].sent}
        for _, row in sorted(sent.items()):
            offer = gathered.offer(row.dst, row.offer)
            known = row.dst in gathered.arrived and row.dst in partners.get(src, ())
            if offer is None or not known or {src, row.dst} & gathered.lost.keys():
                continue
            came = arrived.get((src, row.dst, row.offer))
            received = set(came.sizes if came is not None else ()) & set(row.sent)
            probes.append(
                DatagramProbe(
                    src=src,
                    dst=row.dst,
                    address=offer.address,
                    sent_bytes=tuple(sorted(row.sent)),
                    received_bytes=tuple(sorted(received)),
                    too_big_bytes=tuple(sorted(row.too_big)),
                    bursts_sent=row.bursts,
                    bursts_received=_bursts(row, came),
                )
            )
    return tuple(probes)


def _bursts(sent: wire.SentRow, came: wire.ArrivedRow | None) -> tuple[int, ...]:
    """How many packets of each burst that was sent arrived."""
    arrived = came.bursts if came is not None else ()
    padded = (*arrived, *[0] * len(sent.bursts))
    return tuple(min(num, most) for num, most in zip(padded, sent.bursts, strict=False))
