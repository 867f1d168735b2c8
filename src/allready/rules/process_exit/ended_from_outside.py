from collections.abc import Iterator
from typing import NamedTuple

from allready.judging.causes import (
    Ender,
    ender_of,
    ender_of_event,
    follows_order,
    is_caught_interrupt,
    is_handled_order,
    is_order,
    is_received_order,
    is_sent_order,
)
from allready.judging.raised import MAX_BEHIND
from allready.judging.registry import Layer, Rule
from allready.judging.run_signs import WAITED, evidence
from allready.judging.signs import Sign
from allready.model import (
    Confidence,
    Event,
    FaultClass,
    Hit,
    Origin,
    Raised,
    RemedyStep,
    RunEvidence,
    Severity,
    Situation,
    clock_time,
)


@Rule(
    code="DTH006",
    severity=Severity.WARNING,
    fault_class=FaultClass.DEAD,
    layer=Layer.EXIT,
    # A signal to torchrun alone says less: a person who watches a job that hangs sends one as well.
    raised=Raised(
        where=Situation.ENDED_FROM_OUTSIDE, values={"by": tuple(by for by in Ender if by is not Ender.LAUNCHER)}
    ),
    unless=(Sign.PROCESS_END, Sign.ROOT_LINE, Sign.POSITIONS, Sign.OTHER_CALLS),
    title="The run was terminated from outside; the reason is not in the input",
    message="the run was terminated from outside ({text}); by whom and why is not in these files",
    remedy=(
        RemedyStep(
            explanation="ask the scheduler, the platform's own log and the users who may have cancelled it. If it was"
            " stalled before, that is the fault: give diagnose all ranks' logs, the flight recorder's "
            "dumps, or stacks from the next time"
        ),
        RemedyStep(
            explanation="signal 1 (SIGHUP) comes when the terminal or the SSH session is closed, and torchrun takes it"
            " although nohup ignores it: start it in tmux or screen, with setsid, or as a job of the scheduler"
        ),
        RemedyStep(shared="job_record"),
        RemedyStep(shared="pod"),
    ),
)
def ended_from_outside(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    A launcher that received a signal (`Received 15 death signal`, DeepSpeed's `Main process received SIGTERM`), PBS's
    exit status of 256 and a signal's number, a scheduler that cancelled the step (`CANCELLED AT`,
    without a reason), a shell that saw its command ended (`line 32: 4067342 Terminated`) and `KeyboardInterrupt`, or a
    program that says that it caught one, where no process had failed and no rank had reached a timeout before.  A
    handler of signals counts above one of these (`*** SIGTERM received at time=`), and alone where it tells who sent
    the signal (`*** SIGTERM (@0x182d35) received by PID 1584514 (TID 0x7f2f) from PID 1584437 ***`).
    ## Why it matters
    Everything after that line is an echo, and no rank is to blame.
    ## Check by hand
    `sacct -j JOB -o JobID,State,Reason,End`; `kubectl get events`; who has access to the job.
    ## When it is harmless
    When you ended the job yourself.
    """
    reported = [
        _Order(
            e.origin, str(e.values.get("caught", e.text)), e.time_s, ender_of_event(e), is_received=is_received_order(e)
        )
        for e in run.events
        if (is_order(e) or is_sent_order(e)) and not (_is_of_the_process(e) and _went_on(e, run))
    ]
    reported += [
        _Order(d.origin, d.text, d.time_s, by)
        for d in run.deaths
        if (by := ender_of(d)) is not None and not (d.earlier or d.by_launcher)
    ]
    if not reported:
        return
    handled = [
        _Order(e.origin, e.text, e.time_s, ender_of_event(e))
        for e in run.events
        if is_handled_order(e) and not _went_on(e, run) and any(_is_above(e.origin, one.origin) for one in reported)
    ]
    reported = [*handled, *reported]
    if any(d.is_collective_error and not d.earlier and not follows_order(d, run) for d in run.deaths):
        return
    if any(e.signature in WAITED for e in run.events):
        return
    first = handled[0] if handled else min(reported, key=lambda order: (order.time_s is None, order.time_s or 0.0))
    yield Hit(
        values={"text": _words(first.text), "by": _sender(first, reported, run)},
        confidence=Confidence.LIKELY,
        evidence=tuple(evidence(order.origin, order.text, order.time_s) for order in reported[:4]),
        fault_time=clock_time(first.time_s),
    )


def _is_of_the_process(event: Event) -> bool:
    return is_caught_interrupt(event) or is_sent_order(event)


def _went_on(event: Event, run: RunEvidence) -> bool:
    """Whether the program counted on behind this line."""
    return any(
        c.origin.source == event.origin.source and (c.progress_line or 0) > (event.origin.line or 0)
        for c in run.closings
    )


def _is_above(one: Origin, other: Origin) -> bool:
    return one.source == other.source and (one.line or 0) < (other.line or 0)


def _sender(first: "_Order", reported: "list[_Order]", run: RunEvidence) -> Ender:
    """Who ended it: the keyboard, where a process says so, whichever order its launcher tells of first."""
    if any(order.by is Ender.KEYBOARD for order in reported):
        return Ender.KEYBOARD
    # A person who watches a job that hangs stops it by torchrun, which says another thing.
    return Ender.AT_WORK if first.is_received and _was_counting(first.origin, run) else first.by


def _was_counting(origin: Origin, run: RunEvidence) -> bool:
    """Whether the last step that was counted stands right above this line."""
    return any(
        c.origin.source == origin.source
        and c.progress_line is not None
        and 0 < (origin.line or 0) - c.progress_line <= MAX_BEHIND
        for c in run.closings
    )


def _words(text: str) -> str:
    """The order without what else stands in its line: a progress bar, a logger's name."""
    start = max(text.find("*** "), text.find("Received "), 0)
    return " ".join(text[start : start + 200].split())


class _Order(NamedTuple):
    """The line that says that processes were asked to end."""

    origin: Origin
    text: str
    time_s: float | None
    by: Ender
    is_received: bool = False  # by a launcher, where no process of its had failed
