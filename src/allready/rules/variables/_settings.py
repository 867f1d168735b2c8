"""What the rules about settings share: grouped assignments, versions, and hits that name file and line."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    Hit,
    PerNode,
    RemedyStep,
    Setting,
    Settings,
    Severity,
    SoftwareFacts,
)
from allready.variables import table, values
from allready.variables.table import Reader, Variable
from allready.variables.versions import nccl_backend

T = TypeVar("T")
MAX_PLACES = 8


class Same(Struct, frozen=True):
    """Assignments of one name and value, in the order of the files."""

    all: tuple[Setting, ...]

    @property
    def first(self) -> Setting:
        """The one whose place a finding names."""
        return self.all[0]

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def value(self) -> str | None:
        """None where it is only known when the file runs."""
        return self.first.value

    @property
    def sureness(self) -> Confidence:
        """How sure it is that the setting will meet this machine: a file may run elsewhere as well."""
        return Confidence.CERTAIN if self.first.line is None else Confidence.LIKELY

    def unset(self) -> str:
        """The command that removes the variable from this environment; "" for a line in a file, which is edited."""
        return f"unset {self.name}" if self.first.line is None else ""

    def export(self, value: str | None, *, name: str = "") -> str:
        """The command that changes the variable in this environment, also to another name; "" for a line in a file."""
        if self.first.line is not None or not value:
            return ""
        before = f"unset {self.name}; " if name and name != self.name else ""
        return f"{before}export {name or self.name}={shlex.quote(value)}"


def known(settings: Settings, *, here: bool = False) -> Iterator[tuple[Variable, Same]]:
    """Rows of the table that are set, each with its assignments of one value.

    here: only those whose interfaces, devices and files are this machine's.
    """
    for same in grouped(settings.here() if here else settings.settings):
        variable = table.load().get(same.name)
        if variable is not None:
            yield variable, same


def grouped(settings: Iterable[Setting]) -> list[Same]:
    """Assignments of one name and value together."""
    found: dict[tuple[str, str | None], list[Setting]] = {}
    for setting in settings:
        found.setdefault((setting.name, setting.value), []).append(setting)
    return [Same(tuple(group)) for group in found.values()]


def this(facts: PerNode[T] | None) -> T | None:
    """The facts of the machine where the lint runs."""
    return next(iter(facts.values()), None) if facts else None


def versions(software: PerNode[SoftwareFacts] | None) -> Mapping[str, str]:
    """Versions by name; {} when they are not known."""
    found = this(software)
    return found.versions if found else {}


def backend(settings: Settings, software: PerNode[SoftwareFacts] | None) -> Reader | None:
    """torch's process group for NCCL with these versions and settings."""
    return nccl_backend(versions(software), settings.value("TORCH_DIST_USE_NCCL2"))


def remedy(explanation: str, *more: RemedyStep) -> tuple[RemedyStep, ...]:
    """What to do about an assignment: where it stands, for this environment the command, and what else helps."""
    return (
        RemedyStep(explanation=explanation, where="line {line} of {file}"),
        RemedyStep(explanation="in the shell that starts the job", command="{command}"),
        *more,
    )


def line_remedy(explanation: str) -> tuple[RemedyStep, ...]:
    """What to do about a line that is no assignment."""
    return (RemedyStep(explanation=explanation, where="line {line} of {file}"),)


def at_line(source: str, line: int, name: str, *, confidence: Confidence = Confidence.CERTAIN, **values: object) -> Hit:
    """One finding about a line that is no assignment: a slip, or a call."""
    text = str(values.get("text", name))
    return Hit(
        confidence=confidence,
        culprits=Culprits(variables=(name,)) if name.isupper() else Culprits(),
        values={"name": name, "file": source, "line": line, **values},
        evidence=(Evidence(source=f"{source}:{line}", text=text),),
    )


def hit(
    same: Same,
    *,
    severity: Severity | None = None,
    confidence: Confidence = Confidence.CERTAIN,
    more: Iterable[Setting] = (),
    **values: object,
) -> Hit:
    """One finding about assignments of one name and value.

    `name`, `value`, `file` and `line` are always among the values; `command` changes this environment, "" where the
    assignment stands in a file, which is to be edited.
    more: other assignments that belong to it, for settings that contradict each other.
    """
    first = same.first
    others = list(more)
    names = tuple(dict.fromkeys([first.name, *(s.name for s in others)]))
    place = {"file": first.source, "line": first.line}
    return Hit(
        severity=severity,
        confidence=confidence,
        culprits=Culprits(variables=names),
        values={"name": first.name, "value": shown(first)[:120], "command": "", **place, **values},
        evidence=tuple(
            Evidence(source=s.place, text=f"{s.name}={shown(s)[:200]}")
            for s in [*same.all[:MAX_PLACES], *others[:MAX_PLACES]]
        ),
    )


def shown(setting: Setting) -> str:
    """The value as people read it."""
    return "$..." if setting.value is None else setting.value


def problems(settings: Settings, *kinds: values.ProblemKind) -> Iterator[tuple[Same, values.Problem]]:
    """Assignments whose value has a problem of one of these kinds."""
    for variable, same in known(settings):
        if same.value is not None:
            yield from ((same, p) for p in values.check(variable, same.value) if p.kind in kinds)
