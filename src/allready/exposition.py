"""Prometheus' text format 0.0.4."""

from collections.abc import Iterator, Sequence


def metric(name: str, about: str, rows: Sequence[tuple[str, object]], *, kind: str = "gauge") -> Iterator[str]:
    """One metric with the rows that it has: labels and value."""
    if rows:
        yield f"# HELP allready_{name} {about}"
        yield f"# TYPE allready_{name} {kind}"
        yield from (f"allready_{name}{{{labels}}} {value}" for labels, value in rows)


def escape(text: str) -> str:
    """The value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
