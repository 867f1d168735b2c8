"""BEN010."""

from collections.abc import Iterator

from allready.judging.expectation import link_of_gpu
from allready.judging.registry import Layer, Rule
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    EnvFacts,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    PerNode,
    RemedyStep,
    Severity,
    World,
)
from allready.rules.bench.busbw_expected import switched_off
from allready.units import MIB, size

MIN_BYTES = 64 * MIB
LOST = 0.25
"""Of what the vendor promises for NVLink.  From 64 MiB on healthy machines reach 40 % and more (busbw.toml); PCIe of
the same generation and host memory stay below 15 %."""


@Rule(
    code="BEN010",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    since="0.1",
    layer=Layer.PACE,
    explains=("BEN001",),
    title="The collectives do not use NVLink",
    message="{name} of the GPUs of node {node} is not used: {operation} of {size} reaches {busbw} GB/s, {percent} % of "
    "the {advertised} GB/s of one GPU (links up: {up}; switched off: {off})",
    remedy=(
        RemedyStep(
            explanation="unset what switches P2P off, where it is set",
            where="node {node}",
            command="unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL",
        ),
        RemedyStep(
            explanation="else see which links are up, and whether the driver offers peer access",
            where="node {node}",
            command="nvidia-smi nvlink -s; nvidia-smi topo -p2p r",
        ),
        RemedyStep(
            explanation="measure without each transport: P2P must make a difference", command="allready bench --isolate"
        ),
    ),
)
def nvlink_not_used(
    collectives: Collectives, gpu: PerNode[GpuFacts], world: World, env: PerNode[EnvFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    The fastest collective of 64 MiB and more on one node whose GPUs are of a kind with NVLink among all of them.  Below
    a quarter of what NVLink carries the data go over PCIe or through host memory.  Needs no published value for this
    number of GPUs.
    ## Why it matters
    Every collective takes five to twenty times as long, and no error says so.
    ## Check by hand
    `NCCL_DEBUG=INFO` and `grep "via P2P" ` in the output; `nvidia-smi topo -m`.
    ## When it is harmless
    While something else uses the GPUs, or where P2P is off on purpose.
    """
    run = collectives.runs[0] if collectives.runs else None
    if run is None or run.backend != "nccl" or world.num_nodes != 1 or len(run.ranks) < 2:
        return
    node, facts = next(iter(gpu.items()), (0, GpuFacts(gpus=())))
    if len(run.ranks) > len(facts.visible):
        return
    used = [g for g in facts.gpus if g.index in facts.visible]
    links = {link for g in used if (link := link_of_gpu(g.name)) is not None}
    points = [p for p in run.points if p.spread is not None and p.size_bytes >= MIN_BYTES]
    best = max(points, key=lambda p: p.busbw_gb_per_s, default=None)
    if len(links) != 1 or best is None:
        return
    [link] = links
    if not link.is_nvlink or best.busbw_gb_per_s >= LOST * link.advertised:
        return
    variables = env[node].variables if env and node in env else {}
    off = tuple(name for name in switched_off(variables) if name == "NCCL_P2P_DISABLE")  # the others leave NVLink
    up = [f"GPU {g.index}: {sum(g.nvlinks)} of {len(g.nvlinks)}" for g in used if g.nvlinks]
    yield Hit(
        confidence=Confidence.LIKELY,
        culprits=Culprits(nodes=(node,), variables=off),
        values={
            "name": link.name,
            "node": world.label(node),
            "operation": best.operation,
            "size": size(best.size_bytes),
            "busbw": f"{best.busbw_gb_per_s:.1f}",
            "percent": f"{100 * best.busbw_gb_per_s / link.advertised:.0f}",
            "advertised": f"{link.advertised:g}",
            "up": ", ".join(up) or "-",
            "off": ", ".join(off) or "-",
        },
        evidence=(
            Evidence(source="NVML", text=f"{len(used)} x {used[0].name}"),
            *([Evidence(source="NCCL", text=f"{best.algorithm} {best.protocol}")] if best.algorithm else []),
        ),
    )
