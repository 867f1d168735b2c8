"""Sees each node's report.json while it is rewritten: what stood there, and when it first did."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One state of one node's report.  `time_s`: wall clock, when the file was written."""

    node: int
    time_s: float
    status: str
    verdict: Mapping[str, Any] | None
    findings: tuple[Mapping[str, Any], ...] = ()
    world_size: int | None = None

    @property
    def code(self) -> str:
        """The verdict's code; empty without one."""
        return str(self.verdict["code"]) if self.verdict else ""

    @property
    def fault_class(self) -> str:
        """The verdict's class; empty without one."""
        return str(self.verdict["fault_class"]) if self.verdict else ""

    @property
    def is_confident(self) -> bool:
        """Whether the verdict is more than possible."""
        return self.verdict is not None and self.verdict["confidence"] in {"likely", "certain"}

    def culprits(self) -> dict[str, tuple[Any, ...]]:
        """The verdict's culprits that are not empty."""
        return culprits_of(self.verdict)


def culprits_of(claim: Mapping[str, Any] | None) -> dict[str, tuple[Any, ...]]:
    """Culprits of a verdict or finding, those that are not empty; links as pairs."""
    found = dict((claim or {}).get("culprits") or {})
    if "links" in found:
        found["links"] = [tuple(link) for link in found["links"]]
    return {key: tuple(value) for key, value in found.items() if value}


class Watch:
    """Call `look` often; `said` has every change, by time."""

    def __init__(self, folders: Mapping[int, Path]) -> None:
        self._files = {node: folder / "report.json" for node, folder in folders.items()}
        self._seen: dict[int, tuple[int, int]] = {}
        self._last: dict[int, str] = {}
        self.said: list[Said] = []
        self.broken: list[str] = []

    def look(self) -> bool:
        """Read what is new; True when anything that matters has changed."""
        before = len(self.said)
        for node, path in self._files.items():
            try:
                stat = path.stat()
                version = (stat.st_ino, stat.st_mtime_ns)
                if self._seen.get(node) == version:
                    continue
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            self._seen[node] = version
            try:
                report = json.loads(text)
                self._note(node, stat.st_mtime_ns / 1e9, report)
            except (ValueError, KeyError, TypeError) as error:
                self.broken.append(f"node {node}: {error!r}")  # a report is whole or not there: that is promised
        return len(self.said) > before

    def _note(self, node: int, time_s: float, report: Mapping[str, Any]) -> None:
        verdict = report["verdict"]
        findings = tuple(
            {key: f[key] for key in ("code", "severity", "fault_class", "confidence", "culprits", "message")}
            for f in report["findings"]
        )
        what = json.dumps(
            [
                report["status"],
                {k: v for k, v in (verdict or {}).items() if k in {"code", "culprits", "fault_class", "confidence"}},
                [(f["code"], f["culprits"]) for f in findings],
            ]
        )
        if self._last.get(node) == what:
            return
        self._last[node] = what
        world = (report.get("world") or {}).get("world_size")
        self.said.append(
            Said(
                node=node,
                time_s=time_s,
                status=str(report["status"]),
                verdict=verdict,
                findings=findings,
                world_size=world,
            )
        )

    def last(self, node: int) -> Said | None:
        """The newest state of a node's report."""
        return next((said for said in reversed(self.said) if said.node == node), None)
