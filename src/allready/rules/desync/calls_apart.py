from collections.abc import Iterator
from typing import Any

from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, FaultClass, Hit, RunEvidence, Severity


@Rule(
    code="DSY009",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.LIVE,
    title="One rank's calls are paired with those of another iteration",
    message="{who} made {own} calls in group {group} before call {seq} of {base} where the others made {usual}; at "
    "earlier calls the numbers were equal. The job goes on, and the {operation} calls of {who} are paired with those "
    "of another iteration",
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
            "site": last.site if last is not None and last.site else "?",
            **known,
        },
        confidence=Confidence.LIKELY,
        evidence=(
            stated("flight recorder", form, who=who(run, (shift.rank,)), num=own, **known),
            stated("flight recorder", form, who=who(run, others, with_processes=False), num=usual, **known),
        ),
    )
