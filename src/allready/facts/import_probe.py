"""The probe "import:NAME" of this machine: start the child, watch it, end it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.child_output import ChildOutput
from allready.facts.files import words_of
from allready.proc.kill import end_child
from allready.proc.process import Stat, read_stat, wchan_of

RECENT_S = 1.0
ASK_S = 0.2
"""For the stack of a child that has not ended; of the time it has."""
MAX_STACK = 12
_OF_IMPORTING = ("importlib", "import_child", "frozen runpy")


def import_in_child(
    name: str, environ: Mapping[str, str], *, timeout_s: float, devices: bool = False
) -> dict[str, Any]:
    """What became of importing `name`, as the fields of `model.Import`; the child and all it started are gone then.

    Args:
        devices: ask for its devices afterwards, as `environ` lets it find them.

    Raises:
        FactUnavailable: it cannot be started.
    """
    started = time.monotonic()
    # -P: a torch.py in the folder of the user is not what a job imports.
    argv = [sys.executable, "-P", "-m", "allready.facts.import_child", name, f"{timeout_s:.2f}", str(os.getpid())]
    try:
        child = subprocess.Popen(
            [*argv, "devices"] if devices else argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=dict(environ),
        )
    except OSError as error:
        raise FactUnavailable(f"import {name}: {words_of(error)}") from error
    try:
        output = ChildOutput(child)
        before, end = None, None
        has_ended = output.wait(max(0.05, timeout_s - RECENT_S - ASK_S))
        if not has_ended:
            before = read_stat(child.pid)
            has_ended = output.wait(max(0.05, timeout_s - ASK_S - (time.monotonic() - started)))
        if not has_ended:
            end = _silent(child, output, before)
    finally:
        end_child(child)
    spent = {"duration_s": round(time.monotonic() - started, 2), "limit_s": timeout_s}
    answers = _answers(output.answer)
    if end is None and len(answers) < 1 + (devices and bool(answers) and answers[0]["outcome"] == "imported"):
        end = _died(child.returncode, output.complaints)
    found = [{**spent, **answer} for answer in answers] + ([{**spent, **end}] if end is not None else [])
    return {**found[0], "devices": found[1]} if devices and len(found) > 1 else found[0]


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


def _silent(child: "subprocess.Popen[bytes]", output: ChildOutput, before: Stat | None) -> dict[str, Any]:
    """What a child does that has not ended: CPU time, state, and where it stands, which it is asked for."""
    now, wchan = read_stat(child.pid), wchan_of(child.pid)
    child.send_signal(signal.SIGUSR1)
    output.wait(ASK_S)
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
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    stack = stack_in(text)
    return {"outcome": "died", "signal": name, "error": None if stack else last, "stack": stack}
