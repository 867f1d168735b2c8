"""When lines of a signature have another meaning than usual."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from allready.model import Event, FaultClass, Role, Severity
from allready.patterns import compiled

EventsById = Mapping[str, Sequence[Event]]
"""Signature -> all its lines in a run."""


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions, all of which must hold, under which lines of a signature have another meaning: `[[finding.when]]`.

    Conditions: `text`, an expression found in the line; `front`, one found in what stands before the words that were
    known; `progress`, the process made progress behind it, and no traceback there ended it; `values`, group ->
    expression that its whole value fits; `beside`, a signature of which the same host wrote a line; `without`, one that
    has no line in the whole run.  A condition that one signature alone needs is a function in `conditions.py`.

    The meaning then: `role`, of one line, settled when it is read; `severity` and `fault_class`, of the finding, where
    the conditions hold for all its lines; `can_go_without`, of one line: it is about something that its library can do
    without, so that it is no error where the program counts its steps behind it.
    """

    text: str = ""
    front: str = ""
    values: dict[str, str] = {}
    progress: bool = False
    beside: str = ""
    without: str = ""
    role: Role | None = None
    severity: Severity | None = None
    fault_class: FaultClass | None = None
    can_go_without: bool = False

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
