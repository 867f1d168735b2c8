"""InfiniBand and RoCE ports of a fleet, port by port: their state, rate, address and errors."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping

from allready.judging.majority import Split, is_minority, majority
from allready.judging.node_split import differing
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import listed, on_nodes, seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    GpuFacts,
    Hit,
    PerNode,
    RdmaFacts,
    RdmaPort,
    RemedyStep,
    Severity,
    World,
)

DevicePort = tuple[str, int]
"""Device and port: namesakes on different nodes are taken to do the same duty."""


def by_place(rdma: Mapping[int, RdmaFacts]) -> dict[DevicePort, dict[int, RdmaPort]]:
    """Place -> node -> port."""
    found: dict[DevicePort, dict[int, RdmaPort]] = {}
    for node, facts in rdma.items():
        for port in facts.ports:
            found.setdefault((port.device, port.port), {})[node] = port
    return found


def down_places(rdma: Mapping[int, RdmaFacts]) -> dict[DevicePort, tuple[int, ...]]:
    """Ports that are not ACTIVE on few nodes and ACTIVE on the others: place -> the nodes where they are not.

    Few: one of two nodes, else less than half; more than that is a port that the cluster does not use.
    """
    found: dict[DevicePort, tuple[int, ...]] = {}
    for place, ports in by_place(rdma).items():
        down = tuple(n for n, port in ports.items() if port.state != "ACTIVE")
        if down and (is_minority(len(down), len(ports)) or (len(down) == 1 and len(ports) == 2)):
            found[place] = down
    return found


@Rule(
    code="NET016",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="An InfiniBand or RoCE port is down",
    message="{ports} of node {nodes} is not ACTIVE; the ports of the same name are ACTIVE on {num_active} other nodes",
    remedy=(
        RemedyStep(explanation="check cable, transceiver and switch port", where="node {nodes}", command="{command}"),
        RemedyStep(
            explanation="until it is up, exclude the port", where="every node", command="export NCCL_IB_HCA=^{devices}"
        ),
    ),
)
def rdma_down(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Ports of InfiniBand and RoCE devices that are not ACTIVE on a few nodes and ACTIVE on the others.
    ## Why it matters
    NCCL skips such a port without a warning. The node has less bandwidth than the others and all wait for it; on
    rail-optimized networks the traffic takes a detour or finds no path.
    ## Check by hand
    `ibstat DEVICE PORT` (State, Physical state), `rdma link show`, `ibdev2netdev`.
    ## When it is harmless
    When the port is known to be unused, for example the second port of a card without a cable.
    """
    places = by_place(rdma)
    affected: dict[tuple[int, ...], list[DevicePort]] = {}
    for place, nodes in down_places(rdma).items():
        affected.setdefault(nodes, []).append(place)
    for nodes, found in sorted(affected.items()):
        down = sorted(found)
        yield Hit(
            culprits=Culprits(nodes=nodes),
            values={
                "nodes": on_nodes(world, nodes),
                "ports": listed([f"{device}/{port}" for device, port in down], 4),
                "num_active": min(len(places[p]) - len(nodes) for p in down),
                "command": "; ".join(f"ibstat {shlex.quote(device)} {port}" for device, port in down[:2]),
                "devices": ",".join(f"{device}:{port}" for device, port in down[:8]),
            },
            evidence=tuple(
                stated(
                    f"/sys/class/infiniband/{p.device}/ports/{p.port}",
                    "state {state}, physical state {physical}",
                    node_rank=n,
                    state=p.state,
                    physical=p.physical_state,
                )
                for place in down[:4]
                for n in nodes[:4]
                for p in (places[place][n],)
            ),
        )


