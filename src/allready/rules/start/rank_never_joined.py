from collections.abc import Container, Iterable, Iterator, Sequence

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.majority import is_minority
from allready.judging.processes import failed_by_itself
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import nodes_wholly, speaks_beside_its_launcher, who
from allready.judging.signs import Sign
from allready.judging.stated import stated


@Rule(
    code="STA001",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_ABSENT,
    layer=Layer.ABSENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END,),
    title="Ranks never joined the communicator that the others wait for",
    message="{who} of {nranks} never started to initialize the communicator; {waiting} waited for {who:it/them}",
    remedy=(
        model.RemedyStep(
            explanation="read the output of rank {absent}: was it started, did its imports or its data preparation "
            "take long, did it fail before the first collective?"
        ),
        model.RemedyStep(
            explanation="before the next start, check all nodes", where="every node", command="allready check"
        ),
    ),
)
def rank_never_joined(case: Analysis, run: model.RunEvidence) -> Iterator[model.Hit]:
    """
    ## What it checks
    NCCL's "Init START" and "Init COMPLETE" lines: of every communicator of the whole job, which ranks started and which
    completed. Where some wait and none completed, those without a START line are named; not where a waiting rank wrote
    `Bootstrap timings` or the number of nodes, which it knows only from all ranks, nor where as many processes of which
    no rank is known report errors of NCCL: they began; nor where one that started ended by an error of its own; nor
    where half of the ranks or more lack the line, and every process wrote of its initialization last: the log may
    stop there.
    ## Why it matters
    Initialization waits for all ranks; those that wait log it, the missing one does not.
    ## Check by hand
    `grep -l "Init START"` and `grep -l "Init COMPLETE"` over the NCCL logs.
    ## When it is harmless
    When the logs of the named ranks were not given to diagnose.
    """
    size = run.expected_ranks
    if size < 2:
        return
    started: dict[int, str] = {}
    completed: set[int] = set()
    times = []
    for process in run.processes:
        for comm in process.comms:
            if comm.nranks == size and comm.parent is None and comm.init_started:
                if failed_by_itself(case, process):
                    return
                started[comm.rank] = process.sources[0] if process.sources else ""
                if comm.started_s is not None:
                    times.append(comm.started_s)
                if comm.init_completed:
                    completed.add(comm.rank)
    absent = tuple(r for r in range(size) if r not in started)
    if not started or completed or not absent or any(_has_met_all(p, size) for p in run.processes):
        return
    if len(_nameless_with_errors(run)) >= len(absent):
        return
    seen = {p.rank for p in run.processes} | {e.origin.rank for e in run.events}
    is_seen = bool(set(absent) & seen)
    is_few = is_minority(len(absent), size)
    if not is_few and _all_initialize(run, size):
        return
    is_named = set(absent) <= set(run.node_of_rank)
    idle = _idle_nodes(run, started)
    is_idle = bool(idle) and len(idle) <= len(absent)
    # NCCL may write into files of its own, of which that node's may just not be here.
    is_sure = is_idle and speaks_beside_its_launcher(run, started.values())
    yield model.Hit(
        # As many without a log as with one: probably their logs were not given, unless their launcher's is here.
        culprits=model.Culprits(ranks=absent, nodes=idle if is_idle else nodes_wholly(run, absent))
        if is_seen or is_few or is_named or is_idle or _were_launched(run, absent, started)
        else model.Culprits(),
        values={
            "who": who(run, absent),
            "absent": model.ranges(absent),
            "nranks": size,
            "waiting": who(run, started, with_processes=False),
        },
        # A rank without any line may only lack a log; one that logs elsewhere really did not join.
        confidence=model.Confidence.LIKELY if is_seen or is_few or is_sure else model.Confidence.POSSIBLE,
        evidence=tuple(
            stated(source, "rank {rank}: Init START without Init COMPLETE", rank=rank)
            for rank, source in sorted(started.items())[:6]
        ),
        fault_time=model.clock_time(min(times, default=None)),
    )


def _all_initialize(run: model.RunEvidence, size: int) -> bool:
    """Whether as many processes as the job has ranks wrote lines of NCCL's initialization last: those without a START
    line may be about to write it."""
    return sum(p.last_line_class == "init" for p in run.processes) >= size


def _has_met_all(process: model.ProcessRecord, size: int) -> bool:
    """Whether the process has exchanged addresses with every rank of the job: then none of them stayed away."""
    begun = [c for c in process.comms if c.init_started]
    is_of_all = bool(begun) and all(c.nranks == size and c.parent is None for c in begun)
    return is_of_all and (process.num_nodes is not None or model.BOOTSTRAP_TOTAL in process.phases_s)


def _nameless_with_errors(run: model.RunEvidence) -> set[tuple[str | None, int]]:
    """Processes of which NCCL says what failed, and no line says the rank: the beginning of their logs is not here."""
    nameless = {(p.host, p.pid) for p in run.processes if p.rank is None}
    failed = {
        (e.origin.host, e.origin.pid)
        for e in run.events
        if e.role is model.Role.ROOT and e.origin.pid is not None and e.family == "nccl"
    }
    return {(host, pid) for host, pid in failed & nameless if pid is not None}


def _were_launched(run: model.RunEvidence, absent: Sequence[int], started: Container[int]) -> bool:
    """Whether launchers whose output is here had to end all processes of the job: those without a rank are the absent
    ones, and they ran."""
    ended = [d for d in run.deaths if d.by_launcher and not d.earlier and d.pid is not None]
    others = [d for d in ended if d.rank not in started]
    return len(ended) == run.expected_ranks and len(others) == len(absent)


def _idle_nodes(run: model.RunEvidence, started: Iterable[int]) -> tuple[int, ...]:
    """Nodes whose launcher had to end processes, of which no rank is known to have begun: their output is here."""
    ended = {
        run.node_numbers.get(d.node or d.origin.node or "") for d in run.deaths if d.by_launcher and d.rank is None
    }
    begun = {run.node_of_rank.get(r) for r in started}
    return tuple(sorted(n for n in ended - begun if n is not None))
