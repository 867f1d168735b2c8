"""MTUs that differ, and packets of full size that get lost."""

import shlex
from collections.abc import Iterator, Mapping

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Layer, Rule
from allready.judging.values import on_nodes, seen
from allready.model import Confidence, FaultClass, Hit, PathProbe, Reachability, RemedyStep, Severity
from allready.rules.net._interfaces import needed_choices, subnets
from allready.rules.net._packet_size import Hole, ends, find_hole, lost_sizes, passed_bytes
from allready.rules.net._paths import (
    Hop,
    Paths,
    back,
    common_node,
    datagram_evidence,
    judge_paths,
    links_of,
    path_evidence,
    path_hit,
    probe_evidence,
)


@Rule(
    code="NET003",
    severity=model.Severity.WARNING,
    fault_class=model.FaultClass.START_PATH,
    layer=Layer.READINESS,
    title="Nodes on one subnet have different MTUs",
    message="the MTU (bytes) on {subnet} differs between nodes: {split}",
    remedy=model.RemedyStep(
        explanation="set the same MTU on every interface on {subnet}", where="node {where}", command="{command}"
    ),
)
def mtu_differs(
    net: model.PerNode[model.NetFacts], transport: model.PerNode[model.TransportFacts], case: Analysis
) -> Iterator[model.Hit]:
    """
    ## What it checks
    The MTU of the interfaces on one subnet that NCCL and Gloo will use. It is an error when datagrams larger than the
    smaller MTU are lost between two such nodes and TCP payloads get stuck there too; otherwise a warning.
    ## Why it matters
    Frames above the receiver's MTU may be dropped without an error. TCP negotiates a segment size and mostly copes;
    RoCE takes its MTU from the interface's, and the first large transfer hangs or fails with error 12.
    ## Check by hand
    `ip -o link show`, and `ping -M do -s 8972 PEER` from a node whose MTU is 9000 (8972 = 9000 - 28 bytes of headers).
    ## When it is harmless
    When all traffic is TCP, or the two ends are on different links and the path between them fragments.
    """
    found: dict[str, dict[int, int]] = {}
    names: dict[str, set[str]] = {}
    for node, chosen in case.of(needed_choices).items():
        for name in dict.fromkeys(n for item in chosen for n in item.choice.interfaces):
            interface = net[node].interface(name) if node in net else None
            if interface is None or interface.is_loopback:
                continue
            for subnet in map(str, subnets(interface)):
                mtu = found.setdefault(subnet, {})
                mtu[node] = min(interface.mtu_bytes, mtu.get(node, interface.mtu_bytes))
                names.setdefault(subnet, set()).add(name)
    alike: dict[tuple[tuple[int, int], ...], list[str]] = {}  # IPv4 and IPv6 of one network have the same split
    for text in sorted(found):
        alike.setdefault(tuple(sorted(found[text].items())), []).append(text)
    for items, networks in alike.items():
        mtu = dict(items)
        split = Split.by(mtu, num_members=len(mtu) + case.world.num_nodes - len(net))
        if len(split) < 2:
            continue
        lost = _lost_between(mtu, case.reach)
        odd = split.outliers()
        usual = split.groups[0][0] if odd else str(min(mtu.values()))
        shown = sorted(set.union(*(names[n] for n in networks)))[:2]
        yield model.Hit(
            severity=model.Severity.ERROR if _stuck_between(lost, case.reach) else None,
            confidence=model.Confidence.CERTAIN if lost else model.Confidence.LIKELY,
            culprits=model.Culprits(nodes=odd),
            values={
                "subnet": ", ".join(networks[:2]),
                "split": brief(split),
                "where": on_nodes(case.world, [n for n in mtu if str(mtu[n]) != usual]),
                "command": "; ".join(f"ip link set dev {shlex.quote(name)} mtu {usual}" for name in shown),
            },
            evidence=(
                *seen("/sys/class/net/*/mtu", {n: f"{networks[0]}: mtu {mtu[n]}" for n in some(mtu, odd)}),
                *probe_evidence(lost[:4]),
            ),
        )


def _lost_between(mtu: dict[int, int], reach: model.Reachability | None) -> list[model.DatagramProbe]:
    """Probes in which datagrams above the smaller MTU of two nodes were lost, while smaller ones arrived."""
    found = []
    for probe in reach.datagrams if reach else ():
        src, dst = mtu.get(probe.src, 0), mtu.get(probe.dst, 0)
        if src and dst and src != dst and (lost_sizes(probe)[0] or 0) > min(src, dst):
            found.append(probe)
    return found


def _stuck_between(lost: list[model.DatagramProbe], reach: model.Reachability | None) -> bool:
    """Whether TCP got stuck on one of these paths, too.  Mostly it negotiates the smaller segments and copes."""
    links = {(p.src, p.dst) for p in lost}
    return any((p.src, p.dst) in links and p.outcome == "stuck" for p in (reach.paths if reach and links else ()))


SAFE_MTUS_BYTES = (8900, 4000, 1500, 1400, 1280)


