import shlex
from collections.abc import Iterator

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.node_split import brief, some
from allready.judging.registry import Layer, Rule
from allready.judging.values import on_nodes, seen
from allready.rules.net._interfaces import needed_choices, subnets
from allready.rules.net._packet_size import lost_sizes
from allready.rules.net._paths import probe_evidence


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