@Rule(
    code="NET015",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="Nodes have different InfiniBand or RoCE ports",
    message="active InfiniBand and RoCE ports differ between nodes: {split}",
    remedy=(
        RemedyStep(explanation="compare the ports", where="node {nodes}", command="ibstat || rdma link show"),
        RemedyStep(
            explanation="if a port is missing, check the card and its driver",
            where="node {nodes}",
            command="lspci -d 15b3:; dmesg | grep -i mlx",
        ),
        RemedyStep(
            explanation="in a container, pass the devices in",
            where="node {nodes}",
            command="docker run --device=/dev/infiniband --cap-add=IPC_LOCK",
        ),
    ),
)
def rdma_differs(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Number, kind and rate of the ACTIVE ports of InfiniBand and RoCE devices. Ports that are down on few nodes and up on
    the others are left to NET016.
    ## Why it matters
    NCCL accepts nodes with unequal ports, and every collective runs at the pace of the node with the least. A node
    without any falls back to TCP, far slower, without a warning.
    ## Check by hand
    `ibstat | grep -E "State|Rate"` on two nodes, side by side.
    ## When it is harmless
    When the extra ports are for storage, or NCCL_IB_HCA selects the same ones on all nodes.
    """
    down = down_places(rdma)
    active = {
        n: [p for p in f.ports if p.state == "ACTIVE" and (p.device, p.port) not in down] for n, f in rdma.items()
    }
    kinds = {n: _kinds(Counter((p.link_layer, p.rate_gbit_per_s) for p in ports)) for n, ports in active.items()}
    odd = Split.by(kinds, num_members=world.num_nodes).outliers()
    yield from differing(
        kinds,
        "/sys/class/infiniband",
        num_nodes=world.num_nodes,
        texts={
            n: ", ".join(f"{p.device}/{p.port} {p.state} {p.rate_gbit_per_s}" for p in facts.ports) or "-"
            for n, facts in rdma.items()
        },
        nodes=on_nodes(world, odd or tuple(kinds)),
    )


def _kinds(ports: Counter[tuple[str, float | None]]) -> str:
    """`8 x InfiniBand 400 Gbit/s`, several kinds joined by +; `0` when there is none."""
    parts = (
        f"{count} x {layer}" + (f" {rate:g} Gbit/s" if rate is not None else "")
        for (layer, rate), count in sorted(ports.items(), key=lambda item: (item[0][0], item[0][1] or 0.0))
    )
    return " + ".join(parts) or "0"


VERBS = frozenset({"InfiniBand", "Ethernet"})
"""Link layers of ports that NCCL itself uses; other providers (EFA) come with a plugin and its libraries."""


@Rule(
    code="NET025",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="InfiniBand or RoCE is there, but processes here cannot use it",
    message="node {node}: {ports} is ACTIVE, but {lacking} is missing here: NCCL takes TCP sockets",
    remedy=(
        RemedyStep(
            explanation="install the libraries, also in the image of a container",
            where="node {node}",
            command="apt-get install -y libibverbs1 librdmacm1 ibverbs-providers",
        ),
        RemedyStep(
            explanation="give the container the devices, and memory that may be locked",
            where="node {node}",
            command="docker run --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1",
        ),
    ),
)
def rdma_unusable(rdma: PerNode[RdmaFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Where an InfiniBand or RoCE port is ACTIVE: whether the loader finds libibverbs, and whether /dev/infiniband/uverbs*
    is there. A warning for a node with GPUs in a job of several nodes, else information.
    ## Why it matters
    A container sees the host's ports in /sys also when it cannot use them. NCCL then takes TCP sockets without a
    warning: far slower between nodes; and where only some nodes lack it, they do not connect at all.
    ## Check by hand
    `ldconfig -p | grep libibverbs`; `ls /dev/infiniband`; `ibv_devinfo`.
    ## When it is harmless
    Where the job shall not use these ports, or brings a libibverbs of its own.
    """
    for node, facts in rdma.items():
        active = [f"{p.device}/{p.port}" for p in facts.ports if p.state == "ACTIVE" and p.link_layer in VERBS]
        lacking = [
            name
            for name, has in (("libibverbs.so", facts.has_library), ("/dev/infiniband/uverbs*", facts.has_device_files))
            if has is False
        ]
        known = gpu.get(node)
        if active and lacking and known is not None:
            counts = bool(known.visible) and world.num_nodes > 1
            yield Hit(
                severity=Severity.WARNING if counts else None,
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "ports": listed(active, 3), "lacking": ", ".join(lacking)},
                evidence=(
                    stated(
                        "/sys/class/infiniband",
                        "{ports}; missing: {missing}",
                        node_rank=node,
                        ports=", ".join(active[:8]),
                        missing=", ".join(lacking),
                    ),
                ),
            )


FEWEST = {"symbol_error": 10, "local_link_integrity_errors": 1, "link_downed": 1, "link_error_recovery": 1}
"""Within about half a second.  One wrong bit in 10^12, which InfiniBand allows, gives 0.05 at 100 Gbit/s."""
LONGEST_S = 2.0


