"""The probe "import:NAME" of this machine: watch the child, end it."""

import json
import re
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allready.errors import FactUnavailable
from allready.facts.child_output import ChildOutput
from allready.facts.files import words_of
from allready.facts.import_start import StartedImport, begin
from allready.model.process import signal_name
from allready.proc.kill import end_child
from allready.proc.process import Stat, read_stat, wchan_of

if TYPE_CHECKING:
    import subprocess

RECENT_S = 1.0
ASK_S = 0.2
"""For the stack of a child that does nothing; of the time it has."""
MIN_S = 0.02
IDLE_CPU_S = 0.05
MAX_STACK = 12
_OF_IMPORTING = ("importlib", "import_child", "frozen runpy")


def import_in_child(question: str, environ: Mapping[str, str], *, timeout_s: float) -> dict[str, Any]:
    """The answer to one of `import_start.questions`, as `outcome_of`.

    Raises:
        FactUnavailable: the child cannot be started.
    """
    try:
        started = begin(question, environ, limit_s=timeout_s)
    except (OSError, ValueError) as error:
        raise FactUnavailable("{what}: {error}", what=question, error=words_of(error)) from error
    return outcome_of(started, timeout_s=timeout_s)


def outcome_of(started: StartedImport, *, timeout_s: float) -> dict[str, Any]:
    """What became of an import, as the fields of `model.Import`; the child and all it started are gone then.

    Args:
        timeout_s: from now on.  What it says of its limit counts from the child's start.
    """
    child, devices = started.child, started.devices
    until_s = time.monotonic() + timeout_s
    limit_s = until_s - started.began_s
    try:
        output = ChildOutput(child)
        before, end, said = None, None, None
        has_ended = output.wait(max(0.05, timeout_s - RECENT_S - ASK_S))
        if not has_ended:
            before = read_stat(child.pid)
            has_ended = output.wait(max(0.05, until_s - ASK_S - time.monotonic()))
        if not has_ended and not _is_idle(read_stat(child.pid), before):  # where it stands is of no interest
            has_ended = output.wait(max(0.0, until_s - time.monotonic()))
        if not has_ended:
            said = output.answer  # what it says after the signal may come of it, for some waits end then
            end = _silent(child, output, before, until_s)
    finally:
        end_child(child)
    spent = {"duration_s": round(time.monotonic() - started.began_s, 2), "limit_s": round(limit_s, 2)}
    answers = _answers(output.answer if said is None else said)
    if end is None and len(answers) < 1 + (devices and bool(answers) and answers[0]["outcome"] == "imported"):
        end = _died(child.returncode, output.complaints)
    found = [{**spent, **answer} for answer in answers] + ([{**spent, **end}] if end is not None else [])
    return {**found[0], "devices": found[1]} if devices and len(found) > 1 else found[0]


def _is_idle(now: Stat | None, before: Stat | None) -> bool:
    return now is None or before is None or now.cpu_s - before.cpu_s <= IDLE_CPU_S


def _answers(text: bytes) -> list[dict[str, Any]]:
    """The lines that the child wrote whole: about the import, about the devices."""
    found: list[dict[str, Any]] = []
    for line in text.splitlines(keepends=True):
        try:
            answer = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict) and "outcome" in answer:
            found.append(answer)
    return found[:2]


def _silent(
    child: "subprocess.Popen[bytes]", output: ChildOutput, before: Stat | None, until_s: float
) -> dict[str, Any]:
    """What a child does that has not ended: CPU time, state, and where it stands, which it is asked for."""
    now, wchan = read_stat(child.pid), wchan_of(child.pid)
    child.send_signal(signal.SIGUSR1)
    output.wait(max(MIN_S, until_s - time.monotonic()))
    return {
        "outcome": "silent",
        "cpu_s": None if now is None else now.cpu_s,
        "recent_cpu_s": None if now is None or before is None else round(now.cpu_s - before.cpu_s, 2),
        "state": None if now is None else now.state,
        "wchan": wchan,
        "stack": stack_in(output.complaints.decode(errors="replace")),
    }


def stack_in(text: str) -> tuple[str, ...]:
    """The lines of the main thread's stack that faulthandler wrote, innermost first; () where there is none."""
    frames = re.findall(r"^  (File \"[^\"\n]{1,400}\", line \d{1,8} in \S{1,200})$", text, re.MULTILINE)
    return tuple(frame for frame in frames if not any(part in frame for part in _OF_IMPORTING))[:MAX_STACK]


def _died(code: int, complaints: bytes) -> dict[str, Any]:
    """A child that ended without the answer that it owes."""
    text = complaints.decode(errors="replace")
    last = next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), None)
    if code >= 0:
        return {"outcome": "died", "exit_code": code, "error": last}
    name = signal_name(-code)
    stack = stack_in(text)
    return {"outcome": "died", "signal": name, "error": None if stack else last, "stack": stack}
