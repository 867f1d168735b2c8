"""Run `allready check` on the nodes of a lab and see what each node's report says, and when."""

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from allready.lab import Lab
from allready.lab.faults import Fault
from allready.lab.scenario import Command, run_scenario

PORT = 29500


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one node said in the end."""

    exit_code: int | None
    report: dict[str, Any]
    named_after_s: float | None  # from when the last node was up until a report.json first held this verdict
    output: str
    errors: str
    paused_s: float = 0.0  # this machine made no progress for so long meanwhile

    @property
    def status(self) -> str:
        return str(self.report["status"])

    @property
    def verdict(self) -> dict[str, Any]:
        verdict = self.report["verdict"]
        assert verdict is not None, self.output + self.errors
        return dict(verdict)

    @property
    def accused(self) -> dict[str, Any]:
        """The verdict's class and the ranks or nodes that it names."""
        named = {k: v for k, v in self.verdict["culprits"].items() if v}
        return {"class": self.verdict["fault_class"], **named}

    @property
    def worst(self) -> list[str]:
        """Codes of findings above info."""
        return [f["code"] for f in self.report["findings"] if f["severity"] != "info"]


@dataclass(kw_only=True)
class _Watch:
    """When each node's report.json first held each verdict."""

    folder: Path
    started: float = field(default_factory=time.monotonic)
    started_at: float = field(default_factory=time.time)
    first: dict[tuple[int, str, str], float] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)
    paused_s: float = 0.0

    def run(self, nodes: Sequence[int]) -> None:
        before = time.monotonic()
        while not self.done.wait(0.1):
            now = time.monotonic()
            self.paused_s += max(0.0, now - before - 0.4)
            before = now
            for node in nodes:
                try:
                    report = json.loads((self.folder / str(node) / "report.json").read_bytes())
                except FileNotFoundError:
                    continue
                if report["verdict"] is not None:
                    key = (node, report["verdict"]["code"], json.dumps(report["verdict"]["culprits"]))
                    self.first.setdefault(key, time.monotonic() - self.started)


def argv(
    node_rank: int, num_nodes: int, folder: Path, *extra: str, master: str = "10.77.0.1", command: str = "check"
) -> list[str]:
    return [
        sys.executable,
        "-m",
        "allready",
        command,
        "--nnodes",
        str(num_nodes),
        "--node-rank",
        str(node_rank),
        "--nproc-per-node",
        "1",
        "--master-addr",
        master,
        "--master-port",
        str(PORT),
        *(["--quick"] if command == "check" else []),
        "--report-dir",
        str(folder),
        *extra,
    ]


def check(
    lab: Lab,
    folder: Path,
    faults: Sequence[Fault] = (),
    *,
    extra: Sequence[str] = (),
    extra_of: Mapping[int, Sequence[str]] | None = None,
    env_of: Mapping[int, Mapping[str, str]] | None = None,
    num_nodes: int = 2,
    master: str = "10.77.0.1",
    timeout_s: float = 60.0,
    command: str = "check",
) -> dict[int, Seen]:
    """One check (or another `command`) on all nodes; `extra_of` comes last on the command line and so wins."""
    commands = {
        node: Command(
            argv=argv(
                node,
                num_nodes,
                folder / str(node),
                *extra,
                *(extra_of or {}).get(node, ()),
                master=master,
                command=command,
            ),
            env=(env_of or {}).get(node, {}),
        )
        for node in range(num_nodes)
    }
    watch = _Watch(folder=folder)
    thread = threading.Thread(target=watch.run, args=(range(num_nodes),))
    thread.start()
    try:
        result = run_scenario(lab, commands, faults, timeout_s=timeout_s)
    finally:
        watch.done.set()
        thread.join()
    seen: dict[int, Seen] = {}
    present = {node: outcome for node, outcome in result.nodes.items() if outcome.start_s is not None}
    reports = {}
    for node, outcome in present.items():
        assert not outcome.timed_out, outcome.stdout + outcome.stderr
        reports[node] = json.loads((folder / str(node) / "report.json").read_bytes())
    # Up is a node when its check begins: how long Python takes until then is a matter of this machine.
    up_s = max(datetime.fromisoformat(r["started"]).timestamp() for r in reports.values()) - watch.started_at
    for node, outcome in present.items():
        report = reports[node]
        verdict = report["verdict"]
        key = (node, verdict["code"], json.dumps(verdict["culprits"])) if verdict else None
        first = watch.first.get(key) if key else None
        seen[node] = Seen(
            exit_code=outcome.returncode,
            report=report,
            named_after_s=None if first is None else first - up_s,
            output=outcome.stdout,
            errors=outcome.stderr,
            paused_s=watch.paused_s,
        )
    return seen
