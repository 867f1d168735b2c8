"""NET003."""

from collections.abc import Iterator

from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    NetFacts,
    PerNode,
    Reachability,
    Severity,
    Split,
    TransportFacts,
)
from allready.rules.env._split import brief, some
from allready.rules.net._interfaces import needed_choices, subnets
from allready.rules.net.mtu_black_hole import lost_sizes
from allready.rules.registry import Rule


@Rule(
    code="NET003",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    depth=48,
    title="Nodes on one subnet have different MTUs",
    message="on {subnet} the MTU in bytes differs between nodes: {split}",
    remedy="give every interface on {subnet} the same MTU: {command}",
)
def mtu_differs(
    net: PerNode[NetFacts],
    transport: PerNode[TransportFacts],
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
    reach: Reachability | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    The MTU of those interfaces on one subnet that NCCL and Gloo will use. It is an error when datagrams larger than
    the smallest of these MTUs were sent between such nodes and vanished, otherwise a warning.
    ## Why it matters
    Frames above the receiver's MTU may be dropped without an error. TCP agrees on a segment size when it connects and
    mostly copes; RoCE takes its own MTU from the interface's, and there the first large transfer hangs or ends with
    error 12.
    ## Check by hand
    `ip -o link show`, and `ping -M do -s 8972 PEER` from a node whose MTU is 9000 (8972 = 9000 - 28 bytes of
    headers).
    ## When it is harmless
    When all traffic is TCP, or the two ends are really on different links and the path between them fragments.
    """
    found: dict[str, dict[int, int]] = {}
    names: dict[str, set[str]] = {}
    for node, chosen in needed_choices(transport, launch, gpu).items():
        for name in dict.fromkeys(n for item in chosen for n in item.choice.interfaces):
            interface = net[node].interface(name) if node in net else None
            if interface is None or interface.is_loopback:
                continue
            for subnet in subnets(interface):
                mtu = found.setdefault(str(subnet), {})
                mtu[node] = min(interface.mtu_bytes, mtu.get(node, interface.mtu_bytes))
                names.setdefault(str(subnet), set()).add(name)
    for subnet_text in sorted(found):
        mtu = found[subnet_text]
        split = Split.by(mtu)
        if len(split) < 2:
            continue
        proven = _loss_between(mtu, reach)
        outliers = split.outliers()
        usual = split.groups[0][0] if outliers else str(min(mtu.values()))
        shown = sorted(names[subnet_text])[:2]
        yield Hit(
            severity=Severity.ERROR if proven else None,
            confidence=Confidence.CERTAIN if proven else Confidence.POSSIBLE,
            culprits=Culprits(nodes=outliers),
            values={
                "subnet": subnet_text,
                "split": brief(split),
                "command": "; ".join(f"ip link set dev {name} mtu {usual}" for name in shown),
            },
            evidence=tuple(
                Evidence(source="/sys/class/net/*/mtu", text=f"{subnet_text}: mtu {mtu[n]}", node_rank=n)
                for n in some(mtu, outliers)
            ),
        )


def _loss_between(mtu: dict[int, int], reach: Reachability | None) -> bool:
    """Whether datagrams above the smaller MTU of two nodes vanished between them, while smaller ones arrived."""
    for probe in reach.datagrams if reach else ():
        ends = mtu.get(probe.src), mtu.get(probe.dst)
        if ends[0] is None or ends[1] is None or ends[0] == ends[1]:
            continue
        lost, _ = lost_sizes(probe)
        if lost is not None and lost > min(ends[0], ends[1]):
            return True
    return False
