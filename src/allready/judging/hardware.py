"""What a benchmark ran on, by what the nodes reported of themselves: GPUs, what links them, the network between
nodes."""

from collections.abc import Iterable, Mapping
from math import comb

from allready.judging.expectation import Hardware, LinkSpec, algorithm_of, link_of_gpu, network_spec, pcie_spec
from allready.model import (
    CollectiveRun,
    EnvFacts,
    Gpu,
    GpuFacts,
    NetFacts,
    P2pStatus,
    RdmaFacts,
    RdmaPort,
    TransportFacts,
    World,
)


def hardware_of(
    run: CollectiveRun,
    world: World,
    gpu: Mapping[int, GpuFacts],
    *,
    env: Mapping[int, EnvFacts] | None = None,
    rdma: Mapping[int, RdmaFacts] | None = None,
    net: Mapping[int, NetFacts] | None = None,
    transport: Mapping[int, TransportFacts] | None = None,
) -> Hardware | None:
    """One kind of GPU, one on each rank; None where that is not so."""
    names = {g.name for facts in gpu.values() for g in used(facts)}
    if len(names) != 1 or any(len(n.ranks) > len(gpu[n.node_rank].visible) for n in world.nodes if n.node_rank in gpu):
        return None
    variables = next(iter(env.values())).variables if env else {}
    [name] = names
    if world.num_nodes == 1:
        link = _within(next(iter(gpu.values())))
    else:
        link = _between(gpu, rdma or {}, net or {}, transport or {})
    return Hardware(gpu=name, gpus=len(run.ranks), nodes=world.num_nodes, algorithm=algorithm_of(variables), link=link)


def used(facts: GpuFacts) -> list[Gpu]:
    """The GPUs of a node that the job may use."""
    return [g for g in facts.gpus if g.index in facts.visible]


def words_of(hardware: Hardware, gpu: Mapping[int, GpuFacts]) -> str:
    """In the names that vendors use: 8 x NVIDIA H200, NVLink 4 (18 of 18 up), ring, 1 x 8."""
    gpus = [g for facts in gpu.values() for g in used(facts)]
    parts = [f"{hardware.gpus} x {hardware.gpu}"]
    if hardware.link is not None:
        parts.append(f"{hardware.link.name} {hardware.link.advertised:g} GB/s")
    if counts := [(sum(g.nvlinks), len(g.nvlinks)) for g in gpus if g.nvlinks]:
        up, all_ = min(counts)
        parts.append(f"NVLink {up}/{all_} up")
    if pcie := {(g.max_pcie_generation, g.pcie_width) for g in gpus if g.max_pcie_generation and g.pcie_width}:
        parts.append(", ".join(f"PCIe {generation} x{width}" for generation, width in sorted(pcie)))
    if hardware.algorithm:
        parts.append(hardware.algorithm)
    return ", ".join(parts)


def _within(facts: GpuFacts) -> LinkSpec | None:
    """Between the GPUs of a node: NVLink among all of them, else PCIe, at the rate of the slowest."""
    gpus = used(facts)
    nvlink = {link for g in gpus if (link := link_of_gpu(g.name)) is not None}
    if nvlink or any(any(g.nvlinks) for g in gpus):  # or a bridge between some of them
        return nvlink.pop() if len(nvlink) == 1 else None
    rates = [(g.max_pcie_generation or 0, g.pcie_width or 0) for g in gpus]
    visible = set(facts.visible)
    pairs = [p for p in facts.pairs if {p.a, p.b} <= visible]
    has_p2p = len(pairs) == comb(len(gpus), 2) and all(p.p2p is P2pStatus.OK for p in pairs)
    return pcie_spec(*min(rates), has_p2p=has_p2p) if rates else None


def _between(
    gpu: Mapping[int, GpuFacts],
    rdma: Mapping[int, RdmaFacts],
    net: Mapping[int, NetFacts],
    transport: Mapping[int, TransportFacts],
) -> LinkSpec | None:
    """Between the nodes, of one node; None where they differ, or do not tell."""
    found = {_network(rdma.get(n), net.get(n), transport.get(n)) for n in gpu}
    return found.pop() if len(found) == 1 else None


def _network(rdma: RdmaFacts | None, net: NetFacts | None, transport: TransportFacts | None) -> LinkSpec | None:
    ports = [p for p in rdma.ports if p.state == "ACTIVE" and p.rate_gbit_per_s] if rdma is not None else []
    if ports:
        return network_spec([p.rate_gbit_per_s or 0.0 for p in ports], _kind(ports))
    if net is None or transport is None:
        return None
    chosen = [i for name in transport.nccl.interfaces if (i := net.interface(name)) is not None]
    speeds = [(i.speed_mbit_per_s or 0) / 1000 for i in chosen]
    return network_spec(speeds, "TCP") if speeds and all(speeds) else None


def _kind(ports: Iterable[RdmaPort]) -> str:
    return "EFA" if any(p.provider == "efa" for p in ports) else "RDMA"
