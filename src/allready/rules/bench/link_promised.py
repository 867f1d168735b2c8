"""BEN011."""

from collections.abc import Iterator

from allready.judging.expectation import compare, link_of
from allready.judging.hardware import hardware_of, words_of
from allready.judging.registry import Layer, Rule
from allready.model import (
    Collectives,
    Confidence,
    EnvFacts,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    NetFacts,
    PerNode,
    RdmaFacts,
    RemedyStep,
    Severity,
    TransportFacts,
    World,
)
from allready.rules.bench.busbw_expected import link_words
from allready.units import size


@Rule(
    code="BEN011",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_COMM,
    since="0.1",
    layer=Layer.PACE,
    title="Bandwidth beside what the link promises",
    message="all_reduce of {size} on {gpus} x {gpu}, {nodes} nodes: busbw {busbw} GB/s (link: {link}); no "
    "value is published for such a machine, so this is no verdict",
    remedy=(
        RemedyStep(
            explanation="compare with a run of your own that was good", command="allready bench --compare good.json"
        ),
    ),
)
def link_promised(
    collectives: Collectives,
    gpu: PerNode[GpuFacts],
    world: World,
    env: PerNode[EnvFacts] | None = None,
    rdma: PerNode[RdmaFacts] | None = None,
    net: PerNode[NetFacts] | None = None,
    transport: PerNode[TransportFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    The fastest all_reduce of a benchmark beside what the vendor promises for the link that limits it, where no
    published value fits (BEN001): NVLink or PCIe between the GPUs of one node, the network cards of a node between
    several.  The line at 80 % of it is the one that many guides draw.  It is shown and decides nothing.
    ## Why it matters
    Healthy machines are on both sides of that line, so it says less than a run of the same machine that was good. Of
    a number far below it the paths are worth reading.
    ## Check by hand
    `nvidia-smi topo -m`, `nvidia-smi --query-gpu=pcie.link.gen.max,pcie.link.width.max --format=csv`, `ibstat`.
    ## When it is harmless
    Always: it is information.
    """
    run = collectives.runs[0] if collectives.runs else None
    if run is None or run.backend != "nccl" or len(run.ranks) < 2:
        return
    hardware = hardware_of(run, world, gpu, env=env, rdma=rdma, net=net, transport=transport)
    points = [p for p in run.points if p.spread is not None and p.operation == "all_reduce"]
    best = max(points, key=lambda p: p.busbw_gb_per_s, default=None)
    if hardware is None or best is None or compare(run.points, hardware) is not None:
        return
    link = link_of(hardware)
    if link is None:
        return
    yield Hit(
        confidence=Confidence.POSSIBLE,
        values={
            "size": size(best.size_bytes),
            "gpus": hardware.gpus,
            "gpu": hardware.gpu,
            "nodes": hardware.nodes,
            "busbw": f"{best.busbw_gb_per_s:.1f}",
            "link": link_words(link, best.busbw_gb_per_s),
        },
        evidence=(Evidence(source="hardware", text=words_of(hardware, gpu)),),
    )
