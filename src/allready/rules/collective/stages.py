"""Stages that no single rank stopped: no data, slow data, wrong results."""

from collections.abc import Iterator

from allready import model
from allready.judging.majority import is_minority
from allready.judging.rank_traffic import carries_data, moving
from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Blame, StopKind, blame_first_run
from allready.judging.stated import said, stated
from allready.judging.values import rank_labels, stage_label
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Phrase,
    RemedyStep,
    Severity,
    StageResult,
    World,
)
from allready.rules.collective._hits import error_of, evidence, hit_of
from allready.units import bandwidth_with_unit, size


@Rule(
    code="COL009",
    severity=Severity.ERROR,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.TRANSPORT,
    title="All ranks entered the collective, but it makes no progress",
    message="stage {stage}: all {num_ranks} ranks entered and none is at fault by itself, but no data arrives "
    "({backend}, {num_nodes} nodes; {how})",
    remedy="find what matters: the same command with --isolate (P2P, SHM and IB off in turn) and with --grow (1, 2, 4, "
    "… ranks); with --backend gloo it says whether plain TCP carries the data; NCCL_DEBUG=INFO shows the transport of "
    "every connection",
)
def stage_hung(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a stage stopped although every rank entered it, none died, failed by itself or was stopped: then the ranks
    have done their part, and what lies between them has not.  Only on the way to the store, which every rank goes by
    itself, are the few that got stuck named.
    Between nodes that is the network (a port filter, a black hole for large packets, a wrong interface), and the
    findings about paths, names and MTU say which; inside one node it is a GPU, PCIe peer-to-peer or NVLink.
    ## Why it matters
    This is where a job is silent until the time-out, 600 s with NCCL and 1800 s with Gloo, with the same words as for a
    rank that never came.
    ## Check by hand
    `ss -tinp | grep -A1 python` on both sides: bytes in Send-Q with growing retransmissions are lost on the way.
    `NCCL_P2P_DISABLE=1` on one node: if that helps, look for ACS or the IOMMU (`lspci -vvv | grep ACSCtl`).
    ## When it is harmless
    When the machine is so loaded that the deadline was too short: look at the CPU time of the ranks in the evidence.
    """
    found = blame_first_run(collectives, StopKind.HUNG)
    if found is None or (found.run.traffic is not None and carries_data(found.run.traffic)):
        return  # slow, and not hung: COL014
    nodes = {world.node_of(r) for r in found.run.ranks} - {None}
    between_nodes = len(nodes) > 1
    on_gpus = found.run.backend == "nccl" and not between_nodes
    stated = [error_of(s, 300) for s in found.states if s.error]
    in_store = found.stage.name == "store"
    yield hit_of(
        found,
        world,
        fault_class=FaultClass.START_PATH if in_store else FaultClass.HW_HANG if on_gpus else None,
        confidence=Confidence.LIKELY if between_nodes else Confidence.POSSIBLE,
        culprits=_cut_off(found, world) if in_store else Culprits(),
        num_ranks=len(found.run.ranks),
        how=stated[0] if stated else _how_long(found.stage),
        backend=found.run.backend,
        num_nodes=max(1, len(nodes)),
    )


def _how_long(stage: StageResult) -> Phrase:
    """`hung, 20 s`: for how long nothing moved, at most until the deadline."""
    still_s = stage.deadline_s if stage.stuck_s is None else min(stage.stuck_s, stage.deadline_s)
    return said("{outcome}, {seconds} s", outcome=stage.outcome, seconds=f"{still_s:.0f}")


def _cut_off(found: Blame, world: World) -> Culprits:
    """Towards the store every rank goes its own way, so those that got stuck are distinguished from those that did
    not."""
    stuck = set(found.run.ranks) - set(found.stage.finished)
    home = world.node_of(0)
    nodes = sorted({n for n in map(world.node_of, stuck) if n is not None and n != home})
    if home is None or not is_minority(len(stuck), len(found.run.ranks)) or not nodes:
        return Culprits()
    return Culprits(ranks=tuple(sorted(stuck)), nodes=tuple(nodes), links=tuple((n, home) for n in nodes))


@Rule(
    code="COL014",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="A stage does not end in time because data between the nodes moves slowly",
    message="stage {stage}: all {num_ranks} ranks entered, and data moves between the nodes, but only at {rate} on the "
    "path that carries most ({link}); it did not end within {seconds} s",
    remedy=(
        RemedyStep(
            explanation="measure the path, and look for errors, rate limits and other traffic",
            where="both nodes",
            command="ip -s link; tc -s qdisc show; nstat -az TcpRetransSegs",
        ),
        RemedyStep(
            explanation="where the network is known to be slow, give the stages more time",
            where="every node",
            command="allready check --stage-timeout 300",
        ),
    ),
)
def stage_slow(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Where a stage did not end although every rank entered it: whether the kernels of the nodes saw data of the ranks
    acknowledged between their two newest looks at the connections, a second apart. If one link is slower than the
    others, SLW007 names it.
    ## Why it matters
    A slow network is not a hang: the job would go on, far too slowly, and no rank is at fault.
    ## Check by hand
    `ss -tin` on the nodes, twice: `bytes_acked` grows; `sar -n DEV 1 3` shows the rate of each interface.
    ## When it is harmless
    When the network is slow by design (two sites) and the job tolerates it.
    """
    found = blame_first_run(collectives, StopKind.HUNG)
    live = found.run.traffic if found is not None else None
    if found is None or live is None or not carries_data(live):
        return
    rates = moving(live)
    (a, b), most = max(rates.items(), key=lambda item: item[1])
    yield hit_of(
        found,
        world,
        confidence=Confidence.LIKELY,
        culprits=Culprits(),
        num_ranks=len(found.run.ranks),
        rate=bandwidth_with_unit(most / 1e9),
        link=f"{world.label(a)} -> {world.label(b)}",
        seconds=f"{found.stage.stuck_s if found.stage.stuck_s is not None else found.stage.deadline_s:.0f}",
        evidence=tuple(
            stated(
                "sockets of the ranks",
                "node {a} -> node {b}: {rate}",
                node_rank=a,
                a=a,
                b=b,
                rate=bandwidth_with_unit(r / 1e9),
            )
            for (a, b), r in sorted(rates.items())[:16]
        ),
    )


@Rule(
    code="COL010",
    severity=model.Severity.ERROR,
    fault_class=model.FaultClass.HW_HANG,
    layer=Layer.STAGE,
    title="A collective gave a wrong result",
    message="[[rank {ranks} {ranks:has/have} a wrong result|results are wrong]] in stage {stage}[[ at {sizes}]], and "
    "no error was reported",
    remedy=(
        model.RemedyStep(
            explanation="repeat it; if it comes back, the same command with --isolate says whether P2P, SHM or IB "
            "matters; compare NCCL versions and NCCL_* variables between the ranks"
        ),
        model.RemedyStep(shared="gpu_ecc"),
        model.RemedyStep(shared="xids"),
    ),
)
def result_wrong(collectives: model.Collectives, world: model.World) -> Iterator[model.Hit]:
    """
    ## What it checks
    Every collective of the stages has a result that can be computed beforehand; shapes, types and order are the same on
    all ranks because one program sets them.  A difference means that data were changed on the way or in a device.
    With NCCL it is classed as a device fault (HW-HANG: GPU memory, NVLink, PCIe peer-to-peer behind an IOMMU are what
    corrupts silently; sockets and InfiniBand carry checksums), with Gloo on several nodes as NET-BROKEN (a network card
    that computes checksums wrongly).  Ranks are named only if most others had right results.
    ## Why it matters
    Training goes on with wrong gradients; the loss shows it days later, or never.
    ## Check by hand
    Run the same size twice: `allready check --min-bytes N --max-bytes N`; bad memory fails at random, a bad setting
    always.
    ## When it is harmless
    Never.
    """
    for run in collectives.runs[:1]:
        stage = next((s for s in run.stages if s.outcome == "wrong"), None)
        points = tuple(p for p in run.points if p.num_errors > 0)
        if stage is None and not points:
            continue
        states = _minority(stage, run)
        several_nodes = len({world.node_of(r) for r in run.ranks}) > 1
        by_network = run.backend != "nccl" and several_nodes
        yield model.Hit(
            fault_class=model.FaultClass.NET_BROKEN if by_network else None,
            confidence=model.Confidence.LIKELY if states else model.Confidence.POSSIBLE,
            culprits=model.Culprits(
                ranks=tuple(s.rank for s in states), nodes=tuple(sorted({s.node_rank for s in states}))
            ),
            values={
                "stage": stage_label(stage) if stage else "sweep",
                "sizes": _sizes(stage, points),
                "ranks": rank_labels(world, states) or None,
            },
            evidence=_evidence(stage, points),
        )


def _minority(stage: model.StageResult | None, run: model.CollectiveRun) -> tuple[model.RankState, ...]:
    states = tuple(s for s in stage.ranks if not stage.culprits or s.rank in stage.culprits) if stage else ()
    return states if is_minority(len(states), len(run.ranks)) else ()


def _sizes(stage: model.StageResult | None, points: tuple[model.BenchPoint, ...]) -> str | None:
    sizes = [p.size_bytes for p in points]
    if stage is not None and stage.size_bytes is not None:
        sizes.append(stage.size_bytes)
    return ", ".join(size(s) for s in sorted(set(sizes))[:8]) or None


def _evidence(stage: model.StageResult | None, points: tuple[model.BenchPoint, ...]) -> tuple[model.Evidence, ...]:
    counts = tuple(
        stated(
            "sweep",
            "{size}: {wrong} wrong in {all} iterations",
            size=size(p.size_bytes),
            wrong=p.num_errors,
            all=p.num_iterations,
        )
        for p in points[:16]
    )
    return (evidence(stage, stage.ranks) if stage else ()) + counts
