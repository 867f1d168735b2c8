"""What a parser of one kind of file gives."""

import re

from msgspec import Struct

from allready.model.settings import Call, Malformed, Setting, SourceKind

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_SETTINGS = 5000
MAX_VALUE_CHARS = 4096


class Assignment(Struct, frozen=True):
    """NAME=VALUE on one line; value None where it is only known when the file runs."""

    name: str
    value: str | None
    line: int
    exported: bool = True


class Found(Struct, kw_only=True):
    """What was found, without the name of the file."""

    assignments: list[Assignment] = []
    calls: list[tuple[str, int, tuple[str, ...], str | None]] = []  # function, line, keywords, back-end
    malformed: list[tuple[int, str, str]] = []  # line, text, why

    def named(self, source: str, kind: SourceKind) -> tuple[list[Setting], list[Call], list[Malformed]]:
        """The same with the file's name and kind, within bounds."""
        settings = [
            Setting(
                name=a.name,
                value=a.value[:MAX_VALUE_CHARS] if a.value is not None else None,
                source=source,
                line=a.line,
                kind=kind,
                exported=a.exported,
            )
            for a in self.assignments[:MAX_SETTINGS]
        ]
        calls = [
            Call(function=f, source=source, line=line, keywords=keywords, backend=backend)
            for f, line, keywords, backend in self.calls[:MAX_SETTINGS]
        ]
        malformed = [
            Malformed(source=source, line=line, text=text[:200], why=why)
            for line, text, why in self.malformed[:MAX_SETTINGS]
        ]
        return settings, calls, malformed