@Rule(
    code="NET026",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.MACHINE,
    title="Errors of an InfiniBand link grow",
    message="node {node}: {port} counted {errors} within {watched_s} s: a cable, a transceiver or a port fails",
    remedy=(
        RemedyStep(
            explanation="look at the link's counters and at the state of cable and transceiver",
            where="node {node}",
            command="perfquery -x -C {device} -P {number}; sudo mlxlink -d {device} -m -c",
        ),
        RemedyStep(explanation="reseat or replace the cable, and watch the counters again", where="node {node}"),
    ),
)
def rdma_errors_grow(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The counters of an ACTIVE InfiniBand port, read twice about half a second apart: at least 10 symbol errors, or one
    link that went down, had to be recovered or passed its threshold of local errors meanwhile. Counters that are high
    but no longer grow do not count, nor do those of lost or repeated packets, which also a full network causes.
    ## Why it matters
    Packets are sent again, and all ranks wait for the slowest link; a link that goes down ends the job with an error
    of completion.
    ## Check by hand
    `grep . /sys/class/infiniband/*/ports/*/counters/symbol_error`, twice.
    ## When it is harmless
    While this cable is plugged or the switch restarts.
    """
    for node, facts in rdma.items():
        for port in facts.ports:
            grown = _grown(port)
            if grown and facts.watched_s is not None and facts.watched_s <= LONGEST_S:
                errors = ", ".join(f"{name} +{count}" for name, count in grown.items())
                name = f"{port.device}/{port.port}"
                yield Hit(
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "port": name,
                        "device": port.device,
                        "number": port.port,
                        "errors": errors,
                        "watched_s": round(facts.watched_s, 1),
                    },
                    evidence=seen(f"/sys/class/infiniband {name}", {node: errors}),
                )


def _grown(port: RdmaPort) -> dict[str, int]:
    if port.state != "ACTIVE" or port.link_layer != "InfiniBand":
        return {}
    return {name: port.growth[name] for name, fewest in FEWEST.items() if port.growth.get(name, 0) >= fewest}


@Rule(
    code="NET021",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="An InfiniBand port has a link, and no subnet manager made it active",
    message="node {node}: {ports}: the cable has a link, and the state stays {state}: no subnet manager has set it up",
    remedy=(
        RemedyStep(
            explanation="see whether a subnet manager answers",
            where="node {node}",
            command="sminfo -C {device} -P {port}",
        ),
        RemedyStep(
            explanation="start one: on the switch, in UFM, or opensm on one node",
            where="one node",
            command="sudo systemctl start opensm",
        ),
    ),
)
def no_subnet_manager(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Ports with link layer InfiniBand whose physical state is LinkUp and whose state is INIT or ARMED.
    ## Why it matters
    NCCL uses ACTIVE ports only and passes over the others without a warning: the job runs over TCP, far slower,
    or one node has a rail less than the others.
    ## Check by hand
    `ibstat`: "State: Initializing" beside "Physical state: LinkUp".
    ## When it is harmless
    For some seconds after a link comes up. A port without a cable (DOWN, Polling) is no finding.
    """
    for node, facts in rdma.items():
        waiting = [
            p
            for p in facts.ports
            if p.link_layer == "InfiniBand" and p.physical_state == "LinkUp" and p.state in {"INIT", "ARMED"}
        ]
        if waiting:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "ports": listed([f"{p.device}/{p.port}" for p in waiting], 4),
                    "state": ", ".join(dict.fromkeys(p.state for p in waiting)),
                    "device": waiting[0].device,
                    "port": waiting[0].port,
                },
                evidence=seen(
                    "/sys/class/infiniband",
                    {node: "; ".join(f"{p.device}/{p.port} {p.state} {p.physical_state}" for p in waiting[:8])},
                ),
            )


VERSION_2 = "RoCE v2"
LINK_LOCAL = "fe80:"


