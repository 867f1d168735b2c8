from collections.abc import Iterator

from allready.judging.majority import majority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.model import Confidence, Culprits, Death, Evidence, FaultClass, Hit, RunEvidence, Severity, clock_time

SAME_MOMENT_S = 60.0
"""Ranks that wait for each other give up within the time-out of the one that came last; the rest is another story."""


@Rule(
    code="DSY007",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.TRANSPORT,
    applies=Applies.RUN,
    unless=(Sign.POSITIONS, Sign.OTHER_CALLS, Sign.PROCESS_END),
    title="Ranks gave up waiting in different calls of the program",
    message="{who} gave up in {site}, the others in {other}: they waited in different calls",
    remedy="look at what leads to {site} on {who} and not on the others (a branch on rank or data, an early return, a "
    "caught exception, a batch more or less): every rank must make the same collective calls in the same order. "
    "TORCH_DISTRIBUTED_DEBUG=DETAIL makes torch check every call",
)
def gave_up_apart(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Tracebacks of ranks that ended with a library's error (a time-out, a closed connection): the place in the program
    from which each of them had called, and what. Reported where all ranks that ended badly did so in such a call, in
    different functions or in calls of different kinds (all_reduce, barrier), and no other evidence tells of an
    operation.  A rank is accused only where it is known how many ranks there are, and all of them are among these.
    ## Why it matters
    Where one rank is slow or stuck, all others wait at one place.  Where they wait at different places, each waits for
    a call that the others do not make.
    ## Check by hand
    `grep -B 3 "Error" LOG`: compare the last frames of your own files over all ranks.
    ## When it is harmless
    In a pipeline, ranks of different stages wait at different places when any rank is missing: then look for that one.
    """
    ended = [d for d in run.deaths if not d.earlier and not (d.by_launcher and d.kind != "exception")]
    waited = {d.rank: d for d in ended if d.is_collective_error and d.site and d.rank is not None}
    if len(waited) < 2 or len(waited) < len(ended) or len(waited) < max(run.expected_ranks, _most(run)):
        return
    is_everybody = len(waited) == run.expected_ranks  # else one of whom nothing is here may be who they wait for
    times = [d.time_s for d in waited.values() if d.time_s is not None]
    functions = {rank: _function(death) for rank, death in waited.items()}
    if len(set(functions.values())) < 2 or (times and max(times) - min(times) > SAME_MOMENT_S):
        return
    most = majority(functions)
    shown = most.odd if most is not None else (min(waited),)
    others = [r for r in waited if functions[r] != functions[shown[0]]]
    yield Hit(
        culprits=Culprits(ranks=most.odd if is_everybody and most is not None else ()),
        values={"who": who(run, shown), "site": _place(waited[shown[0]]), "other": _place(waited[min(others)])},
        confidence=Confidence.LIKELY if is_everybody else Confidence.POSSIBLE,
        evidence=tuple(
            Evidence(source=str(d.origin), text=f"rank {r} at {d.site}: {d.text[:300]}", time=clock_time(d.time_s))
            for r, d in sorted(waited.items())[:8]
        ),
        fault_time=clock_time(min(times, default=None)),
    )


def _most(run: RunEvidence) -> int:
    """How many ranks there are at least."""
    named = {d.rank for d in run.deaths} | {e.origin.rank for e in run.events} | {p.rank for p in run.processes}
    return max((r + 1 for r in named if r is not None), default=0)


def _place(death: Death) -> str:
    return f"{death.call} at {death.site}" if death.call else death.site or "?"


def _function(death: Death) -> str:
    """`train.py step all_reduce`: the place without its line, since one loop may call from two of them."""
    place, _, function = (death.site or "").rpartition(" ")
    return f"{place.rpartition(':')[0]} {function} {death.call}"
