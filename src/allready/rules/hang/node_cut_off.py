from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stated import stated
from allready.judging.waits import positions
from allready.model import Confidence, Culprits, FaultClass, Hit, Recorder, RemedyStep, Severity, ranges
from allready.rules.hang._hits import blamed, hit_of


@Rule(
    code="HNG003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.LINK,
    applies=Applies.OFFLINE,
    title="A whole node became unreachable",
    message="every rank of node {nodes} ({who}) became unreachable during {operation}; {waiting} waited[[ {waited} s]] "
    "for {who:it/them}; no process is known to have ended",
    remedy=(
        RemedyStep(
            explanation="look at the network of node {nodes} and at its switch port, then check the paths between the"
            " nodes before the next start",
            command="allready check",
            where="every node",
        ),
        RemedyStep(shared="link_errors"),
        RemedyStep(shared="link_log"),
    ),
)
def node_cut_off(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    All ranks of one node, and only these, do not answer RAS or left no dump, while the ranks of other nodes did, no
    process exited, and all that is known of them shows that they had entered the same operation.
    ## Why it matters
    A cable, a port, a switch or a firewall between: TCP is silent about it for a quarter of an hour, RDMA for half a
    minute.
    ## Check by hand
    From another node: `ping NODE`, `ip neigh`, the counters of the switch port; on the node: `ip -s link`, `dmesg -T`.
    ## When it is harmless
    When that node's files were simply not collected.
    """
    found = blamed(case, HangKind.CUT_OFF)
    if found is None:
        return
    blame, snapshot, _ = found
    absent = [
        stated(str(p.origin or p.source), "{record}: rank {rank}: {why}", record=p.source, rank=r, why=why)
        for p in case.run.progress
        for r, why in p.absent.items()
        if r in blame.ranks and p.source in {Recorder.RAS, Recorder.FLIGHT}
    ]
    yield hit_of(
        case,
        blame,
        culprits=Culprits(nodes=blame.nodes),
        values={"nodes": ranges(blame.nodes)},
        confidence=Confidence.LIKELY,
        evidence=(*absent[:6], *positions(snapshot, blame.ranks))[:10],
    )
