"""Settings of the kernel that connections of a job suffer from."""

import ipaddress
import shlex
from collections import defaultdict
from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import seen
from allready.model import Confidence, Culprits, FaultClass, Hit, NetFacts, PerNode, RemedyStep, Severity, World
from allready.rules.net._interfaces import are_told_apart

MIN_DEFAULT = 128


@Rule(
    code="NET024",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_PATH,
    layer=Layer.ENVIRONMENT,
    title="Few connections may wait at a port",
    message="node {node}: at most {most} connections wait at a port to be accepted (somaxconn)"
    "[[, and this job has {ranks} ranks]][[; the least that any kernel sets by itself is {least}]]",
    remedy=(
        RemedyStep(
            explanation="raise the limit, as root, before the job starts",
            where="node {node}",
            command="sysctl -w net.core.somaxconn=4096",
        ),
    ),
)
def short_accept_queue(net: PerNode[NetFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `net.core.somaxconn`, to which the kernel cuts the queue of every listening port, against the number of ranks. On
    several nodes every rank connects to the store and to NCCL's bootstrap of rank 0 at nearly the same time: fewer
    places than ranks are a warning. Fewer than 128, which kernels before 5.4 had by default (later ones 4096), are
    information.
    ## Why it matters
    When the queue is full the kernel drops the connection's last packet, and the rank that connects tries again after
    1, 3, 7 seconds: a large job starts slowly, or a part of its ranks runs into its timeout.
    ## Check by hand
    `sysctl net.core.somaxconn`; `nstat -az TcpExtListenOverflows`; `ss -ltn` (Recv-Q against Send-Q).
    ## When it is harmless
    On nodes that never are node 0, or with a launcher that starts ranks one after the other.
    """
    for node, facts in net.items():
        if facts.somaxconn is None:
            continue
        is_short = world.num_nodes > 1 and facts.somaxconn < world.world_size
        if is_short or facts.somaxconn < MIN_DEFAULT:
            yield Hit(
                severity=None if is_short else Severity.INFO,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "most": facts.somaxconn,
                    "ranks": world.world_size if is_short else None,
                    "least": None if is_short else MIN_DEFAULT,
                },
                evidence=seen("net.core.somaxconn", {node: str(facts.somaxconn)}),
            )


FEW = 6
FIRST_S = 0.2  # the least time that TCP waits for an answer; it doubles each time


@Rule(
    code="NET023",
    severity=Severity.WARNING,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.ENVIRONMENT,
    title="TCP gives up after a short interruption",
    message="node {node}: the kernel ends a TCP connection after about {seconds} s without an answer "
    "(tcp_retries2={retries}; default 15, about 15 min)",
    remedy=(
        RemedyStep(
            explanation="set it to the default", where="node {node}", command="sudo sysctl -w net.ipv4.tcp_retries2=15"
        ),
    ),
)
def short_tcp_retries(net: PerNode[NetFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of times that the kernel sends unanswered data again before it ends the connection. Below 6 it is
    a warning: the connection ends within about 13 s. Databases and high availability use 8, which is no
    finding.
    ## Why it matters
    A switch that restarts, a bond that moves, or a link that flaps interrupts for 5 to 30 s. With the usual
    setting NCCL's sockets and torch's store wait; with this one they break, and the job ends.
    ## Check by hand
    `sysctl net.ipv4.tcp_retries2`.
    ## When it is harmless
    Where jobs restart by themselves and shall notice a lost node soon.
    """
    for node, facts in net.items():
        retries = facts.tcp_retries2
        if retries is not None and retries < FEW:
            seconds = FIRST_S * (2 ** (retries + 1) - 1)
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "retries": retries, "seconds": f"{seconds:.0f}"},
                evidence=seen("net.ipv4.tcp_retries2", {node: str(retries)}),
            )


STRICT = 1


@Rule(
    code="NET022",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_PATH,
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
