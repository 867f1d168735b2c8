"""Reads what the injector wrote: what was really done, to which rank, when."""

from pathlib import Path
from typing import Any

import msgspec


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """One fault in one rank, or (rank None) in the lab.  `injected_s` is wall-clock time, just before it was done."""

    id: int
    kind: str
    rank: int | None
    step: int | None
    status: str  # "injected" or "not_injected"
    injected_s: float
    pid: int | None = None
    host: str = ""
    op: str = ""
    detail: str = ""
    why: str = ""
    cpu: int | None = None
    period_s: float | None = None
    cleanup: tuple[str, ...] = ()  # control groups to remove when the rank has ended
    children: tuple[int, ...] = ()
    path: str = ""
    percent: float | None = None
    limit_bytes: int | None = None


def read_truth(folder: Path) -> list[Injected]:
    """Everything that was recorded so far, by time."""
    found = [msgspec.json.decode(path.read_bytes(), type=Injected) for path in folder.glob("fault-*.json")]
    return sorted(found, key=lambda truth: truth.injected_s)


def problems(folder: Path) -> list[str]:
    """What the injector itself could not do, in its words: no fault was injected there."""
    return [path.read_text(encoding="utf-8").strip() for path in sorted(folder.glob("problem-*.txt"))]


def write_truth(folder: Path, truth: Injected) -> None:
    """Record a fault that was done from outside; a reader sees the whole file or none."""
    values: dict[str, Any] = {k: v for k, v in msgspec.structs.asdict(truth).items() if v not in (None, "", ())}
    values |= {"rank": truth.rank, "step": truth.step}
    path = folder / f"fault-{truth.id}.driver.json"
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(values))
    temporary.replace(path)
