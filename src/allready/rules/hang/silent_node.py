from collections.abc import Iterator

from allready.judging.places import num_ranks
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import TIME_TO_SPEAK_S, evidence, speaks_beside_its_launcher
from allready.judging.signs import Sign
from allready.model import (
    Confidence,
    Culprits,
    Death,
    FaultClass,
    Hit,
    RemedyStep,
    Role,
    RunEvidence,
    Severity,
    clock_time,
)
from allready.rules.hang.silent_beside_victims import TIMED_OUT
from allready.signatures import load
from allready.signatures.peers import has_timed_out

NCCL_STARTS = "torch.store_get_failed"
"""A rank waited for a communicator of NCCL to begin: who is in its start already waits without a time-out."""

SPEAKERS = ("gloo.", "torch.", "store.", "python.", "cuda.", "jax.")
"""Families of lines that a rank writes, no launcher."""


@Rule(
    code="HNG014",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.SILENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.OTHER_CALLS, Sign.POSITIONS, Sign.ROOT_LINE, Sign.HANG),
    title="The processes of one node ran on silently after all others had given up waiting",
    message="the processes of node {silent} ran on for {more} s without output after [[{victims}|others]] had timed "
    "out[[ in {site}]]",
    remedy=(
        RemedyStep(explanation="look at the ranks of node {silent} while it hangs: what did they print last?"),
        RemedyStep(shared="stack"),
        RemedyStep(shared="process_state"),
    ),
)
def silent_node(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that gave up waiting, by node, against a node of which only the launcher speaks: it had to end its processes
    long after the others had given up.  Asked where no record says how far each rank came, and where ranks print into
    the file in which their launcher speaks: else the output of that node's ranks may just not be here.  It is likely
    where they lived for longer than the time-out: in another collective they would have given up as well (NCCL's own
    time-out is another one, so that beside it this is possible only).
    ## Why it matters
    Victims speak, culprits are silent; a process that its launcher had to end was not dead.
    ## Check by hand
    The last lines of every node's output: which node has no error of its own?
    ## When it is harmless
    When the time-out was too short for what that node still did (a save, a compilation).
    """
    if any(e.signature == NCCL_STARTS for e in run.events):
        return
    waited = [d for d in run.deaths if _gave_up(d)]
    nodes = {_node(run, d) for d in waited}
    since_s = min((d.time_s for d in waited if d.time_s is not None), default=None)
    others = {n: _ended(run, n) for n in set(run.node_numbers.values()) - nodes}
    if since_s is None or None in nodes or len(others) != 1:
        return
    if not speaks_beside_its_launcher(run, (d.origin.source for d in waited)):
        return
    [(silent, ended)] = others.items()
    ended_s = max((d.time_s for d in ended if d.time_s is not None), default=since_s)
    if ended_s <= since_s + TIME_TO_SPEAK_S or _spoke(run, silent) or _failed(run, silent):
        return
    limits = [float(e.values["timeout_ms"]) / 1000 for e in run.events if e.values.get("timeout_ms", "").isdecimal()]
    # NCCL has a time-out of its own, mostly a much longer one, which nothing tells before it has passed.
    would_have_timed_out = bool(limits) and ended_s > since_s + max(limits) and not _has_nccl(run)
    site = next((d.site for d in waited if d.site), None)
    yield Hit(
        culprits=Culprits(
            ranks=tuple(sorted(r for r, node in run.node_of_rank.items() if node == silent)), nodes=(silent,)
        ),
        values={
            "victims": num_ranks(d.rank for d in waited if d.rank is not None),
            "site": site or None,
            "silent": silent,
            "more": round(ended_s - since_s),
        },
        fault_class=FaultClass.START_ABSENT if _is_at_start(run) else None,
        confidence=Confidence.LIKELY if would_have_timed_out else Confidence.POSSIBLE,
        evidence=(
            *(evidence(d.origin, d.text, d.time_s) for d in waited[:4]),
            *(evidence(d.origin, d.text, d.time_s) for d in ended[:4]),
        ),
        fault_time=clock_time(since_s),
    )


def _has_nccl(run: RunEvidence) -> bool:
    return any(p.comms for p in run.processes) or any(e.signature.startswith("nccl.") for e in run.events)


def _is_at_start(run: RunEvidence) -> bool:
    """Whether a rank waited for others to come to the start."""
    known = load()
    return any(
        e.role in {Role.ROOT, Role.RECORD}
        and e.signature in known
        and known[e.signature].fault_class is FaultClass.START_ABSENT
        for e in run.events
    )


def _gave_up(death: Death) -> bool:
    return death.is_collective_error and not death.earlier and has_timed_out(death.text)


def _node(run: RunEvidence, death: Death) -> int | None:
    return run.node_numbers.get(death.node or death.origin.node or "")


def _ended(run: RunEvidence, node: int) -> list[Death]:
    """Its processes that a launcher had to end."""
    return [d for d in run.deaths if d.by_launcher and not d.earlier and _node(run, d) == node]


def _failed(run: RunEvidence, node: int) -> bool:
    return any(_node(run, d) == node and not d.by_launcher and not d.earlier for d in run.deaths)


def _spoke(run: RunEvidence, node: int) -> bool:
    return any(
        run.node_numbers.get(e.origin.node or "") == node
        and (e.signature in TIMED_OUT or (e.role is not Role.HARMLESS and e.signature.startswith(SPEAKERS)))
        for e in run.events
    )
