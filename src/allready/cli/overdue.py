"""An end in time, whatever a command is doing: an alarm that the main thread cannot miss.

It is set at the command's first line (`promise`): on busy CPUs what a command imports alone takes seconds.  What is
needed for its end is imported before it, and little.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from allready.cli.interrupts import is_of_this_command
from allready.proc.clocks import own_age_s, own_cpu_times
from allready.text.usage import language_of, translations, usage_text

DEADLINE_S = 3.0
PROLOG_S = 2.0
UNBOUND = ("--timeout", "--use-gpus", "--from", "-h", "--help")
"""Options of commands that somebody waits for."""
MARGIN_S = 0.3
"""For ending the children, for the line that says it, and for the end of the process."""
END_CPU_S = 0.02
"""The same of CPU time, which on busy CPUs lasts longer."""
LEAST_S = 0.3
"""Where less is left at the beginning nothing can be found out any more: where the CPUs are so busy, starting a child
alone takes longer, and cannot be cut short."""


class OverdueError(BaseException):
    """The time is over.  Not an Exception: a rule or a reader that survives its own errors must not survive this."""


def begun_s(limit_s: float) -> float:
    """How much of a command's time is over: since its process was started.

    A process that is older than the limit and spent little of that on a CPU or waiting for one was not started for this
    command: a program that runs commands for others, or a script that ended with `exec`.
    """
    age = own_age_s()
    if age < limit_s:
        return age
    return age if is_of_this_command() and sum(own_cpu_times(of_all=True)) > age / 2 else 0.0


def slowness() -> float:
    """How many seconds pass here for a second of this process's work; 1 where the CPUs are free, or nobody says."""
    ran_s, waited_s = own_cpu_times()
    return 1.0 + waited_s / ran_s if ran_s else 1.0


def margin_s() -> float:
    """What the end itself takes of a limit."""
    return max(MARGIN_S, END_CPU_S * slowness())


def overdue(*, limit_s: float, is_prolog: bool, form: str | None) -> tuple[int, str, int]:
    """What is said where the time is over and nothing was judged: descriptor, text, and the exit code.

    A prolog that cannot look drains no node.
    """
    values = {"limit": f"{limit_s:g}", "load": f"{os.getloadavg()[0]:.0f}", "cpus": str(os.cpu_count())}
    why = usage_text(
        "not looked at: {limit} s are over (load {load}, CPUs {cpus}); allready doctor --timeout 30 waits longer",
        **values,
    )
    if form == "nagios":
        return 1, f"ALLREADY UNKNOWN - {why}\n", 3
    if is_prolog and not form:
        return 1, f"allready: {why}\n", 0
    return 2, f"allready doctor: {why}\n", 3


def promise(arguments: Sequence[str]) -> None:
    """From here on the process of this command line ends in time, until `ended_within` takes over."""
    if any(word.partition("=")[0] in UNBOUND for word in arguments):
        return
    form = next((word for word in arguments if word.rpartition("=")[2] in {"nagios", "ctrf", "node-condition"}), "")
    form, is_prolog = form.removeprefix("--format="), "--prolog" in arguments
    limit_s = PROLOG_S if is_prolog or form else DEADLINE_S

    def end(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        descriptor, text, code = overdue(limit_s=limit_s, is_prolog=is_prolog, form=form)
        with contextlib.suppress(OSError):
            os.write(descriptor, text.encode())  # past the buffers, which may be in use
        os._exit(code)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, limit_s - margin_s() - begun_s(limit_s)))
    translations(language_of(arguments))  # until this is there, English: no import can be begun within an import


def end_at_once(code: int) -> int:
    """End this process where it is this command's own: the end of an interpreter takes longer on busy CPUs.

    What it wrote goes out; children that have not been ended before end with it.  Elsewhere the caller gets the code.
    """
    if is_of_this_command():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


@contextlib.contextmanager
def ended_within(limit_s: float) -> Iterator[None]:
    """Raises OverdueError in the body so early that a process that was started for it ends within the limit.

    An interpreter that took longer to start than that ends at once, having looked at nothing.  Outside of the main
    thread there is no alarm.

    Raises:
        OverdueError: the time is over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left_s = limit_s - margin_s() - begun_s(limit_s)

    def end(_number: int, _frame: FrameType | None) -> None:
        raise OverdueError

    before = signal.signal(signal.SIGALRM, end)
    try:
        if left_s < LEAST_S:
            raise OverdueError
        signal.setitimer(signal.ITIMER_REAL, left_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def no_end_now() -> None:
    """From here on the command ends by itself: a report that is begun is shown whole."""
    signal.setitimer(signal.ITIMER_REAL, 0)
