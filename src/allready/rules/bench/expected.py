"""What was measured beside what the hardware promises."""

from collections.abc import Iterator, Mapping

from allready.judging.expectation import Expectation, Grade, Hardware, LinkSpec, compare, link_of, link_of_gpu, promised
from allready.judging.hardware import hardware_of, words_of
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    EnvFacts,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    NetFacts,
    PerNode,
    Phrase,
    RdmaFacts,
    RemedyStep,
    Severity,
    TransportFacts,
    World,
)
from allready.units import MIB, size

SWITCHES = {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
"""Variables that take a transport away, and the value that does."""
SEVERITY = {Grade.GOOD: Severity.INFO, Grade.FAIR: Severity.WARNING, Grade.POOR: Severity.ERROR}


@Rule(
    code="BEN001",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="Bandwidth compared with what this hardware should reach",
    message="all_reduce of {size} on {gpus} x {gpu}, {nodes} nodes: busbw {busbw} GB/s is {percent} % of the "
    "{expected} GB/s that healthy machines reach at {expected_size}[[ (switched off: {off})]][[ (link: {link})]]",
    remedy=(
        RemedyStep(explanation="unset what takes a transport away, where it is set", command="unset {name}",
                   each="blamed"),
        RemedyStep(explanation="below 90 %: check the links between the GPUs", command="nvidia-smi nvlink -s"),
        RemedyStep(explanation="let NCCL log its paths and algorithms", command="export NCCL_DEBUG=INFO "
        "NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING"),
        RemedyStep(explanation="find the slow node, link or GPU", command="allready bench pairs"),
    ),
)  # fmt: skip
def busbw_expected(
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
    The bus bandwidth of the largest all_reduce that has a published value for the same GPUs, nodes and algorithm,
    beside the lowest of these values (sources differ with NCCL's version).  From 90 % on it is information, from 75 %
    on a warning, below an error.  Where nothing is published there is no verdict.  What the vendor promises for the
    link and the line at 80 % of it are shown and decide nothing: healthy A100 and B200 machines are below the line, and
    with NVLink SHARP an H100 is above the link itself.
    ## Why it matters
    A job that waits for all_reduce is slower by the same share, on every step, and reports no error.
    ## Check by hand
    `all_reduce_perf -b 1G -e 16G -f 2 -g 8` of nccl-tests, and the source that the evidence names.
    ## When it is harmless
    Where other jobs share the network, or the machine is a part of a node (MIG, other GPUs in use).
    """
    run = collectives.first
    if run is None or run.backend != "nccl" or all(p.spread is None for p in run.points):
        return
    hardware = hardware_of(run, world, gpu, env=env, rdma=rdma, net=net, transport=transport)
    found = compare(run.points, hardware) if hardware is not None else None
    if hardware is not None and found is not None:
        variables = next(iter(env.values())).variables if env else {}
        yield _hit(found, hardware, switched_off(variables), words_of(hardware, gpu))


def switched_off(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that take one of NCCL's transports away here."""
    return tuple(name for name, off in SWITCHES.items() if variables.get(name) == off)


def link_words(link: LinkSpec, busbw: float) -> Phrase:
    """A link, what is promised for it, and on which side of the 80 % line a bandwidth is."""
    share, is_above = promised(link, busbw)
    form = "{name} {speed} GB/s, {share} of it, " + ("above" if is_above else "below") + " the 80 % line"
    return said(form, name=link.name, speed=f"{link.advertised:g}", share=f"{share:.0%}")


def _hit(found: Expectation, hardware: Hardware, off: tuple[str, ...], words: str) -> Hit:
    link, busbw, has_choice = found.link, found.point.busbw_gb_per_s, bool(found.point.algorithm)
    is_without_nvls = hardware.algorithm == "ring"  # the published value as well: that NVLS is off takes nothing away
    blamed = tuple(name for name in off if not (name == "NCCL_NVLS_ENABLE" and is_without_nvls))
    blamed = () if found.grade is Grade.GOOD else blamed
    return Hit(
        severity=SEVERITY[found.grade],
        confidence=Confidence.LIKELY,
        culprits=Culprits(variables=blamed),
        values={
            "blamed": [{"name": name} for name in blamed],
            "size": size(found.point.size_bytes),
            "gpus": hardware.gpus,
            "gpu": hardware.gpu,
            "nodes": hardware.nodes,
            "busbw": f"{busbw:.1f}",
            "percent": f"{100 * found.share:.0f}",
            "expected": f"{found.value.busbw:g}",
            "expected_size": size(found.value.size_bytes),
            "off": ", ".join(off) or None,
            "link": link_words(link, busbw) if link is not None else None,
        },
        evidence=(
            Evidence(source=found.source, text=f"{found.value.kind}: {found.value.busbw:g} GB/s"),
            Evidence(source="hardware", text=words),
            *([Evidence(source="NCCL", text=f"{found.point.algorithm} {found.point.protocol}")] * has_choice),
        ),
    )


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
    run = collectives.first
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
    "the {advertised} GB/s of one GPU[[ (links up: {up})]][[ (switched off: {off})]]",
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
    Every collective takes far longer, and no error says so.
    ## Check by hand
    `NCCL_DEBUG=INFO` and `grep "via P2P" ` in the output; `nvidia-smi topo -m`.
    ## When it is harmless
    While something else uses the GPUs, or where P2P is off on purpose.
    """
    run = collectives.first
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
            "up": ", ".join(up) or None,
            "off": ", ".join(off) or None,
        },
        evidence=(
            Evidence(source="NVML", text=f"{len(used)} x {used[0].name}"),
            *([Evidence(source="NCCL", text=f"{best.algorithm} {best.protocol}")] if best.algorithm else []),
        ),
    )
