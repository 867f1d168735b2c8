from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from allready.judging.attempts import WAITED
from allready.judging.last_calls import P2P, call_of_stack, refused_data
from allready.judging.majority import majority
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.judging.stall import WAITING
from allready.judging.stated import said, stated
from allready.model import Confidence, Culprits, Death, FaultClass, Hit, RunEvidence, Severity, clock_time
from allready.model.call_site import CallSite
from allready.model.fill import named_by
from allready.signatures import of_line

_THERE = "rank {rank} at {site}: {what}"

SAME_MOMENT_S = 60.0
"""Ranks that wait for each other give up within the time-out of the one that came last; the rest is another matter."""


@Rule(
    code="DSY007",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    applies=Applies.RUN,
    explains=("GLO005",),
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
    Where one got data of another size than it had room for, the stack of its crash shows its place, and those of the
    ranks that still wait show theirs.
    ## Why it matters
    Where one rank is slow or stuck, all others wait at one place.  Where they wait at different places, each waits for
    a call that the others do not make.
    ## Check by hand
    `grep -B 3 "Error" LOG`: compare the last frames of your own files over all ranks.
    ## When it is harmless
    In a pipeline, ranks of different stages wait at different places when any rank is missing: sends and receives are
    compared only where one got data of another size, or where every rank of the job waited until its timeout, some in
    sends (or receives) that no other rank answers, the others in a collective.  Then no rank is accused: the other half
    may be the one that is missing.
    """
    ended = [d for d in run.deaths if not d.earlier and not (d.by_launcher and d.kind != "exception")]
    places = _places(run, ended)
    if len(places) < max(2, run.expected_ranks, _most(run)) or any(
        d.rank not in places or not d.is_collective_error for d in ended
    ):
        return
    is_everybody = len(places) == run.expected_ranks  # else one of whom nothing is here may be who they wait for
    is_exchange = not refused_data(run) and any(place.call in P2P for place in places.values())
    if is_exchange and not (is_everybody and _lacks_its_other_half(places)):
        return  # stages of a pipeline wait at different places whatever stops it
    times = [p.time_s for p in places.values() if p.time_s is not None and p.has_ended]
    functions = {rank: place.function for rank, place in places.items()}
    if len(set(functions.values())) < 2 or (times and max(times) - min(times) > SAME_MOMENT_S):
        return
    most = majority(functions)
    shown = most.odd if most is not None else (min(places),)
    others = [r for r in places if functions[r] != functions[shown[0]]]
    yield Hit(
        # Of a send alone it does not show whether it is one too many or its receive was left out.
        culprits=Culprits(ranks=most.odd if is_everybody and most is not None and not is_exchange else ()),
        values={"who": who(run, shown), "site": places[shown[0]].line, "other": places[min(others)].line},
        confidence=Confidence.LIKELY if is_everybody else Confidence.POSSIBLE,
        evidence=tuple(
            stated(p.source, _THERE, time=clock_time(p.time_s), rank=r, site=p.site, what=p.text[:300])
            for r, p in sorted(places.items())[:8]
        ),
        fault_time=clock_time(min(times, default=None)),
    )


class _Place(Struct, frozen=True, kw_only=True):
    """Where a rank waited, and what says so."""

    call: str
    site: CallSite
    source: str
    text: str
    time_s: float | None
    has_ended: bool

    @property
    def line(self) -> str:
        return named_by(said("{call} at {site}", call=self.call, site=self.site)) if self.call else str(self.site)

    @property
    def function(self) -> str:
        """`train.py step all_reduce`: the place without its line, since one loop may call from two of them."""
        return f"{self.site.file} {self.site.function} {self.call}"


def _places(run: RunEvidence, ended: Sequence[Death]) -> dict[int, _Place]:
    """By tracebacks, and by stacks where data of another size shows that the calls were not the same."""
    lost = {d.rank: d for d in ended if d.is_collective_error and d.rank is not None}
    found = {
        rank: _Place(call=d.call, site=d.site, source=str(d.origin), text=d.text, time_s=d.time_s, has_ended=True)
        for rank, d in lost.items()
        if d.site
    }
    if not refused_data(run):
        return found
    dead = {d.rank for d in run.deaths}
    for stack in run.stacks:
        call = call_of_stack(stack)
        is_here = stack.rank in lost or (stack.rank not in dead and stack.activity in WAITING)
        if stack.rank is not None and stack.role == "rank" and call.site and is_here:
            found.setdefault(
                stack.rank,
                _Place(
                    call=call.name,
                    site=call.site,
                    source=str(stack.origin),
                    text=lost[stack.rank].text if stack.rank in lost else stack.activity,
                    time_s=stack.time_s,
                    has_ended=stack.rank in lost,
                ),
            )
    return found


def _lacks_its_other_half(places: Mapping[int, _Place]) -> bool:
    """Every rank timed out, some in sends alone (or receives alone) and the others in calls that answer none."""
    pairs = {place.call for place in places.values()} & P2P
    is_one_sided = pairs <= {"send", "isend"} or pairs <= {"recv", "irecv"}
    return (
        is_one_sided
        and any(place.call and place.call not in P2P for place in places.values())
        and all(any(s.id in WAITED for s, _ in of_line(place.text)) for place in places.values())
    )


def _most(run: RunEvidence) -> int:
    """How many ranks there are at least."""
    named = {d.rank for d in run.deaths} | {e.origin.rank for e in run.events} | {p.rank for p in run.processes}
    return max((r + 1 for r in named if r is not None), default=0)
