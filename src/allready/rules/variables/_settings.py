"""What the rules about settings share: grouped assignments, versions, and hits that name file and line."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

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
UNKNOWN = "?"
"""A value that the message leaves out with the part in [[ ]] around it."""


def known(settings: Settings) -> Iterator[tuple[Variable, list[Setting]]]:
    """Rows of the table that are set, each with its assignments of one value, in the order of the files."""
    for same in grouped(settings.settings):
        variable = table.load().get(same[0].name)
        if variable is not None:
            yield variable, same


def known_here(settings: Settings) -> Iterator[tuple[Variable, list[Setting]]]:
    """The same of settings whose interfaces, devices and files are this machine's."""
    for same in grouped(settings.here()):
        variable = table.load().get(same[0].name)
        if variable is not None:
            yield variable, same


def grouped(settings: Iterable[Setting]) -> list[list[Setting]]:
    """Assignments of one name and value together."""
    found: dict[tuple[str, str | None], list[Setting]] = {}
    for setting in settings:
        found.setdefault((setting.name, setting.value), []).append(setting)
    return list(found.values())


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


def sureness(setting: Setting) -> Confidence:
    """How sure it is that a setting will meet this machine: a file may run elsewhere as well."""
    return Confidence.CERTAIN if setting.line is None else Confidence.LIKELY


def remedy(explanation: str) -> tuple[RemedyStep, ...]:
    """What to do about an assignment: where it stands, and for this environment the command."""
    return (
        RemedyStep(explanation=explanation, where="line {line} of {file}"),
        RemedyStep(explanation="in the shell that starts the job", command="{command}"),
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
    same: list[Setting],
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
    first = same[0]
    others = list(more)
    names = tuple(dict.fromkeys([first.name, *(s.name for s in others)]))
    place = {"file": first.source, "line": UNKNOWN if first.line is None else first.line}
    return Hit(
        severity=severity,
        confidence=confidence,
        culprits=Culprits(variables=names),
        values={"name": first.name, "value": shown(first)[:120], "command": "", **place, **values},
        evidence=tuple(
            Evidence(source=s.place, text=f"{s.name}={shown(s)[:200]}")
            for s in [*same[:MAX_PLACES], *others[:MAX_PLACES]]
        ),
    )


def shown(setting: Setting) -> str:
    """The value as people read it."""
    return "$..." if setting.value is None else setting.value


def removal(setting: Setting) -> str:
    """The command that removes a variable from this environment; "" for a line in a file."""
    return f"unset {setting.name}" if setting.line is None else ""


def export(setting: Setting, value: str | None, *, name: str = "") -> str:
    """The command that changes a variable of this environment, also to another name; "" for a line in a file."""
    if setting.line is not None or not value:
        return ""
    before = f"unset {setting.name}; " if name and name != setting.name else ""
    return f"{before}export {name or setting.name}={shlex.quote(value)}"


def problems(settings: Settings, *kinds: values.Kind) -> Iterator[tuple[list[Setting], values.Problem]]:
    """Assignments whose value has a problem of one of these kinds."""
    for variable, same in known(settings):
        value = same[0].value
        if value is not None:
            yield from ((same, p) for p in values.check(variable, value) if p.kind in kinds)
