from collections.abc import Iterator, Sequence

from allready.judging.analysis import Analysis
from allready.judging.causes import culprits_of, first_causes, hit_of, is_named_by_signature
from allready.judging.environment_errors import trouble_of
from allready.judging.majority import is_majority
from allready.judging.registry import Layer, Rule
from allready.judging.values import shared
from allready.model import Confidence, Culprits, Death, FaultClass, Hit, RemedyStep, RunEvidence, Severity

_MIN_ALIKE = 3


@Rule(
    code="DTH001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A rank raised an exception",
    message="{who} raised [[{error}|an exception]][[ at {site}]][[; the first of them: {first}]]",
    remedy=(
        RemedyStep(
            explanation="fix the error[[ at {site}]]; messages of other ranks (connection closed, time-outs, SIGTERM) "
            "follow from it"
        ),
        RemedyStep(
            explanation="to have torchrun catch and show it first, decorate main() with "
            "torch.distributed.elastic.multiprocessing.errors.record",
            each="by_torchrun",
        ),
    ),
)
def rank_raised(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Tracebacks and error files: the earliest exception that is not itself a library's report of a lost peer (NCCL error,
    store time-out, connection closed).  Ranks that a launcher ended afterwards, and ranks that raised because the first
    one was gone, are not accused.  A traceback that does not say whose it is counts when it is what stands last.
    ## Why it matters
    One rank's exception ends the whole job.  Its text stands once, among hundreds of lines of ranks that lost it.
    ## Check by hand
    `grep -n "Traceback" -A 30` in the log of the rank that is named; torchelastic's "Root Cause" is per node only.
    ## When it is harmless
    When the script catches and reports the exception and goes on.
    """
    deaths = [d for d in first_causes(case, {"exception"}) if not is_named_by_signature(d) and trouble_of(d) is None]
    if not deaths:
        return
    is_open = all(d.is_open for d in deaths)
    alike = _alike(deaths[0], run)
    if alike:
        deaths = alike
    # What holds for the ranks that are named; of processes whose rank is not known, the first one's is the cause.
    spoken = [d for d in deaths if d.rank is not None] or deaths[:1]
    yield hit_of(
        deaths,
        run,
        culprits=Culprits() if is_open or alike else culprits_of(deaths, run),
        values={
            "error": _raised_by_all(spoken) or None,
            "first": _first_of_several(spoken) or None,
            "site": shared(d.site for d in spoken if d.site) or None,
            "by_torchrun": [{}] if case.live is None and _is_of_torchrun(run) else [],
        },
        confidence=Confidence.CERTAIN if deaths[0].rank is not None and not is_open else Confidence.LIKELY,
    )


def _alike(first: Death, run: RunEvidence) -> list[Death]:
    """The same exception on most ranks, at one place of the program or with the same words from a library: then none
    of them is at fault, whichever a launcher saw first.  Empty where it is not so."""
    if first.site is None and (first.is_collective_error or ":" not in first.text):
        return []  # what a library says of a lost peer, or no words
    same = [
        d
        for d in run.deaths
        if d.kind == "exception" and not d.earlier and (d.site, d.text) == (first.site, first.text)
    ]
    ranks = {d.rank for d in same} - {None}
    known = {d.rank for d in run.deaths if not d.by_launcher} | {p.rank for p in run.processes}
    num = max(run.expected_ranks, len(known - {None}))
    return same if len(ranks) >= _MIN_ALIKE and is_majority(len(ranks), num) else []


def _is_of_torchrun(run: RunEvidence) -> bool:
    """Whether torchrun's agent started these ranks: its decorator is of no use under another launcher, or in JAX."""
    return any(event.signature.startswith("elastic.") for event in run.events)


def _first_of_several(deaths: Sequence[Death]) -> str:
    """What the first one said, where others say something else."""
    texts = [d.text for d in deaths if d.text]
    if len(set(texts)) < 2:
        return ""
    name, _, words = texts[0].partition(":")
    return words.strip() if all(text.startswith(name) for text in texts) else texts[0]


def _raised_by_all(deaths: Sequence[Death]) -> str:
    """The error that all raised; only its class where the rest differs, and nothing where that does."""
    texts = [d.text for d in deaths if d.text]
    return shared(texts) or shared(text.partition(":")[0] for text in texts) or ""
