from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.causes import first_causes, hit_of, is_named_by_signature, left_before_others
from allready.judging.registry import Layer, Rule
from allready.judging.stop_signals import sent_number
from allready.model import HOSTS, Confidence, Death, FaultClass, Hit, RemedyStep, RunEvidence, Severity
from allready.patterns import compiled

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
