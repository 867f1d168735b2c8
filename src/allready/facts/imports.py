"""Whether torch and JAX can be imported here, each asked in a child with a deadline."""

import time
from typing import Any

import msgspec

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.host import Host, names_in
from allready.facts.import_start import questions
from allready.facts.tasks import Task
from allready.model import Import, ImportFacts

PATIENCE_S = 0.08
"""Longer than what the children have: to end them, and to hear of it."""


def collect_imports(host: Host, *, timeout_s: float, use_gpus: bool = False) -> ImportFacts:
    """Import each in a process of its own, beside each other; what is not installed is left out.

    Args:
        use_gpus: ask both for their devices, which takes memory of GPUs.  Without it only JAX is asked, and only on a
            machine that has none.

    Raises:
        FactUnavailable: none could be tried.
    """
    tasks = {
        name: Task(lambda name=name, question=question: _asked(host, name, question, timeout_s), f"import-{name}")  # type: ignore[misc]
        for question in questions(names_in(host, "/dev"), use_gpus=use_gpus)
        for name in question.split(":")[1:2]
    }
    until_s = time.monotonic() + timeout_s + PATIENCE_S
    found = [_in_time(name, task, until_s, timeout_s) for name, task in tasks.items()]
    return ImportFacts(modules=tuple(one for one in found if one.outcome != "absent"))


def _in_time(name: str, task: Task[Import], until_s: float, limit_s: float) -> Import:
    """What came of it; a machine too busy to look at a silent child in time does not lose what another one said."""
    try:
        return task.result(timeout_s=until_s - time.monotonic())
    except DeadlineExceeded:
        return Import(module=name, outcome="silent", duration_s=round(limit_s, 2), limit_s=limit_s)


def _asked(host: Host, name: str, question: str, timeout_s: float) -> Import:
    answer: Any = host.probe(question, timeout_s=timeout_s)
    try:
        return msgspec.convert({**answer, "module": name}, Import)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise FactUnavailable("the answer about importing {name} is not readable", name=name) from error
