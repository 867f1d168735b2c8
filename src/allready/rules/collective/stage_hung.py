from collections.abc import Iterator

from allready.judging.majority import is_minority
from allready.judging.rank_traffic import carries_data
from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Blame, Kind, blame_first_run
from allready.judging.stated import said
from allready.model import Collectives, Confidence, Culprits, FaultClass, Hit, Phrase, Severity, StageResult, World
from allready.rules.collective._hits import error_of, hit_of


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
    found = blame_first_run(collectives, Kind.HUNG)
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
