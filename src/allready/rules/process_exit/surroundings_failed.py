from collections.abc import Iterator, Sequence

from allready.judging.analysis import Analysis
from allready.judging.causes import (
    causes,
    culprits_of,
    first_causes,
    follows_order,
    hit_of,
    is_named_by_signature,
    of_first_moment,
)
from allready.judging.environment_errors import CLOSED, LOST, hint_of, is_of_the_program, trouble_of, words_of
from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import WAITED, has_grave_root
from allready.model import (
    HOSTS,
    Confidence,
    Culprits,
    Death,
    FaultClass,
    Hit,
    Live,
    RemedyStep,
    Role,
    RunEvidence,
    Severity,
)
from allready.signatures import load, of_line


@Rule(
    code="DTH005",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.EXIT,
    title="A process exited because of an environment failure",
    message="{who} exited because of an environment failure (network, limit, device or launch): {error}",
    remedy=(
        RemedyStep(
            each=HOSTS,
            where="{on}",
            command="{hint}",
            explanation="the line of the program that the traceback names is not the reason; look first",
        ),
        RemedyStep(
            explanation="a connection that was refused or lost has its cause with the other side or on the way: give "
            "diagnose the files of all ranks"
        ),
    ),
)
def surroundings_failed(case: Analysis, run: RunEvidence, live: Live | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Exceptions, and the last output before an exit code, that the program's line did not cause: connections that were
    refused or lost, names that do not resolve, limits of threads, files, disks and memory, devices that are absent,
    in use or full, variables that the launcher has not set.  Where another finding knows the line as a first cause,
    that one is reported.
    ## Why it matters
    The traceback ends in a line of the program, or of torch, and nothing is wrong with that line.
    ## Check by hand
    The command in the remedy, on the node of that process.
    ## When it is harmless
    When the job was ended before: then connections break everywhere.  Where a line has the time of that order, a
    connection that a library lost after it is not reported.
    """
    own = [d for d in first_causes(case, {"exception", "exit"}) if trouble_of(d) and not is_named_by_signature(d)]
    deaths = own or (_of_libraries(case) if live is None else ())  # the agents tell who died
    if not deaths:
        return
    trouble = trouble_of(deaths[0])
    assert trouble is not None
    alike = [d for d in deaths if trouble_of(d) is trouble]
    fallback = FaultClass.DEAD if is_of_the_program(deaths[0]) else trouble.fault_class
    yield hit_of(
        alike,
        run,
        # In a running job the others died of this end, whatever brought it about.
        culprits=culprits_of(alike, run) if trouble.is_own or live is not None else Culprits(),
        values={"error": words_of(deaths[0]), "hint": hint_of(trouble, deaths[0])},
        fault_class=None if live is not None else _class_of(deaths[0], fallback),
        confidence=Confidence.POSSIBLE if trouble is LOST else Confidence.LIKELY,
    )


def _of_libraries(case: Analysis) -> Sequence[Death]:
    """Where nothing else explains the end: the first whose library says that it reached no peer, or lost one."""
    run = case.run
    found = [d for d in run.deaths if d.is_collective_error and not d.by_launcher and not d.earlier and trouble_of(d)]
    if not found or case.of(causes) or case.of(has_grave_root) or run.progress:
        return ()
    if any(e.signature in WAITED for e in run.events):
        return ()
    found.sort(key=lambda d: (d.time_s is None, d.time_s or 0.0))
    first = of_first_moment(found)
    if trouble_of(first[0]) in {LOST, CLOSED} and (follows_order(first[0], run) or _has_other_error(run)):
        return ()
    return first


def _has_other_error(run: RunEvidence) -> bool:
    """Another finding says more about whom they lost."""
    signatures = load()
    return any(
        e.role in {Role.ROOT, Role.RECORD}
        and (one := signatures.get(e.signature)) is not None
        and one.code is not None
        and one.severity.is_fault
        for e in run.events
    )


def _class_of(death: Death, default: FaultClass) -> FaultClass:
    """What the signature of that line says, if it says more than that a process died."""
    known = [s.fault_class for s, _ in of_line(words_of(death)) if s.code is not None and s.fault_class is not None]
    return next((found for found in known if found not in {FaultClass.DEAD, FaultClass.HEALTHY}), default)
