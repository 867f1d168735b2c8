"""What the tests of this folder share: reading text, and signatures of their own."""

from collections.abc import Mapping

import pytest

from allready.evidence.log import events, read_lines
from allready.evidence.reading import Reading
from allready.model import Role
from allready.signatures import LinePattern, Signature, table

MTIME_S = 1_795_176_000.0  # 2026-11-20 12:00


def read(text: str, source: str = "out.log", *, mtime_s: float | None = MTIME_S) -> Reading:
    """A text without its common margin, as a file that was written then."""
    return read_lines(text.strip("\n").splitlines(), source, mtime_s=mtime_s)


def use_signatures(monkeypatch: pytest.MonkeyPatch, patterns: Mapping[str, tuple[str, str]]) -> None:
    """Only these instead of the real ones: id -> (anchor, pattern)."""
    made = []
    for name, (anchor, pattern) in patterns.items():
        line = LinePattern(anchor=anchor, source=pattern, example="")
        made.append((anchor, line, Signature(id=name, family="torch", role=Role.CASCADE, lines=(line,))))
    monkeypatch.setattr(table, "by_anchor", lambda: tuple(made))
    monkeypatch.setattr(table, "anchors", lambda: tuple(anchor for anchor, _, _ in made))
    monkeypatch.setattr(events, "_known_candidates", events._candidates)  # remembers nothing of these