@Rule(
    code="NET030",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="A RoCE port has no address that leads to other machines",
    message="node {node}: {ports} is ACTIVE, and its GID table has link-local entries of RoCE v2 only[[: {interface} "
    "has no IP address]]",
    remedy=(
        RemedyStep(
            explanation="give the interface an address of the network of the other nodes",
            where="node {node}",
            command="ip -br address show {interface}; show_gids {device}",
        ),
        RemedyStep(
            explanation="or leave the port out where it is not meant for the job",
            where="every node",
            command="export NCCL_IB_HCA=^{names}",
        ),
    ),
)
def roce_without_address(rdma: PerNode[RdmaFacts], gpu: PerNode[GpuFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The GID table of each RoCE port that is ACTIVE: whether one of its entries of RoCE v2 belongs to an IPv4 address or
    to an IPv6 address that is not link-local. A warning for a node with GPUs in a job of several nodes that has no
    other RoCE or InfiniBand port to use, else information.
    ## Why it matters
    NCCL passes over link-local entries and falls back to entry 0, RoCE v1: connections then end with "Got completion
    with error 12", or ibv_modify_qp fails, on the first transfer between nodes.
    ## Check by hand
    `show_gids`, or `grep . /sys/class/infiniband/*/ports/1/gids/*` beside `gid_attrs/types`; `ip -br address`.
    ## When it is harmless
    For a port that only storage uses, or no job; and for tests between two machines with one cable.
    """
    for node, facts in rdma.items():
        bare = [port for port in facts.ports if _is_bare(port)]
        known = gpu.get(node)
        if not bare or known is None:
            continue
        names = [f"{port.device}:{port.port}" for port in bare]
        others = [p for p in facts.ports if p.state == "ACTIVE" and p.link_layer in {"InfiniBand", "Ethernet"}]
        is_alone = len(others) == len(bare)
        yield Hit(
            severity=Severity.WARNING if is_alone and known.visible and world.num_nodes > 1 else None,
            culprits=Culprits(nodes=(node,)),
            values={
                "node": world.label(node),
                "ports": listed([f"{port.device}/{port.port}" for port in bare], 4),
                "interface": bare[0].netdev or None,
                "device": bare[0].device,
                "names": ",".join(names[:8]),
            },
            evidence=seen(
                "/sys/class/infiniband",
                {node: "; ".join(f"{p.device}/{p.port}: {', '.join(p.gids[:4])}" for p in bare)},
            ),
        )


def _is_bare(port: RdmaPort) -> bool:
    """Whether a RoCE port that is up has entries of version 2, none of which leads beyond its link."""
    found = [gid for kind, gid in port.gid_types.values() if kind == VERSION_2]
    is_roce = port.link_layer == "Ethernet" and port.state == "ACTIVE"
    return is_roce and bool(found) and all(gid.lower().startswith(LINK_LOCAL) for gid in found)


FEW_LANES = 1
SHARE = 0.25


@Rule(
    code="NET031",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.MACHINE,
    title="An InfiniBand port runs far below the others of its machine",
    message="node {node}: {port} runs at {rate} Gbit/s[[ over {lanes} lanes]]; {count} other ports of this machine "
    "run at {usual} Gbit/s[[ over {usual_lanes}]]",
    remedy=(
        RemedyStep(
            explanation="look at what the link has negotiated, and at cable and transceiver",
            where="node {node}",
            command="ibstat {device} {number}; sudo mlxlink -d {device} -m",
        ),
        RemedyStep(explanation="reseat or replace the cable; on the switch look at the width of this port"),
    ),
)
def rdma_port_slow(rdma: PerNode[RdmaFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Rate and lanes of each ACTIVE InfiniBand port against the rate that most of this machine's ports have: a port with a
    quarter of it or less. With one lane it is a warning: no cable is made for one; else information.
    ## Why it matters
    A link whose lanes failed stays up with those that are left. NCCL takes it like the others, and the ring is as fast
    as its slowest link.
    ## Check by hand
    `grep . /sys/class/infiniband/*/ports/*/rate`; `ibstat`.
    ## When it is harmless
    For an adapter of another kind, for storage or management: then with all of its lanes.
    """
    for node, facts in rdma.items():
        active = [p for p in facts.ports if p.state == "ACTIVE" and p.link_layer == "InfiniBand" and p.rate_gbit_per_s]
        most = majority({at: (p.rate_gbit_per_s, p.num_lanes) for at, p in enumerate(active)})
        if most is not None and len(most.members) > 1:
            (usual, usual_lanes), count = most.value, len(most.members)
            for port in active:
                if _is_slow(port, usual or 0.0):
                    yield Hit(
                        severity=None if port.num_lanes == FEW_LANES else Severity.INFO,
                        confidence=Confidence.LIKELY if port.num_lanes == FEW_LANES else Confidence.POSSIBLE,
                        culprits=Culprits(nodes=(node,)),
                        values={
                            "node": world.label(node),
                            "port": f"{port.device}/{port.port}",
                            "device": port.device,
                            "number": port.port,
                            "rate": f"{port.rate_gbit_per_s:g}",
                            "lanes": port.num_lanes or None,
                            "count": count,
                            "usual": f"{usual:g}",
                            "usual_lanes": usual_lanes or None,
                        },
                        evidence=seen("/sys/class/infiniband", {node: "; ".join(map(_shown, active[:16]))}),
                    )


def _is_slow(port: RdmaPort, usual: float) -> bool:
    return port.rate_gbit_per_s is not None and port.rate_gbit_per_s <= SHARE * usual


def _shown(port: RdmaPort) -> str:
    return f"{port.device}/{port.port} {port.rate_gbit_per_s:g} Gbit/s, {port.num_lanes} lanes"
