"""What was really done, written at the moment before it is done: the scorer measures from here."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any


class Truth:
    """Writes `fault-ID.RANK.json` into the plan's folder; each file appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def was_recorded(self, fault_id: int, rank: int) -> bool:
        """Whether this fault was injected already, by an earlier attempt of the same rank."""
        return self._path(fault_id, rank).exists()

    def _path(self, fault_id: int, rank: int) -> Path:
        return self._folder / f"fault-{fault_id}.{rank}.json"

    def record(self, fault: dict[str, Any], rank: int, step: int, **details: Any) -> None:
        """The fault is in force from now on (or the rank is ready for what the driver does from outside)."""
        self._write(fault, rank, step, "injected", details)

    def give_up(self, fault: dict[str, Any], rank: int, step: int, why: str) -> None:
        self._write(fault, rank, step, "not_injected", {"why": why})

    def _write(self, fault: dict[str, Any], rank: int, step: int, status: str, details: dict[str, Any]) -> None:
        truth = {
            "id": fault["id"],
            "kind": fault["kind"],
            "rank": rank,
            "step": step,
            "status": status,
            "injected_s": time.time(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            **details,
        }
        path = self._path(fault["id"], rank)
        if path.exists():
            return
        temporary = path.with_suffix(f".{os.getpid()}.new")
        temporary.write_text(json.dumps(truth), encoding="utf-8")
        temporary.replace(path)