@Rule(
    code="NET002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="Large packets are dropped silently (MTU black hole)",
    message="packets above a certain size are dropped silently (no ICMP) on {num_links} "
    "{links:direction/directions} ({links}): payloads up to {passed_bytes} B arrive, "
    "{stuck_bytes} B do not; the largest IP packet known to pass has {packet_bytes} B",
    remedy=(
        RemedyStep(explanation="lower the MTU of the interface, as root", where="node {where}", command="{command}"),
        RemedyStep(
            explanation="the cause is a link on the path with a smaller MTU, or a firewall that drops ICMP "
            '"fragmentation needed"; until it is fixed, let TCP probe for the size',
            where="every node",
            command="sysctl -w net.ipv4.tcp_mtu_probing=1",
        ),
    ),
)
def mtu_black_hole(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Paths on which a TCP connection is established and small payloads return, but a payload that fills whole packets
    does not. Datagrams that must not be fragmented tell the direction and the size. A node is named when all such paths
    have it in common and the other nodes reach each other. Each size is judged by itself where that names a node.
    ## Why it matters
    Rendezvous, barriers and communicator initialization send small messages and succeed. The first real all_reduce
    hangs on all ranks until the timeout of 10 or 30 minutes.
    ## Check by hand
    `ping -M do -s 1472 ADDRESS` from one node to the other (1472 = 1500 - 28 bytes of headers; 8972 for an MTU of
    9000), then smaller sizes until it passes; `tracepath ADDRESS` shows where it breaks.
    ## When it is harmless
    Never on this path, unless only InfiniBand carries data.
    """
    paths = case.of(judge_paths)
    holes = {hop: hole for hop in paths.data if (hole := find_hole(case, hop)) is not None}
    if not holes:
        return
    whole = _Group(paths, holes)
    by_size = [_Group(paths, holes, size) for size in sorted({hole.passed_bytes for hole in holes.values()})]
    is_split = not whole.nodes and any(group.nodes for group in by_size)
    for group in by_size if is_split else [whole]:
        yield _hit(case, paths, group)


class _Group:
    """Black holes with one cause: all of them, or those that let packets of `size_bytes` through and no longer ones."""

    def __init__(self, paths: Paths, holes: Mapping[Hop, Hole], size_bytes: int | None = None) -> None:
        own = {hop: h for hop, h in holes.items() if size_bytes is None or h.passed_bytes == size_bytes}
        smaller = {hop: h for hop, h in holes.items() if size_bytes is None or h.passed_bytes <= size_bytes}
        out = {*smaller, *(_broken_direction(paths, hop) for hop in smaller)}
        self.holes = own
        self.broken = {_broken_direction(paths, hop) for hop in own}
        passed = {*paths.fine, *(hop for hop in holes if hop not in smaller)}
        fine = links_of(h for h in passed if h not in out and back(h) not in smaller)
        self.nodes = common_node(links_of(self.broken), fine)


def _hit(case: Analysis, paths: Paths, group: _Group) -> Hit:
    holes, broken, nodes = group.holes, group.broken, group.nodes
    packet = min(hole.passed_bytes for hole in holes.values())
    lost = min((h.lost_bytes for h in holes.values() if h.lost_bytes), default=None)
    where = nodes or tuple(sorted({n for src, dst, _ in broken for n in (src, dst)}))
    return path_hit(
        case,
        broken,
        nodes,
        Confidence.CERTAIN if lost is not None else Confidence.LIKELY,
        passed_bytes=min(passed_bytes(h.path) for h in holes.values()),
        stuck_bytes=min(h.path.stuck_bytes or 0 for h in holes.values()),
        packet_bytes=packet,
        where=on_nodes(case.world, where),
        command=_command(case, where, [hole.path for hole in holes.values()], _safe_mtu(packet, lost)),
        evidence=(*path_evidence(h.path for h in holes.values()), *datagram_evidence(paths, broken)),
    )


def _broken_direction(paths: Paths, hop: Hop) -> Hop:
    """The direction that loses large packets: as TCP saw it, unless datagrams were lost in the reverse one alone."""
    lossy = {h for h in (hop, back(hop)) if lost_sizes(paths.datagrams.get(h))[0] is not None}
    return back(hop) if lossy == {back(hop)} else hop


def _safe_mtu(packet_bytes: int, lost_bytes: int | None) -> int:
    """A usual MTU that is known to pass; else the smallest that IPv6 allows, unless that is known not to pass."""
    least = SAFE_MTUS_BYTES[-1]
    known = next((mtu for mtu in SAFE_MTUS_BYTES if mtu <= packet_bytes), None)
    return known or (least if lost_bytes is None or lost_bytes > least else packet_bytes)


def _command(case: Analysis, nodes: tuple[int, ...], paths: list[PathProbe], mtu: int) -> str:
    """`ip link set dev IF mtu N` for the interfaces of these nodes."""
    names = {p.interface for p in paths if p.dst in nodes and p.interface}
    names |= {interface.name for p in paths if p.src in nodes and (interface := ends(case, p)[0])}
    return "; ".join(f"ip link set dev {shlex.quote(name)} mtu {mtu}" for name in sorted(names)[:3] or ["IFNAME"])
