"""Whether torch and JAX can be imported here, each asked in a child with a deadline."""

from typing import Any

import msgspec

from allready.errors import FactUnavailable
from allready.facts.host import Host
from allready.facts.tasks import Task
from allready.model import Import, ImportFacts

MODULES = ("torch", "jax")


def collect_imports(host: Host, *, timeout_s: float) -> ImportFacts:
    """Import each in a process of its own, beside each other; what is not installed is left out.

    Raises:
        FactUnavailable: none could be tried.
    """
    tasks = {name: Task(lambda name=name: _asked(host, name, timeout_s), f"import-{name}") for name in MODULES}  # type: ignore[misc]
    found = [task.result(timeout_s=timeout_s + 3.0) for task in tasks.values()]
    return ImportFacts(modules=tuple(one for one in found if one.outcome != "absent"))


def _asked(host: Host, name: str, timeout_s: float) -> Import:
    answer: Any = host.probe(f"import:{name}", timeout_s=timeout_s)
    try:
        return msgspec.convert({**answer, "module": name}, Import)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise FactUnavailable(f"the answer about importing {name} is not readable") from error
