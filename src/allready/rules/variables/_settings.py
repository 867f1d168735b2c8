"""What the rules about settings share: grouped assignments, versions, and hits that name file and line."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from allready.model import Confidence, Culprits, Evidence, Hit, PerNode, Setting, Settings, Severity, SoftwareFacts
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


def hit(
    same: list[Setting],
    *,
    severity: Severity | None = None,
    confidence: Confidence = Confidence.CERTAIN,
    more: Iterable[Setting] = (),
    **values: object,
) -> Hit:
    """One finding about assignments of one name and value.

    `name`, `value` and `place` are always among the values; `command` is what to copy, "" where nothing is.
    more: other assignments that belong to it, for settings that contradict each other.
    """
    first = same[0]
    shown = first.value if first.value is not None else "$..."
    others = list(more)
    names = tuple(dict.fromkeys([first.name, *(s.name for s in others)]))
    return Hit(
        severity=severity,
        confidence=confidence,
        culprits=Culprits(variables=names),
        values={"name": first.name, "value": shown[:120], "place": first.place, "command": "", **values},
        evidence=tuple(
            Evidence(source=s.place, text=f"{s.name}={'$...' if s.value is None else s.value[:200]}")
            for s in [*same[:MAX_PLACES], *others[:MAX_PLACES]]
        ),
    )


def removal(setting: Setting) -> str:
    """What to type to be rid of a variable of this environment; "" for a line in a file, which is to be edited."""
    return f"unset {setting.name}" if setting.line is None else ""


def assignment(setting: Setting, name: str, value: str) -> str:
    """An assignment as this kind of file writes it."""
    text = f"{name}={value}"
    if any(c in value for c in " ;|&<>()$`\"'\\*?#~"):
        text = f"{name}='{value}'"
    return f"export {text}" if setting.line is None or setting.kind.value in {"shell", "markdown"} else text


def problems(settings: Settings, *kinds: values.Kind) -> Iterator[tuple[list[Setting], values.Problem]]:
    """Assignments whose value has a problem of one of these kinds."""
    for variable, same in known(settings):
        value = same[0].value
        if value is not None:
            yield from ((same, p) for p in values.check(variable, value) if p.kind in kinds)
