"""NET002."""

import shlex
from collections.abc import Iterator

from msgspec import Struct

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import on_nodes
from allready.model import (
    Confidence,
    Culprits,
    DatagramProbe,
    FaultClass,
    Hit,
    NetFacts,
    PathProbe,
    PerNode,
    Reachability,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules.net._interfaces import holder
from allready.rules.net._paths import (
    MAX_LINKS,
    Hop,
    Judged,
    arrows,
    common_node,
    datagram_evidence,
    judge_paths,
    links_of,
    path_evidence,
)

TCP_OVERHEAD_BYTES = 52  # IPv4, TCP and its time stamps
SAFE_MTUS_BYTES = (8900, 4000, 1500, 1400, 1280)
USUAL_MTU_BYTES = 9000


class Hole(Struct, frozen=True):
    """One direction of TCP in which full packets get lost."""

    path: PathProbe
    lost_bytes: int | None  # smallest datagram that was lost, in this direction
    passed_bytes: int  # size of an IP packet that did pass


@Rule(
    code="NET002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="Small packets pass, large ones vanish",
    message="packets above a certain size vanish without a word: payloads up to {passed_bytes} B come through, "
    "{stuck_bytes} B do not; largest IP packet known to pass: {packet_bytes} B; directions: {num_links}"
    " ({links})",
    remedy=(
        RemedyStep(
            explanation="lower the MTU of the interface, as root",
            where="node {where}",
            command="{command}",
        ),
        RemedyStep(
            explanation="the cause is a link on the way with a smaller MTU, or a filter that drops ICMP "
            '"fragmentation needed"; until it is fixed, TCP can probe for the size',
            where="every node",
            command="sysctl -w net.ipv4.tcp_mtu_probing=1",
        ),
    ),
)
def mtu_black_hole(
    reach: Reachability, world: World, roll: RollCall | None = None, net: PerNode[NetFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    Paths on which a TCP connection comes up and small payloads return, but a payload that fills whole packets does
    not. Datagrams that may not be fragmented say in which direction the large packets vanish, and from which size on.
    A node is named when all such paths have it in common and the other nodes reach each other.
    ## Why it matters
    Rendezvous, barriers and communicator set-up send small messages and succeed. The first real all_reduce then hangs
    until the time-out of 10 or 30 minutes, on all ranks alike.
    ## Check by hand
    `ping -M do -s 1472 ADDRESS` from one node to the other (1472 = 1500 - 28 bytes of headers; 8972 for an MTU of
    9000), then smaller until it passes; `tracepath ADDRESS` shows where it breaks.
    ## When it is harmless
    Never for this path, unless nothing but InfiniBand carries data.
    """
    judged = judge_paths(reach, roll)
    holes = {
        hop: hole for hop, paths in judged.data.items() if (hole := find_hole(hop, paths, judged, net)) is not None
    }
    if not holes:
        return
    broken = _direction(holes, judged)
    links = links_of(broken)
    fine = links_of(
        hop for hop in judged.fine if hop not in holes and hop not in broken and (hop[1], hop[0], hop[2]) not in holes
    )
    node = common_node(links, fine)
    packet = min(hole.passed_bytes for hole in holes.values())
    lost = min((h.lost_bytes for h in holes.values() if h.lost_bytes), default=None)
    ends = (node,) if node is not None else tuple(sorted({n for link in links for n in link}))
    yield Hit(
        culprits=Culprits(nodes=() if node is None else (node,), links=links[:MAX_LINKS]),
        confidence=Confidence.CERTAIN if lost is not None else Confidence.LIKELY,
        values={
            "num_links": len(links),
            "links": arrows(links, world),
            "passed_bytes": min(h.path.passed_bytes[-1] for h in holes.values()),
            "stuck_bytes": min(h.path.stuck_bytes or 0 for h in holes.values()),
            "packet_bytes": packet,
            "where": on_nodes(world, ends),
            "command": _commands(ends, holes, net, _safe_mtu(packet, lost)),
        },
        evidence=(
            *path_evidence(h.path for h in holes.values()),
            *datagram_evidence(judged.datagrams[h] for h in sorted(broken) if h in judged.datagrams),
        ),
    )


def stuck_path(paths: list[PathProbe]) -> PathProbe | None:
    """The probe that says most about why payloads stick; None when none does, or another connection carried as much."""
    stuck = [p for p in paths if p.outcome == "stuck" and p.stuck_bytes is not None]
    if not stuck:
        return None
    path = min(stuck, key=lambda p: p.passed_bytes[-1] if p.passed_bytes else 0)
    carried = max((p.passed_bytes[-1] for p in paths if p.outcome == "ok" and p.passed_bytes), default=0)
    return None if carried >= (path.stuck_bytes or 0) else path


def find_hole(hop: Hop, paths: list[PathProbe], judged: Judged, net: PerNode[NetFacts] | None) -> Hole | None:
    """The black hole of one direction of TCP; None when payloads return, or when their size is not what stops them.

    If packets of full size are known to have passed, the path is merely slow or lossy.
    """
    path = stuck_path(paths)
    if path is None or not path.passed_bytes:
        return None
    there, back = (lost_sizes(judged.datagrams.get(h)) for h in (hop, (hop[1], hop[0], hop[2])))
    lost = min((size for size, _ in (there, back) if size is not None), default=None)
    mtu = min((m for end in (path.src, path.dst) if (m := _mtu(path, net, end))), default=USUAL_MTU_BYTES)
    passed = min(path.passed_bytes[-1] + TCP_OVERHEAD_BYTES, mtu)
    if passed >= mtu and (lost is None or lost <= passed):
        return None
    if lost is None:
        return Hole(path, None, passed)
    return Hole(path, lost, min(size for lost_at, size in (there, back) if lost_at is not None))


def _mtu(path: PathProbe, net: PerNode[NetFacts] | None, node: int) -> int | None:
    address = path.address if node == path.dst else path.src_address
    facts = net.get(node) if net else None
    interface = holder(facts, address) if facts and address else None
    return interface.mtu_bytes if interface else None


def lost_sizes(probe: DatagramProbe | None) -> tuple[int | None, int]:
    """Smallest datagram size from which on none arrived (None: no such size), and the largest that did (0: none).

    One lost datagram among larger ones that arrived is plain loss, not a matter of size.
    """
    if probe is None or not probe.received_bytes:
        return None, 0
    largest = max(probe.received_bytes)
    lost = [s for s in probe.sent_bytes if s > largest and s not in probe.too_big_bytes]
    return min(lost, default=None), largest


def _direction(holes: dict[Hop, Hole], judged: Judged) -> set[Hop]:
    """The directions that lose large packets: as TCP saw it, unless datagrams were lost in the reverse one alone."""
    broken: set[Hop] = set()
    for hop in holes:
        back = (hop[1], hop[0], hop[2])
        told = {h for h in (hop, back) if lost_sizes(judged.datagrams.get(h))[0] is not None}
        broken.add(back if told == {back} else hop)
    return broken


def _safe_mtu(packet_bytes: int, lost_bytes: int | None) -> int:
    """A usual MTU that is known to pass; else the smallest that IPv6 allows, unless that is known not to pass."""
    least = SAFE_MTUS_BYTES[-1]
    known = next((mtu for mtu in SAFE_MTUS_BYTES if mtu <= packet_bytes), None)
    return known or (least if lost_bytes is None or lost_bytes > least else packet_bytes)


def _commands(ends: tuple[int, ...], holes: dict[Hop, Hole], net: PerNode[NetFacts] | None, mtu: int) -> str:
    """`ip link set dev IF mtu N` for the interfaces of these nodes."""
    names: set[str] = set()
    for hole in holes.values():
        if hole.path.dst in ends and hole.path.interface:
            names.add(hole.path.interface)
        facts = net.get(hole.path.src) if net else None
        interface = holder(facts, hole.path.src_address) if facts and hole.path.src_address else None
        if hole.path.src in ends and interface:
            names.add(interface.name)
    shown = sorted(names)[:3] or ["IFNAME"]
    return "; ".join(f"ip link set dev {shlex.quote(name)} mtu {mtu}" for name in shown)
