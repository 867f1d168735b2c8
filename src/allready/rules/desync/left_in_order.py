from collections.abc import Iterator

from allready.judging.majority import is_majority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, who
from allready.judging.signs import Sign
from allready.model import Confidence, Culprits, Event, FaultClass, Hit, RunEvidence, Severity, clock_time

SLACK_S = 2.0
"""Agents look at their workers ten times a second, and clocks of nodes differ."""


@Rule(
    code="DSY008",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.TRANSPORT,
    applies=Applies.OFFLINE,
    unless=(Sign.POSITIONS, Sign.OTHER_CALLS, Sign.PROCESS_END),
    title="The ranks of a node exited normally while others still waited for them",
    message="all ranks of node {left} had ended without an error when {who} lost them[[ in {site}]]: the ranks that "
    "had ended made fewer collective calls",
    remedy="find why the ranks of node {left} came to their end earlier: fewer batches (drop_last=True, a sampler that "
    "pads, torch.distributed.algorithms.join.Join), another number of epochs or steps, sys.exit() or an early return "
    "under a condition that is not the same on all ranks",
)
def left_in_order(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Agents of torchrun that waited for the others at the end (`Error waiting on exit barrier`): that is where an agent
    is whose workers all ended with exit code 0.  Reported where that was before ranks of other nodes ended with a
    library's error (a closed connection, a time-out), no process failed for a reason of its own, and no other
    evidence tells of an operation.  Where more nodes had ended than failed, none is accused: rather the few made a
    call more.
    ## Why it matters
    The ranks that print the error are those that were left alone; who left prints nothing.
    ## Check by hand
    The last steps that each node printed: did all come to the same number?
    ## When it is harmless
    Never: results of the ranks that failed are lost.
    """
    lost = [d for d in run.deaths if not d.earlier and not d.by_launcher]
    times = [d.time_s for d in lost if d.time_s is not None]
    if not times or not all(d.is_collective_error for d in lost):
        return
    failed = {_node(run, d.node or d.origin.node) for d in lost}
    left = {
        node: event
        for event in run.events
        if (node := _left(run, event, min(times))) is not None and node not in failed
    }
    if not left or None in failed:
        return
    numbers = {d.rank for d in lost if d.rank is not None}
    site = next((d.site for d in lost if d.site), None)
    is_most = is_majority(len(left), len(left) + len(failed))  # then rather the few made a call more
    ranks = tuple(sorted(r for r, node in run.node_of_rank.items() if node in left))
    yield Hit(
        culprits=Culprits() if is_most else Culprits(ranks=ranks, nodes=tuple(sorted(left))),
        values={"left": ", ".join(map(str, sorted(left))), "who": who(run, numbers), "site": site or "?"},
        confidence=Confidence.LIKELY,
        evidence=(
            *(evidence(e.origin, e.text, e.time_s) for _, e in sorted(left.items())[:4]),
            *(evidence(d.origin, d.text, d.time_s) for d in lost[:4]),
        ),
        fault_time=clock_time(min(times)),
    )


def _left(run: RunEvidence, event: Event, lost_s: float) -> int | None:
    """The node whose agent had begun to wait for the others by then."""
    if event.signature != "elastic.exit_barrier_failed" or event.time_s is None:
        return None
    try:
        elapsed_s = float(event.values.get("elapsed", ""))
    except ValueError:
        return None
    return _node(run, event.origin.node) if event.time_s - elapsed_s <= lost_s + SLACK_S else None


def _node(run: RunEvidence, name: str | None) -> int | None:
    return run.node_numbers.get(name or "")
