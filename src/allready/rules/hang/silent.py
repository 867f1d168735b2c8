from collections.abc import Iterator

from msgspec.structs import replace

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, lost_a_peer
from allready.judging.majority import is_minority
from allready.judging.places import num_ranks
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import TIME_TO_SPEAK_S, evidence, nodes_wholly, onset, speaks_beside_its_launcher, who
from allready.judging.signs import Sign
from allready.judging.stated import said, stated
from allready.judging.values import KILLED_BY, PROCESS_STATE, STACK
from allready.judging.wait_words import WORLD
from allready.judging.waits import positions
from allready.model import (
    Absence,
    Confidence,
    Culprits,
    Death,
    FaultClass,
    Hit,
    Recorder,
    RemedyStep,
    Role,
    RunEvidence,
    Severity,
    clock_time,
    ranges,
)
from allready.rules.hang._hits import blamed, hit_of
from allready.signatures import load
from allready.signatures.peers import has_lost_connection, has_timed_out
from allready.signatures.watchdog import TIMEOUTS


@Rule(
    code="HNG002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.OFFLINE,
    title="One rank is silent while all others wait",
    message="{who} {who:is/are} silent ({why}); {waiting} waited[[ {waited} s]] for {who:it/them} in {operation}",
    remedy=(PROCESS_STATE, KILLED_BY, RemedyStep(explanation="give the log of rank {ranks} to diagnose too")),
)
def rank_silent(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Members of a group of which there is neither a dump, nor a watchdog line, nor an answer to RAS, while every other
    member shows that it waits.
    ## Why it matters
    Even a rank whose main thread is stuck leaves a dump, since another thread writes it.  One that leaves nothing is
    stopped, dead or cut off.
    ## Check by hand
    `ls` the dumps: which rank's is missing?  `ps` and `dmesg` on its machine.
    ## When it is harmless
    When its files were not collected.
    """
    found = blamed(case, HangKind.SILENT)
    if found is None:
        return
    blame, snapshot, wait = found
    fault_class, confidence = blame.causes[0].fault_class, blame.causes[0].confidence
    if len(blame.ranks) > 1:
        # Several at once do not get stuck by themselves; which of them was first is not to be seen here.
        fault_class, confidence = FaultClass.DEAD, Confidence.POSSIBLE
        if snapshot.source == Recorder.RAS and not case.of(lost_a_peer):
            fault_class = FaultClass.NET_BROKEN
    why = sorted({wait.why_unseen.get(r, Absence.NO_DATA) for r in blame.ranks})
    yield hit_of(
        case,
        blame,
        culprits=Culprits(ranks=blame.ranks, nodes=nodes_wholly(case.run, blame.ranks)),
        values={"ranks": ranges(blame.ranks), "why": tuple(map(said, why))},
        fault_class=fault_class,
        confidence=confidence,
    )


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


NCCL_STARTS = "torch.store_get_failed"
"""A rank waited for a communicator of NCCL to begin: who is in its start already waits without a time-out."""

SPEAKERS = ("gloo", "torch", "store", "python", "cuda", "jax")
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
    return any(p.comms for p in run.processes) or any(e.family == "nccl" for e in run.events)


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
        and (e.signature in TIMED_OUT or (e.role is not Role.HARMLESS and e.family in SPEAKERS))
        for e in run.events
    )


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
