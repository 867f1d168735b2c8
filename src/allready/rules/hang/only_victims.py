from collections.abc import Iterator, Mapping

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, lost_a_peer
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.judging.values import grouped
from allready.judging.wait_words import call_of
from allready.judging.waits import Wait, positions
from allready.model import Confidence, Culprits, FaultClass, Hit, Operation, Phrase, RunEvidence, Severity, ranges
from allready.rules.hang._hits import blamed, hit_of


@Rule(
    code="HNG009",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.TRANSPORT,
    applies=Applies.OFFLINE,
    unless=(Sign.OTHER_CALLS,),
    title="An operation never completed, and only some of its ranks are seen",
    message="{who} waited[[ {waited} s]] in {operation}, which never completed; what the other ranks[[ ({missing})]] "
    "did is not in these files, so no rank can be accused",
    remedy="give diagnose the files of all ranks and nodes: logs, flight-recorder dumps, stacks. Who has no file "
    "even then is the one to look for",
)
def only_victims(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    An operation that ranks entered and never left, where at least as many ranks are unseen as seen, or where nothing
    tells how many there are.
    ## Why it matters
    Those who wait are victims.  Their files alone cannot tell who was missing; most often it is a rank that was stuck
    or busy on its CPU.
    ## Check by hand
    Count the ranks of which you have a log or a dump.
    ## When it is harmless
    When the dumps were taken in the middle of a long operation.
    """
    found = blamed(case, HangKind.PARTIAL)
    if found is None:
        return
    blame, snapshot, wait = found
    # Where most gave up in another operation than the latest, theirs may be the first that did not end.
    elsewhere = wait.elsewhere if len(wait.elsewhere) > len(wait.waiting) else {}
    operations = _operations(case.run, wait, elsewhere)
    other_calls = FaultClass.DESYNC_FLOW if len(operations) > 1 and not elsewhere else None
    yield hit_of(
        case,
        blame,
        culprits=Culprits(),
        values={
            "who": who(case.run, sorted((*wait.waiting, *elsewhere)), with_processes=False),
            "operation": operations[0] if len(operations) == 1 else " / ".join(map(str, operations)),
            "missing": ranges(blame.ranks) if blame.ranks else None,
        },
        fault_class=FaultClass.DEAD if case.of(lost_a_peer) else other_calls,
        severity=Severity.WARNING if blame.is_glance else None,
        confidence=Confidence.POSSIBLE,
        evidence=positions(snapshot, ()),
    )


def _operations(run: RunEvidence, wait: Wait, elsewhere: Mapping[int, Operation]) -> list[Phrase | str]:
    """What those who wait called: where they differ, each operation with its ranks.  Under one number of one group that
    is the fault, and of lines that name no group it may be two groups side by side."""
    positions = wait.progress.positions
    called = {r: p.stuck for r in wait.waiting if (p := positions.get(r)) is not None and p.stuck is not None}
    is_of_one = all(operation.seq == wait.operation.seq for operation in called.values())
    called |= elsewhere
    named = grouped(((o.seq, o.name), rank) for rank, o in sorted(called.items()) if o.name)
    if len(named) < 2 or not is_of_one:
        return [call_of(run, wait, with_arguments=True)]
    return [
        f"{call_of(run, wait, called[ranks[0]], with_arguments=True)} ({ranges(ranks)})"
        for _, ranks in sorted(named.items())
    ]
