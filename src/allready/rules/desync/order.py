"""Ranks that left the order of the calls: one more, one less, another turn."""

from collections.abc import Iterator
from typing import Any

from allready import model
from allready.judging.majority import is_majority, is_minority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, who
from allready.judging.signs import Sign
from allready.judging.stated import stated
from allready.judging.waits import TORCH
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
        values={"left": ", ".join(map(str, sorted(left))), "who": who(run, numbers), "site": site or None},
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


SIZE_ERRORS = (
    "truncated",
    "invalid usage",
    "collective mismatch",
    "doesn't match expected size",
    "incorrect receive info",
)
"""What libraries say when a peer's operation was another one."""


@Rule(
    code="DSY003",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.OFFLINE,
    unless=(Sign.OTHER_CALLS, Sign.PROCESS_END),
    title="One rank made more collective calls than the others",
    message="{who} made {ahead} calls in group {group} where the others made {usual}, and the library found "
    "operations that do not match",
    remedy="look for a collective that only {who} {who:calls/call} (a branch on rank, logging or evaluation on rank 0 "
    "only). A flight-recorder dump of every rank (TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1) shows the "
    "line",
)
def one_call_more(run: model.RunEvidence) -> Iterator[model.Hit]:
    """
    ## What it checks
    Numbers of launched operations (watchdog lines, RAS counters, counted log lines): a minority is ahead, all others
    are equal, and some rank reports an error of non-matching sizes or an invalid usage.
    ## Why it matters
    With one call more on one rank every later call is matched with a wrong partner.
    ## Check by hand
    Compare "last enqueued" of all ranks, or RAS's counters per operation.
    ## When it is harmless
    Ranks may run ahead of each other while everything works; without the error of sizes this is not reported.
    """
    leading = [(progress, ahead) for progress in run.progress if (ahead := _ahead(progress))]
    if not leading:
        return  # as in nearly every run, so not all lines need to be searched
    lines = [e for e in run.events if any(word in (e.text + " ".join(e.extra)).lower() for word in SIZE_ERRORS)]
    for progress, ahead in leading:
        complaints = [p.error for p in progress.positions.values() if p.error and "usage" in p.error.lower()]
        if not (lines or complaints):
            continue
        counts = {r: p.enqueued for r, p in progress.positions.items()}
        usual = min(counts.values())
        yield model.Hit(
            culprits=model.Culprits(ranks=ahead),
            values={
                "who": who(run, ahead),
                "group": progress.label or progress.group,
                "ahead": counts[ahead[0]],
                "usual": usual,
            },
            confidence=model.Confidence.LIKELY,
            evidence=(
                *(
                    stated(progress.source, "rank {rank}: {num} operations launched", rank=r, num=n)
                    for r, n in counts.items()
                ),
                *(
                    model.Evidence(source=str(e.origin), text=e.text[:400], time=model.clock_time(e.time_s))
                    for e in lines[:3]
                ),
            )[:10],
            fault_time=model.clock_time(min((e.time_s for e in lines if e.time_s is not None), default=None)),
        )
        return


def _ahead(progress: model.GroupProgress) -> tuple[int, ...]:
    """The minority that made more calls, if all others made equally many."""
    if progress.source not in {*TORCH, model.Recorder.RAS} or len(progress.positions) < 3:
        return ()
    counts = {r: p.enqueued for r, p in progress.positions.items()}
    low = min(counts.values())
    members = {*counts, *progress.members}
    ahead = tuple(sorted(r for r, n in counts.items() if n > low))
    return ahead if ahead and is_minority(len(ahead), len(members)) and len({counts[r] for r in ahead}) == 1 else ()


@Rule(
    code="DSY009",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.LIVE,
    title="One rank's calls are paired with those of another iteration",
    message="{who} made {own} calls in group {group} before call {seq} of {base} where the others made {usual}; at "
    "earlier calls the numbers were equal. The job goes on, and the [[{operation} ]]calls of {who} are paired with "
    "those of another iteration",
    remedy="look for a call in group {group} or {base} that {who} {who:leaves out or makes/leave out or make} twice "
    "(a branch on rank or data, an early continue, a caught exception)[[; the calls are made at {site}]]. If there is "
    "one, results since then are wrong: go back to an earlier checkpoint",
)
def calls_apart(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that are in two groups (a row and a column of a mesh) make the calls of both in one order.  One rank has made
    more or fewer calls of one group than all others when it comes to a call of the other group, and equally many more
    or fewer for a dozen calls in a row; before, all had made as many.
    ## Why it matters
    A call that is left out need not hang: where the next one has the same kind and size it is paired with that, and all
    later ones are one apart.  Nothing fails, gradients and activations are of different steps, and ranks wait longer
    for each other.
    ## Check by hand
    Count the calls of each group per iteration on every rank: `TORCH_LOGS=+distributed`, or flight-recorder dumps.
    ## When it is harmless
    Where the calls of one group come from a thread of their own, which on one rank falls behind by a constant number.
    """
    shift = run.shift
    if shift is None:
        return
    others = tuple(r for r in shift.numbers if r != shift.rank)
    own, usual = shift.numbers[shift.rank], shift.numbers[others[0]]
    label = {g.group: g.label or g.group for g in run.progress}
    lasts = [p.last for g in run.progress if g.label == shift.label for p in g.positions.values() if p.last is not None]
    last = max(lasts, key=lambda o: bool(o.site), default=None)
    base = label.get(shift.base, shift.base)
    form = "{who}: {num} calls of group {group} before call {seq} of {base}"
    known: dict[str, Any] = {"group": shift.label, "seq": shift.seq, "base": base}
    yield Hit(
        culprits=Culprits(ranks=(shift.rank,)),
        values={
            "who": who(run, (shift.rank,)),
            "own": own,
            "usual": usual,
            "operation": shift.operation,
            "site": last.site if last is not None and last.site else None,
            **known,
        },
        confidence=Confidence.LIKELY,
        evidence=(
            stated("flight recorder", form, who=who(run, (shift.rank,)), num=own, **known),
            stated("flight recorder", form, who=who(run, others, with_processes=False), num=usual, **known),
        ),
    )
