from collections.abc import Iterator

from msgspec.structs import replace

from allready import model
from allready.judging.majority import is_minority
from allready.judging.places import num_ranks
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, nodes_wholly, onset, who
from allready.judging.signs import Sign
from allready.judging.stated import said
from allready.judging.values import STACK
from allready.judging.wait_words import WORLD
from allready.signatures.peers import has_lost_connection, has_timed_out
from allready.signatures.watchdog import TIMEOUTS

TIMED_OUT = TIMEOUTS | {"gloo.recv_timeout", "torch.blocking_wait_timeout", "store.wait_timeout"}
"""Signatures of lines by which a rank says that it waited for nothing."""


@Rule(
    code="HNG008",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.CPU_STUCK,
    layer=Layer.SILENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.OTHER_CALLS, Sign.ROOT_LINE, Sign.WAIT, Sign.AGREED),
    title="All ranks but one log that they waited or lost a peer",
    message="{who} {who:logs/log} nothing; {victims} {what}",
    remedy=(
        model.RemedyStep(
            explanation="read the output of {who} after its last iteration: was it stopped, asleep, in other work, or "
            "did it leave the loop earlier than the others?"
        ),
        STACK,
    ),
)
def silent_beside_victims(run: model.RunEvidence) -> Iterator[model.Hit]:
    """
    ## What it checks
    Which ranks wrote a time-out or a lost connection, and which of the job's ranks did not.  It is asked last: only
    where no record says how far each rank came.
    ## Why it matters
    Victims speak, culprits are silent: a time-out is written by everyone who waited, and not by the one who was
    waited for.
    ## Check by hand
    List the ranks that have the line, and see who is missing.
    ## When it is harmless
    When the output of the silent rank was not collected, or its launcher ended it before it could write the same line.
    """
    run = _of_now(run)
    waited, lost = _victims(run)
    victims = waited | lost
    if not victims:
        return
    spoken = {e.origin.rank for e in run.events} | {d.rank for d in run.deaths} | {p.rank for p in run.processes}
    known = {r for r in spoken if r is not None}
    known |= set(range(max(known) + 1)) if max(known) < 100_000 else set()
    known |= set(range(run.expected_ranks))
    silent = known - victims - run.ended_well
    by_launcher = {d.rank for d in run.deaths if d.by_launcher}
    strong = {r for r in silent if r not in by_launcher} or silent
    if not is_minority(len(strong), len(strong | victims)) or not strong or len(victims) < 2:
        return
    if strong <= by_launcher and (len(strong) > 1 or _is_apart(run, victims)):
        return  # a launcher ended them before they could say the same; who waited for whom cannot be known
    accused = tuple(sorted(strong))
    is_one = len(accused) == 1 and not _is_of_a_part(run)
    closed = len(lost) > len(waited)
    fault_class = _class_of(run, strong) if closed else model.FaultClass.CPU_STUCK
    if not closed and _was_seen_working(run, strong):
        fault_class = model.FaultClass.CPU_BUSY
    yield model.Hit(
        culprits=model.Culprits(ranks=accused, nodes=nodes_wholly(run, accused) if len(accused) > 1 else ()),
        values={
            "victims": num_ranks(victims),
            "what": said("report that a peer closed its connection" if closed else "waited for it until their timeout"),
            "who": who(run, accused),
        },
        fault_class=fault_class,
        confidence=model.Confidence.LIKELY if is_one else model.Confidence.POSSIBLE,
        fault_time=None if closed else model.clock_time(onset(run)),
        evidence=(
            *(evidence(d.origin, f"rank {d.rank}: {d.text}", d.time_s) for d in run.deaths if d.rank in victims),
            *(
                model.Evidence(source=str(e.origin), text=e.text[:400], time=model.clock_time(e.time_s))
                for e in run.events
                if e.signature in TIMED_OUT and e.origin.rank in victims
            ),
        )[:8],
    )


def _of_now(run: model.RunEvidence) -> model.RunEvidence:
    """Without what belongs to an attempt that is over."""
    if not any(d.earlier for d in run.deaths):
        return run
    return replace(
        run,
        deaths=tuple(d for d in run.deaths if not d.earlier),
        events=tuple(e for e in run.events if e.signature not in TIMED_OUT or e.role is not model.Role.CASCADE),
    )


def _victims(run: model.RunEvidence) -> tuple[set[int], set[int]]:
    """Ranks that waited in vain, and ranks that lost a peer."""
    waited = {e.origin.rank for e in run.events if e.signature in TIMED_OUT}
    lost: set[int | None] = set()
    for death in run.deaths:
        if not death.is_collective_error:
            continue
        if has_lost_connection(death.text):
            lost.add(death.rank)
        elif has_timed_out(death.text):
            waited.add(death.rank)
    return {r for r in waited if r is not None}, {r for r in lost - waited if r is not None}


def _is_of_a_part(run: model.RunEvidence) -> bool:
    """Some waited in a group that need not have all ranks, and whose members no line tells."""
    return any(e.values.get("group", "0") not in WORLD for e in run.events if e.signature in TIMEOUTS)


def _is_apart(run: model.RunEvidence, victims: set[int]) -> bool:
    """Victims waited at different places of the program, so that one of them may be the one who is out of step."""
    sites = {d.site for d in run.deaths if d.rank in victims and d.is_collective_error and d.site is not None}
    logged = (e.values.get("site", "") for e in run.events if e.signature in TIMED_OUT)
    sites |= {model.CallSite.of(site) for site in logged if site}
    return len(sites) > 1


def _was_seen_working(run: model.RunEvidence, silent: set[int]) -> bool:
    """Output of one of them, or of their node when no line tells the rank, shows long work of a single rank."""
    nodes = {run.node_of_rank.get(r) for r in silent} - {None}
    return any(
        e.signature == "torch.single_rank_work"
        and (
            e.origin.rank in silent
            or (e.origin.rank is None and run.node_numbers.get(e.origin.node or e.origin.host or "") in nodes)
        )
        for e in run.events
    )


def _class_of(run: model.RunEvidence, silent: set[int]) -> model.FaultClass:
    """Where the launcher of its node reports how others ended and not how it did, it ended with 0; else it died."""
    ended = {
        d.rank
        for d in run.deaths
        if d.rank is not None and (d.exit_code is not None or (d.signal is not None and not d.by_launcher))
    }
    nodes = {run.node_of_rank.get(r) for r in silent}
    is_left_out = not silent & ended and None not in nodes and nodes <= {run.node_of_rank.get(r) for r in ended}
    return model.FaultClass.DESYNC_FLOW if is_left_out else model.FaultClass.DEAD
