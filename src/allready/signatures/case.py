"""When lines of a signature say something else than usual."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from allready.model import Event, FaultClass, Role, Severity

EventsById = Mapping[str, Sequence[Event]]
"""Signature -> all its lines in a run."""


class Case(Struct, frozen=True, kw_only=True):
    """Conditions, all of which must hold, under which lines of a signature say something else: `[[finding.when]]`.

    Conditions: `text`, an expression found in the line; `front`, one found in what stands before the words that were
    known; `progress`, the process made progress behind it, and no traceback there ended it; `values`, group ->
    expression that its whole value fits; `beside`, a signature of which the same host wrote a line; `without`, one that
    has no line in the whole run.  A condition that one signature alone needs is a function in `conditions.py`.

    What it says then: `role`, of one line, settled when it is read; `severity` and `fault_class`, of the finding, where
    the conditions hold for all its lines.
    """

    text: str = ""
    front: str = ""
    values: Mapping[str, str] = {}
    progress: bool = False
    beside: str = ""
    without: str = ""
    role: Role | None = None
    severity: Severity | None = None
    fault_class: FaultClass | None = None

    def holds(self, text: str, values: Mapping[str, str], *, front: str = "", has_progress: bool = False) -> bool:
        """Whether all conditions on the line itself hold."""
        return (
            (not self.progress or has_progress)
            and all(compiled(source).fullmatch(values.get(name, "")) for name, source in self.values.items())
            and (not self.text or compiled(self.text).search(text) is not None)
            and (not self.front or compiled(self.front).search(front) is not None)
        )

    def holds_for_all(self, lines: Sequence[Event], run: EventsById) -> bool:
        """Whether all conditions hold for all lines of a finding; not for none."""
        if not lines or (self.without and run.get(self.without)):
            return False
        hosts = {event.origin.host for event in run.get(self.beside, ())}
        return all(self.holds(e.text, e.values) and (not self.beside or e.origin.host in hosts) for e in lines)


UNCHANGED = Case()


def case_from(name: str, entry: Mapping[str, Any]) -> Case:
    """`[[finding.when]]` of the finding with this name."""
    unknown = set(entry) - set(Case.__struct_fields__)
    assert not unknown, f"{name}: {unknown} is no condition"
    case = Case(
        text=entry.get("text", ""),
        front=entry.get("front", ""),
        values=dict(entry.get("values", {})),
        progress=bool(entry.get("progress", False)),
        beside=str(entry.get("beside", "")),
        without=str(entry.get("without", "")),
        role=Role(entry["role"]) if "role" in entry else None,
        severity=Severity(entry["severity"]) if "severity" in entry else None,
        fault_class=FaultClass(entry["fault_class"]) if "fault_class" in entry else None,
    )
    changes = (case.severity, case.fault_class)
    assert (case.role is None) == any(changes), (
        f"{name}: a case changes a line's role, or a finding's severity and class"
    )
    assert case.role is not None or not (case.front or case.progress), f"{name}: what was around a line is not kept"
    others = (case.beside, case.without)
    assert case.role is None or not any(others), f"{name}: a line is read before others are known"
    return case


@functools.cache
def compiled(source: str) -> re.Pattern[str]:
    """An expression of the tables, compiled once."""
    return re.compile(source)
