import shlex
from collections.abc import Iterator, Sequence

from allready.judging.analysis import Analysis
from allready.judging.causes import (
    culprits_of,
    first_causes,
    hit_of,
    is_end_of_all,
    is_named_by_signature,
    left_before_others,
)
from allready.judging.environment_errors import trouble_of
from allready.judging.majority import is_majority
from allready.judging.registry import Layer, Rule
from allready.judging.stop_signals import sent_number
from allready.judging.values import shared
from allready.model import (
    HOSTS,
    Confidence,
    Culprits,
    Death,
    FaultClass,
    Hit,
    RemedyStep,
    RunEvidence,
    Severity,
    SourceRecord,
)
from allready.patterns import compiled


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


MAX_WORDS = 300
HINTS = {
    "SIGKILL": "journalctl -k | grep -i -E 'out of memory|oom'",
    "SIGBUS": "df -h /dev/shm",
    "SIGSEGV": "coredumpctl info",
    "SIGABRT": "coredumpctl info",
    "SIGILL": "lscpu",
    "SIGFPE": "coredumpctl info",
}

_WINDOWS, _WINDOWS_HINT = "(0xC", "Get-WinEvent -LogName Application -MaxEvents 20"
"""In the name of what ended a process of Windows; and where it keeps crashes."""

_CPP = r"\w{1,80}(?:::\w{1,80}){1,8}(?:: |$)"
MAX_LETTERS = 300


@Rule(
    code="DTH002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A rank was killed by a signal",
    message="{who} {who:was/were} terminated by [[{signal}|a signal]][[; {who:its/their} last output: {words}]]",
    remedy=(
        RemedyStep(each=HOSTS, where="{on}", command="{hint}", explanation="find who sent the signal, or why"),
        RemedyStep(shared="note_senders"),
        RemedyStep(shared="noted_senders"),
        RemedyStep(
            explanation="SIGKILL without a line of the kernel's OOM killer comes from a person, a scheduler's limit or "
            "a container's memory limit; SIGSEGV and SIGABRT from native code; SIGBUS mostly from a full /dev/shm. "
            "What other ranks log afterwards (connection closed, time-outs) follows from it"
        ),
    ),
)
def rank_killed(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Exit codes and signals that launchers report.  A SIGTERM that an agent sent because another rank had failed, and a
    SIGABRT by which torch's watchdog ends its own process, are consequences and not reported here; a crash of a
    process that was already exiting is DTH007.  Quoted is the last
    output of the process itself: the check of a library that failed (`Check failed: ...`), the exception that
    nothing in C++ caught, and what the handlers of Open MPI, UCX and glog print (`*** Process received signal ***`).
    ## Why it matters
    A killed rank writes nothing; its peers print "connection closed by remote peer" or wait for a time-out.
    ## Check by hand
    torchelastic's table ("exitcode : -9"), `dmesg -T | grep -i oom`, the scheduler's accounting (`sacct -j JOB`).
    ## When it is harmless
    When you ended the job yourself.
    """
    deaths = tuple(d for d in first_causes(case, {"signal", "abort"}) if left_before_others(d, run) is False)
    if not deaths or (deaths[0].kind == "abort" and is_named_by_signature(deaths[0])):  # that finding says more
        return
    signal = deaths[0].signal
    last = next((d.last_words[:MAX_WORDS] for d in deaths if d.last_words and d.signal == signal), _thrown(deaths[0]))
    yield hit_of(
        deaths,
        run,
        values={"signal": signal, "words": last or None, "hint": _hint(signal), "signal_number": sent_number(signal)},
        # Libraries abort a process that has lost another one: without its own message that may be all.
        confidence=Confidence.CERTAIN
        if deaths[0].rank is not None and (signal != "SIGABRT" or last)
        else Confidence.LIKELY,
    )


def _hint(signal: str | None) -> str:
    return HINTS.get(signal or "") or (_WINDOWS_HINT if _WINDOWS in (signal or "") else "dmesg -T | tail -50")


def _thrown(death: Death) -> str:
    """The exception of C++ that was not caught."""
    return death.text[:MAX_LETTERS] if death.kind == "abort" and compiled(_CPP).match(death.text) else ""


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
    return any(event.family == "elastic" for event in run.events)


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
