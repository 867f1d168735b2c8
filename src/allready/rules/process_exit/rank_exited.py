import shlex
from collections.abc import Iterator, Sequence

from allready.judging.analysis import Analysis
from allready.judging.causes import culprits_of, first_causes, hit_of, is_end_of_all, is_named_by_signature
from allready.judging.environment_errors import trouble_of
from allready.judging.majority import is_majority
from allready.judging.registry import Layer, Rule
from allready.model import Confidence, Culprits, Death, FaultClass, Hit, RemedyStep, RunEvidence, Severity, SourceRecord


@Rule(
    code="DTH004",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.EXIT,
    title="A rank exited with an error code and without a traceback",
    message="{who} exited[[ with code {exit_code}]] and left no traceback[[; last output before it: {words}]]",
    remedy=(
        RemedyStep(explanation="read the end of its output (of allready run: in its report folder)", command="{tail}"),
        RemedyStep(
            explanation="if the reason is not there, keep the whole output of each rank (allready run: out.log in "
            "attemptN/nodeN/rankN of the report folder; torchrun: --log-dir DIR --redirects 3, or --tee 3), and give "
            "it to diagnose too"
        ),
    ),
)
def rank_exited(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks of which only an exit code is known: their launcher reports it, no traceback is theirs.  Quoted is the last
    line in the same output that gives the reason of an exit: `error: unrecognized arguments`, `can't open file`,
    `command not found`, the end of a traceback whose beginning is missing; else the last line of the rank's own output
    (`sys.exit("bad config")` writes one), and nothing where that was not kept or not given.
    ## Why it matters
    A program that refuses its arguments says so in one line; else the cause is in the output of that rank, which was
    not kept or not given.
    ## Check by hand
    The log folder of torchrun: `attempt_0/LOCAL_RANK/stderr.log` and `error.json`.
    ## When it is harmless
    When another finding names a cause that explains this end.
    """
    deaths = [d for d in first_causes(case, {"exit"}) if trouble_of(d) is None and not is_named_by_signature(d)]
    if not deaths or is_end_of_all(deaths, run):
        return
    num_ranks = run.expected_ranks or max(d.rank or 0 for d in deaths) + 1
    is_common = len(deaths) > 1 and is_majority(len(deaths), num_ranks)
    yield hit_of(
        deaths,
        run,
        culprits=Culprits() if is_common else culprits_of(deaths, run),  # of most ranks none stands out
        values={
            "exit_code": deaths[0].exit_code if deaths[0].exit_code is not None else None,
            "words": next((d.last_words for d in deaths if d.last_words), None) or _last_line(deaths, run) or None,
            "tail": _tail(deaths, run),
        },
        confidence=Confidence.POSSIBLE if is_common else Confidence.LIKELY,
    )


def _last_line(deaths: Sequence[Death], run: RunEvidence) -> str:
    """How the output of the first of them ends."""
    output = _output(deaths, run)
    return output.last_line if output is not None else ""


def _tail(deaths: Sequence[Death], run: RunEvidence) -> str:
    """The command that shows more of it; nothing of a member of an archive."""
    output = _output(deaths, run)
    return "" if output is None or "!" in output.path else f"tail -n 50 {shlex.quote(output.path)}"


def _output(deaths: Sequence[Death], run: RunEvidence) -> SourceRecord | None:
    """The output of the first of them; none where several files are a rank's, of which one may be older."""
    for death in deaths:
        own = [s for s in run.sources if s.rank is not None and s.rank == death.rank and s.last_line]
        if len(own) == 1:
            return own[0]
    return None
