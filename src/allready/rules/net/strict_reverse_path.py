"""NET022."""

import ipaddress
import shlex
from collections import defaultdict
from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, FaultClass, Hit, NetFacts, PerNode, RemedyStep, Severity, World
from allready.rules.net._interfaces import are_told_apart

STRICT = 1


@Rule(
    code="NET022",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_PATH,
    since="0.2",
    layer=Layer.PATH,
    title="Strict reverse-path filtering on interfaces of one subnet",
    message="node {node}: {interfaces} are in one subnet, and the kernel drops packets that arrive on another "
    "interface than the reply would leave by (rp_filter=1)",
    remedy=(
        RemedyStep(
            explanation="let the kernel accept packets on any interface with a route back",
            where="node {node}",
            command="{command}",
        ),
    ),
)
def strict_reverse_path(net: PerNode[NetFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether two interfaces that are up have addresses in one IPv4 subnet while strict reverse-path filtering
    (rp_filter=1) counts on one of them, and no rule of policy routing (`ip rule`) names a table for their addresses,
    by which the kernel answers on the interface that a packet came by. Strict filtering with a subnet for each
    interface is the usual setting of many systems, and no finding; so is loose filtering (2).
    ## Why it matters
    The kernel answers to this subnet by one interface only. What arrives by the others is dropped without a
    trace: connections of NCCL over several network cards hang, in one direction.
    ## Check by hand
    `sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.eth1.rp_filter`; `nstat -az TcpExtIPReversePathFilter`.
    ## When it is harmless
    Where only one of the interfaces is ever used by other machines.
    """
    for node, facts in net.items():
        by_subnet: dict[str, list[str]] = defaultdict(list)
        for interface in facts.interfaces:
            if interface.is_up and not interface.is_loopback:
                for address in interface.addresses:
                    if ":" not in address:
                        subnet = str(ipaddress.ip_interface(address).network)
                        by_subnet[subnet] += [interface.name] if interface.name not in by_subnet[subnet] else []
        for subnet, names in by_subnet.items():
            strict = [name for name in names if facts.rp_filter.get(name) == STRICT]
            if len(names) > 1 and strict and not subnet.endswith("/32") and not are_told_apart(facts, names):
                yield Hit(
                    confidence=Confidence.POSSIBLE,
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "interfaces": ", ".join(names),
                        "command": f"sudo sysctl -w {' '.join(map(_loose, strict))}",
                    },
                    evidence=(
                        stated(
                            "rp_filter",
                            "{subnet}: {interfaces}; strict: {strict}",
                            node_rank=node,
                            subnet=subnet,
                            interfaces=", ".join(names),
                            strict=", ".join(strict),
                        ),
                    ),
                )


def _loose(name: str) -> str:
    """The setting, as one word for a shell; in an interface's name sysctl writes a slash for a dot (eth0.100)."""
    return shlex.quote(f"net.ipv4.conf.{name.replace('.', '/')}.rp_filter=2")
