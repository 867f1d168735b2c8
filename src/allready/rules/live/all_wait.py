from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangBlame, HangKind, blame_hang
from allready.judging.live_status import a_gpu_computes, named
from allready.judging.registry import Layer, Rule
from allready.judging.signs import Sign
from allready.model import Confidence, FaultClass, Hit, Live, RemedyStep, Severity, World
from allready.rules.live._hits import hit_of

QUIET_S = 3.0
ROOTED = {"broadcast", "reduce", "gather", "scatter"}


@Rule(
    code="LIV010",
    severity=Severity.WARNING,
    fault_class=FaultClass.DESYNC_ARGS,
    layer=Layer.TRANSPORT,
    explains=("HNG005",),
    unless=(Sign.OTHER_CALLS,),
    title="All ranks wait in the same kind of call, with no data in flight",
    message="{who} waited[[ {waited} s]] in [[{operation}|one call]]; all ranks have entered it, and no connection "
    "has data to send",
    remedy=RemedyStep(
        explanation="compare what recorders do not write: root of broadcast, reduce, gather and scatter, peer "
        "and tag of send and recv, members of the group; print them on every rank before the call, "
        "or set TORCH_DISTRIBUTED_DEBUG=DETAIL"
    ),
)
def all_wait(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Every rank waits in a call for others, with equal arguments as far as they are recorded, while no connection of the
    job has anything unsent or unacknowledged.
    ## Why it matters
    Then neither a rank nor the network is missing: each waits for bytes that no rank sends, as with different roots,
    with recv on both sides, or with groups of different members.
    ## Check by hand
    `ss -tinp` of the ranks: Send-Q is 0 everywhere.
    ## When it is harmless
    When a GPU still computes what the operation waits for.
    """
    found = case.of(blame_hang)
    if found.kind not in {HangKind.LEVEL, HangKind.INSIDE, HangKind.ALL_WAIT} or found.for_s < QUIET_S:
        return
    if not _is_quiet(live) or a_gpu_computes(live):
        return
    too_long = found.for_s >= live.hang_after_s
    yield hit_of(
        case,
        found,
        (),
        values={"who": named(live, world, found.ranks or found.waiting)},
        severity=Severity.ERROR if too_long or _is_rooted(found) else None,
        confidence=Confidence.LIKELY if _is_rooted(found) else Confidence.POSSIBLE,
    )


def _is_quiet(live: Live) -> bool:
    """There are connections, all of them were looked at, and none has anything to send."""
    rows = [row for answer in live.evidence.values() for row in answer.sockets]
    return (
        bool(rows)
        and set(live.evidence) >= set(live.statuses)
        and not any(r.unacked or r.unsent_bytes or r.backoff or r.send_queue_bytes for r in rows)
    )


def _is_rooted(found: HangBlame) -> bool:
    return found.operation is not None and found.operation.name in ROOTED
