"""An alarm from the first line of a command that promises to end in time: on busy CPUs its imports alone take seconds.

So this module imports little, and before everything else.  `overdue.ended_within` takes over where the command begins.
"""

import os
import signal
import sys

from allready.proc.clocks import own_age_s, own_cpu_times

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

DEADLINE_S = 3.0
PROLOG_S = 2.0
UNBOUND = ("--timeout", "--use-gpus", "--from", "-h", "--help")
"""Options of commands that a user waits for."""
MARGIN_S = 0.3
"""For ending the children, for the line that says it, and for the end of the process."""
END_CPU_S = 0.02
"""The same of CPU time, which on busy CPUs lasts longer."""


def begun_s(limit_s: float, *, is_program: bool) -> float:
    """How much of a command's time is over: since its process was started.

    A process that is older than the limit and spent little of that on a CPU or waiting for one was not started for this
    command: a program that runs commands for others, or a script that ended with `exec`.
    """
    age = own_age_s()
    if age < limit_s:
        return age
    return age if is_program and sum(own_cpu_times(of_all=True)) > age / 2 else 0.0


def slowness() -> float:
    """How many seconds pass here for a second of this process's work; 1 where the CPUs are free, or that is not
    known."""
    ran_s, waited_s = own_cpu_times()
    return 1.0 + waited_s / ran_s if ran_s else 1.0


def margin_s() -> float:
    """What the end itself takes of a limit."""
    return max(MARGIN_S, END_CPU_S * slowness())


def overdue(*, limit_s: float, is_prolog: bool, form: str | None) -> tuple[int, str, int]:
    """What is reported where the time is over and nothing was judged: descriptor, text, and the exit code.

    A prolog that cannot look drains no node.
    """
    usage_text = getattr(sys.modules.get("allready.text.usage"), "usage_text", str.format)  # no import within an import
    why = usage_text(
        "not looked at: {limit} s are over (load {load}, CPUs {cpus}); allready doctor --timeout 30 waits longer",
        limit=f"{limit_s:g}",
        load=f"{os.getloadavg()[0]:.0f}",
        cpus=str(os.cpu_count()),
    )
    if form == "nagios":
        return 1, f"ALLREADY UNKNOWN - {why}\n", 3
    if is_prolog and not form:
        return 1, f"allready: {why}\n", 0
    return 2, f"allready doctor: {why}\n", 3


def _form(arguments: "Sequence[str]") -> str | None:
    """What is given as --format."""
    for word, after in zip(arguments, [*arguments[1:], ""], strict=False):
        name, _, value = word.partition("=")
        if name == "--format":
            return value or after
    return None


def promise(arguments: "Sequence[str]") -> None:
    """From here on the process of this command line ends in time, until `ended_within` takes over."""
    if any(word.partition("=")[0] in UNBOUND for word in arguments):
        return
    form, is_prolog = _form(arguments), "--prolog" in arguments
    limit_s = PROLOG_S if is_prolog or form else DEADLINE_S

    def end(_number: int, _frame: "FrameType | None") -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        descriptor, text, code = overdue(limit_s=limit_s, is_prolog=is_prolog, form=form)
        try:
            os.write(descriptor, text.encode())  # past the buffers, which may be in use
        finally:
            os._exit(code)

    signal.signal(signal.SIGALRM, end)
    left_s = limit_s - margin_s() - begun_s(limit_s, is_program=True)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s))
