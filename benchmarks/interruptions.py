"""Interrupt jobs at random moments, and see whether a verdict is lost or made up, and whether anything is left behind.

    python benchmarks/interruptions.py --number 20 --seed 1
    python benchmarks/interruptions.py --number 200 --jobs 8 --out trials --json benchmarks/results/interruptions.json

It needs no installation: the sources beside it are used where allready is not installed.  With `--jobs N`, N trials run
at a time, each on processors and ports of its own; give each some two processors.

Each trial starts a job under `allready run` (on one or two "nodes" of this machine, torch over Gloo, or JAX where it is
installed), in which a rank sleeps in a step, is stopped, or nothing is wrong, or which is interrupted while it starts.
At a random moment a signal goes to one agent, to all, or, as a scheduler does it, to agents and ranks; sometimes twice.
SIGUSR1 is the warning of a scheduler: where only agents get it (ranks that only start have no handler for it), SIGTERM
follows.  SIGKILL is the end of an agent, or of all.  In some trials the disk of the report folders is full before
(needs the right to mount).  With `--unusual` each trial also has what is seldom: SIGQUIT, four signals in a row, a
signal while a report is written, SIGKILL while the job starts, a disk that is full while the job still runs, agents
that are stopped and continued before, SIGKILL soon after the signal, the same signal again within 40 ms, one agent that
is stopped for 15 s, output whose reader is gone, a terminal that is closed, a signal to the ranks and no agent.  Then:

kept      the verdict that stood before the signal stands in every report (where there was room for one), and none
          blames any rank else; where nothing was proven yet, the node whose agent was killed may be blamed
true      no finding of level error is about what the end itself does: ranks that left, ended by SIGTERM, lost peers
honest    the status is never healthy, and the exit code in the report is that of the process
clean     every process has ended within the grace and 10 s, and neither processes nor run folders are left

The truth is what was injected.  Exit code 1 when a trial fails.  Of one that failed, the folder is kept under `--out`,
and the JSON has what it left: every report as it changed, with its time from the signal on, the findings of the last
ones, how agents ended, and what they printed last.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import random
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from side_by_side import Lane, Lanes, use_this_checkout

use_this_checkout()

from allready.live.run_paths import run_dirs  # noqa: E402
from allready.model.process import ENDING_SIGNALS  # noqa: E402
from allready.proc.process import ProcessId, children_of, identify, is_running  # noqa: E402

GRACE_S = 3.0
CLEAN_S = 10.0
STARTS_S = 90.0
STARTING_WAIT_S = 8.0
"""So long the other node waits for one that was ended before it had come."""
SIGNALS = ("SIGINT", "SIGINT", "SIGTERM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGKILL")
ONCE = ("SIGUSR1", "SIGKILL")
AIMS = ("first", "last", "agents", "all", "ranks first")
UNUSUAL = (
    "SIGQUIT",
    "row",
    "report",
    "starts",
    "disk",
    "paused",
    "killed",
    "twice",
    "long",
    "pipe",
    "terminal",
    "ranks",
)
IN_A_ROW, BETWEEN_S = 4, 0.1
TWICE_S = 0.04
PAUSE_S = 2.0
LONG_PAUSE_S = 15.0
REPORT_WAIT_S = 12.0
FOLLOWS_S = 2.0
"""After a warning that only agents got, SIGTERM comes so much later."""
DISK_KB = 512
LOOK_EVERY_S = 0.05
TAIL_BYTES = 6000
FIRST_PORT, PORTS_PER_LANE = 15000, 400
"""Below the ports that the kernel gives to connections; every trial of a lane takes others than the one before."""
CONSEQUENCES = ("LIV007", "LIV012", "DTH", "GLO", "JOB009", "JOB010", "ELA", "TCH")
"""What an end looks like afterwards: left early, terminated, dead, connection closed, node lost."""

TORCH = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, culprit, fault, folder = dist.get_rank(), int(sys.argv[1]), sys.argv[2], sys.argv[3]
x = torch.ones(256)
for step in range(100000):
    if step == 30:
        open(f"{folder}/runs{rank}", "w").write(str(os.getpid()))
    if step == 40 and rank == culprit and fault == "sleep":
        open(f"{folder}/hangs", "w").close()
        time.sleep(1000)
    dist.all_reduce(x)
    time.sleep(0.02)
"""
JAX = """
import os, sys, time
import jax, numpy as np
jax.distributed.initialize()
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rank, culprit, fault, folder = jax.process_index(), int(sys.argv[1]), sys.argv[2], sys.argv[3]
mesh = Mesh(np.array(jax.devices()), ("all",))
sharding, number = NamedSharding(mesh, P("all")), jax.device_count()
values = jax.make_array_from_callback((number,), sharding, lambda i: np.ones(1, np.float32))
total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))
for step in range(100000):
    if step == 30:
        open(f"{folder}/runs{rank}", "w").write(str(os.getpid()))
    if step == 40 and rank == culprit and fault == "sleep":
        open(f"{folder}/hangs", "w").close()
        time.sleep(1000)
    total(values).block_until_ready()
    time.sleep(0.02)
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is done.  `fault`: "sleep", "stop", "none", "starting"; `delay_s`: from the fault (or the start) on;
    `aim`: "first", "last", "agents", "all", "ranks first", "ranks"."""

    number: int
    framework: str
    nodes: int
    fault: str
    culprit: int
    signal: str
    aim: str
    delay_s: float
    second_s: float | None
    is_disk_full: bool = False
    unusual: str = ""
    kill_s: float | None = None

    @classmethod
    def draw(cls, number: int, chance: random.Random, frameworks: Sequence[str]) -> "Trial":
        """One at random."""
        fault = chance.choice(["sleep", "sleep", "sleep", "stop", "none", "starting"])
        framework = chance.choice(frameworks) if fault != "stop" else "torch"
        nodes = chance.choice([1, 2])
        return cls(
            number=number,
            framework=framework,
            nodes=nodes,
            fault=fault,
            culprit=chance.randrange(2),
            signal=(name := chance.choice(SIGNALS)),
            aim=chance.choice(["first", "last", "agents"] if name == "SIGKILL" else AIMS),
            delay_s=round(chance.uniform(0.0, {"sleep": 10.0, "stop": 6.0, "none": 4.0, "starting": 4.0}[fault]), 2),
            second_s=round(chance.uniform(0.0, 1.5), 2) if chance.random() < 0.2 and name not in ONCE else None,
            is_disk_full=chance.random() < 0.1 and fault != "starting" and name not in ONCE,
        )

    def with_something_unusual(self, chance: random.Random) -> "Trial":
        """The same with one of UNUSUAL."""
        kind = chance.choice(UNUSUAL)
        changes: dict[str, Any] = {}
        if kind == "SIGQUIT":
            changes = {"signal": "SIGQUIT"}
        elif kind == "starts":
            changes = {"fault": "starting", "signal": "SIGKILL", "aim": chance.choice(["first", "last", "agents"])}
            changes |= {"second_s": None, "is_disk_full": False}
        elif kind == "disk":
            changes = {"is_disk_full": True, "fault": "none" if self.fault == "starting" else self.fault}
        if kind in {"disk", "killed", "row", "paused", "twice", "long", "pipe"} and self.signal in ONCE:
            changes |= {"signal": "SIGTERM", "aim": chance.choice(AIMS)}
        if kind == "twice":
            changes |= {"second_s": TWICE_S}
        if kind == "terminal":
            changes |= {"signal": "SIGHUP", "aim": "agents", "second_s": None}
        if kind == "ranks":
            changes = {"signal": chance.choice(sorted(ENDING_SIGNALS)), "aim": "ranks", "second_s": None}
            changes |= {"fault": "none"} if self.fault == "starting" else {}
        if kind == "killed":
            changes |= {"kill_s": round(chance.uniform(0.0, 2.0), 2), "second_s": None}
        return replace(self, unusual=kind, **changes)

    def words(self) -> str:
        """One row of the table."""
        again = "" if self.second_s is None else f" twice ({self.second_s} s)"
        disk = " disk full" if self.is_disk_full else ""
        disk += f" {self.unusual}" if self.unusual else ""
        disk += "" if self.kill_s is None else f" after {self.kill_s} s"
        return (
            f"{self.number:3} {self.framework:5} {self.nodes} nodes {self.fault:8} {self.signal:7} "
            f"to {self.aim:11} after {self.delay_s:5.2f} s{again}{disk}"
        )


@dataclass(kw_only=True)
class Outcome:
    """What came of a trial.  `before`: the verdict that stood, `ended_s`: from the signal to the last agent's end."""

    trial: Trial
    problems: list[str] = field(default_factory=list)
    before: str = "-"
    after: str = "-"
    ended_s: float = 0.0
    is_explained: bool = False
    left: dict[str, Any] = field(default_factory=dict)
    """Of a trial that failed: what helps to find out why."""


def port_of(lane: Lane, trial: int) -> int:
    """A port that no other lane uses and that is free, with free ones behind it for torch's store and JAX."""
    first = FIRST_PORT + lane.number * PORTS_PER_LANE
    for turn in range(PORTS_PER_LANE // 50):
        port = first + (trial + turn) * 50 % PORTS_PER_LANE
        if all(_is_free(port + more) for more in range(4)):
            return port
    raise OSError(f"no port of {first} to {first + PORTS_PER_LANE - 1} is free")


class Watch:
    """Every report of the agents as it changes: (seconds, node, status, verdict).  `close` ends its thread."""

    def __init__(self, look: Callable[[int], dict[str, Any] | None], nodes: int) -> None:
        self._look, self._nodes = look, nodes
        self._last: dict[int, tuple[str, str]] = {}
        self.said: list[tuple[float, int, str, str]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.see()

    def see(self) -> None:
        for node in range(self._nodes):
            report = self._look(node)
            now = ("none", "-") if report is None else (report["status"], _words(_verdict(report)))
            if now != self._last.get(node, ("none", "-")):
                self._last[node] = now
                self.said.append((time.monotonic(), node, *now))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)


class Screen:
    """A terminal: `tty` is the agent's end; what is printed goes to a file.  `close` hangs up."""

    def __init__(self, path: Path) -> None:
        self._own, self.tty = os.openpty()
        self._path, self._stop = path, threading.Event()
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._path.open("wb") as file, contextlib.suppress(OSError):  # no rank has the other end open any more
            while not self._stop.is_set():
                if select.select([self._own], [], [], LOOK_EVERY_S)[0]:
                    file.write(os.read(self._own, 65536))
                    file.flush()

    def close(self) -> None:
        """Doing it again changes nothing."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(5)
            os.close(self._own)


class Job:
    """The agents of one trial; `close` ends what is left."""

    def __init__(self, trial: Trial, folder: Path, lane: Lane) -> None:
        self.trial, self.folder = trial, folder
        self.mark = folder.name
        self.reports = folder / "reports"
        self.reports.mkdir()
        self.has_disk = trial.is_disk_full and _run(
            "mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", self.reports
        )
        self.killed: set[int] = set()
        self.children: set[ProcessId] = set()
        script = folder / "train.py"
        script.write_text(JAX if trial.framework == "jax" else TORCH)
        per_node = 2 // trial.nodes
        port = port_of(lane, trial.number)
        self.sent: list[tuple[float, str, int]] = []
        self.screens = [Screen(folder / f"out{node}") for node in range(trial.nodes) if trial.unusual == "terminal"]
        fault = "sleep" if trial.fault == "sleep" else "none"
        self.agents = [
            subprocess.Popen(
                [
                    *(("setsid", "--ctty") if self.screens else ()),
                    *(sys.executable, "-m", "allready", "run", "--rdzv-id", self.mark, "--grace", str(GRACE_S)),
                    *("--nnodes", str(trial.nodes), "--node-rank", str(node), "--nproc-per-node", str(per_node)),
                    *("--master-addr", "127.0.0.1", "--master-port", str(port)),
                    *("--wait", str(STARTING_WAIT_S if trial.fault == "starting" else STARTS_S)),
                    *("--report-dir", str(self.reports / f"report{node}")),
                    *(str(script), str(trial.culprit), fault, str(folder)),
                ],
                stdin=self.screens[node].tty if self.screens else subprocess.DEVNULL,
                stdout=self._output(node),
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
                start_new_session=not self.screens,
            )
            for node in range(trial.nodes)
        ]
        for screen in self.screens:
            os.close(screen.tty)
        self.watch = Watch(self.report, trial.nodes)

    def _output(self, node: int) -> Any:
        if self.screens:
            return self.screens[node].tty
        if self.trial.unusual != "pipe":
            return (self.folder / f"out{node}").open("wb")
        unread, end = os.pipe()
        os.close(unread)
        return os.fdopen(end, "wb")

    def report(self, node: int) -> dict[str, Any] | None:
        """The report as it is now."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.reports / f"report{node}" / "report.json").read_bytes())
            return found
        return None

    def ranks(self) -> list[int]:
        """Processes of the ranks that have come to step 30."""
        return [int(path.read_text()) for path in sorted(self.folder.glob("runs*")) if path.read_text()]

    def send(self) -> None:
        """The signal, to whom the trial says."""
        if self.screens:
            for screen, agent in zip(self.screens, self.agents, strict=True):
                self.sent.append((time.monotonic(), "terminal closed", agent.pid))
                screen.close()
            return
        is_to_ranks = self.trial.aim in {"all", "ranks first"} and len(self.ranks()) == 2
        self.send_one(signal.Signals[self.trial.signal])
        if self.trial.signal == "SIGUSR1" and not is_to_ranks:
            time.sleep(FOLLOWS_S)
            self.send_one(signal.SIGTERM)
        if self.trial.aim == "ranks":  # JAX's go on after SIGTERM
            with contextlib.suppress(TimeoutError):
                _until(self.is_over, CLEAN_S, "")
            for agent in self.agents:
                if agent.poll() is None:
                    self.sent.append((time.monotonic(), "SIGTERM", agent.pid))
                    agent.terminate()

    def pause(self) -> None:
        """Ctrl-Z and `fg`, as far as agents see them; a long one of one agent."""
        is_long = self.trial.unusual == "long"
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for agent in self.agents[-1:] if is_long else self.agents:
                if agent.poll() is None:
                    os.kill(agent.pid, number)
            time.sleep((LONG_PAUSE_S if is_long else PAUSE_S) if number == signal.SIGSTOP else 0.0)

    def await_report(self) -> None:
        """Until a report has just changed, or for some seconds."""
        before, deadline = len(self.watch.said), time.monotonic() + REPORT_WAIT_S
        while len(self.watch.said) == before and time.monotonic() < deadline:
            time.sleep(0.005)

    def kill_agents(self) -> None:
        """The end of a scheduler's patience."""
        for number, agent in enumerate(self.agents):
            if agent.poll() is None:
                self.killed.add(number)
                self.sent.append((time.monotonic(), "SIGKILL", agent.pid))
                os.kill(agent.pid, signal.SIGKILL)

    def fill_disk(self) -> None:
        """Nothing more can be written to the reports' folder."""
        with contextlib.suppress(OSError), (self.reports / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def send_one(self, number: int) -> None:
        """One signal, to whom the trial says."""
        for agent in self.agents:
            self.children |= {known for pid in children_of(agent.pid) or [] if (known := identify(pid)) is not None}
        agents = [agent.pid for agent in self.agents if agent.poll() is None]
        chosen = {
            "first": agents[:1],
            "last": agents[-1:],
            "agents": agents,
            "all": [*agents, *self.ranks()],
            "ranks first": [*self.ranks(), *agents],
            "ranks": self.ranks(),
        }[self.trial.aim]
        for pid in chosen:
            self.sent.append((time.monotonic(), signal.Signals(number).name, pid))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            self.killed |= {n for n, agent in enumerate(self.agents) if agent.pid == pid and number == signal.SIGKILL}

    def is_over(self) -> bool:
        """Whether every agent has ended."""
        return all(agent.poll() is not None for agent in self.agents)

    def post_mortem(self) -> dict[str, Any]:
        """What helps to find out why a trial failed; times are seconds from the first signal."""
        began = self.sent[0][0] if self.sent else self.watch.said[-1][0] if self.watch.said else time.monotonic()
        reports = [self.report(node) for node in range(self.trial.nodes)]
        return {
            "agents": [{"pid": agent.pid, "exit_code": agent.poll()} for agent in self.agents],
            "ranks": self.ranks(),
            "signals": [[round(at - began, 3), name, pid] for at, name, pid in self.sent],
            "reports": [[round(at - began, 3), node, status, words] for at, node, status, words in self.watch.said],
            "findings": [
                [] if report is None else [[f["severity"], f["code"], f["message"][:300]] for f in report["findings"]]
                for report in reports
            ],
            "job": [report and report["job"] for report in reports],
            "not_checked": [report and report["not_checked"][:5] for report in reports],
            "printed": [_tail(self.folder / f"out{node}") for node in range(self.trial.nodes)],
        }

    def left(self) -> list[str]:
        """Processes and run folders of this job that are still there."""
        found = [f"process {pid} (child of an agent)" for pid in self.children if is_running(pid)]
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if self.mark.encode() in (entry / "cmdline").read_bytes():
                        found.append(f"process {entry.name}")
        return found + [str(folder) for folder in run_dirs() if self.mark in folder.name]

    def close(self) -> None:
        """End what is left."""
        self.watch.close()
        for screen in self.screens:
            screen.close()
        for agent in self.agents:
            if agent.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(agent.pid, signal.SIGKILL)
            agent.wait(10)
        if self.has_disk:
            _run("umount", "-l", self.reports)


def _run(*words: str | Path) -> bool:
    return subprocess.run(words, capture_output=True, check=False, timeout=10).returncode == 0


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    return ""


def _begin(job: Job) -> None:
    """Up to the moment of the signal."""
    trial = job.trial
    if trial.fault != "starting":
        _until(lambda: len(job.ranks()) == 2, STARTS_S, "the ranks do not run")
    if trial.fault == "sleep":
        _until((job.folder / "hangs").exists, STARTS_S, "no rank hangs")
    if trial.fault == "stop":
        os.kill(job.ranks()[trial.culprit], signal.SIGSTOP)
    if job.has_disk and trial.unusual == "disk":
        job.fill_disk()
    if trial.unusual == "report":
        job.await_report()
    time.sleep(trial.delay_s if trial.unusual != "report" else trial.delay_s / 200)
    if trial.unusual in {"paused", "long"}:
        job.pause()
    if job.has_disk:
        job.fill_disk()


def _interrupt(job: Job) -> None:
    """The signals."""
    trial = job.trial
    job.send()
    if trial.second_s is not None:
        time.sleep(trial.second_s)
        job.send()
    for _ in range(IN_A_ROW - 1 if trial.unusual == "row" else 0):
        time.sleep(BETWEEN_S)
        job.send()
    if trial.kill_s is not None:
        time.sleep(trial.kill_s)
        job.kill_agents()


def run(trial: Trial, folder: Path, lane: Lane) -> Outcome:
    """One trial, from the start to the last process's end."""
    job = Job(trial, folder, lane)
    outcome = Outcome(trial=trial)
    try:
        _begin(job)
        before = [job.report(node) for node in range(trial.nodes)]
        began = time.monotonic()
        _interrupt(job)
        _until(job.is_over, GRACE_S + CLEAN_S + 5.0, "the agents do not end")
        outcome.ended_s = time.monotonic() - began
        with contextlib.suppress(TimeoutError):
            _until(lambda: not job.left(), CLEAN_S, "")
        outcome.problems += [f"left behind: {what}" for what in job.left()]
        _judge(job, before, outcome)
    except TimeoutError as error:
        outcome.problems.append(str(error))
    finally:
        if outcome.problems:
            job.watch.see()
            outcome.left = job.post_mortem()
            (folder / "trial.json").write_text(_json(outcome))
        job.close()
    return outcome


def _json(outcome: Outcome) -> str:
    return json.dumps(_row(outcome), indent=1, ensure_ascii=False) + "\n"


def _row(outcome: Outcome) -> dict[str, Any]:
    """One trial for the JSON."""
    row = asdict(outcome)
    return {**row.pop("trial"), **row, "ended_s": round(outcome.ended_s, 2)}


def _judge(job: Job, befores: Sequence[dict[str, Any] | None], outcome: Outcome) -> None:
    outcome.before = _words(_verdict(befores[0]))
    for node, agent in enumerate(job.agents):
        report = job.report(node)
        if report is None:
            if job.trial.fault != "starting" and not job.has_disk:
                outcome.problems.append(f"node {node}: no report")
            continue
        outcome.after = f"{report['status']} {_words(_verdict(report))}" if node == 0 else outcome.after
        is_old = job.has_disk and report["job"] is None  # there was no room for a newer one
        is_unbegun = node in job.killed and not (job.reports / f"report{node}" / "attempt0").exists()
        if (
            report["status"] in {"healthy", "waiting"}
            and not is_old
            and not (
                is_unbegun and report["status"] == "waiting"  # nothing ran yet that could have reported how it ended
            )
        ):
            outcome.problems.append(f"node {node}: status {report['status']}")
        is_ended = report["job"] is not None and report["job"]["exit_code"] == agent.returncode
        is_cut = job.trial.unusual == "row" and report["job"] is None  # a third signal ended it at once
        if not (is_ended or is_cut or is_old or node in job.killed):
            outcome.problems.append(f"node {node}: job {report['job']}, exit code {agent.returncode}")
        if agent.returncode == 0:
            outcome.problems.append(f"node {node}: exit code 0")
        _judge_blame(job, node, report, befores[node], outcome)


def _judge_blame(job: Job, node: int, report: dict[str, Any], before: dict[str, Any] | None, outcome: Outcome) -> None:
    trial, verdict = job.trial, _verdict(report)
    is_lost = verdict is not None and bool(job.killed) and set(verdict["culprits"]["nodes"]) <= job.killed
    is_lost = is_lost and verdict is not None and not verdict["culprits"]["ranks"]
    for finding in report["findings"]:
        is_grave = finding["severity"] in {"error", "blocker"} and not (
            job.killed and set(finding["culprits"]["nodes"]) and set(finding["culprits"]["nodes"]) <= job.killed
        )
        if is_grave and finding["code"].startswith(CONSEQUENCES):
            outcome.problems.append(f"node {node}: {finding['code']}: {finding['message'][:100]}")
    if trial.fault in {"sleep", "stop"}:
        blamed = verdict["culprits"]["ranks"] if verdict is not None else None
        outcome.is_explained = outcome.is_explained or blamed == [trial.culprit]
        if verdict is not None and blamed != [trial.culprit] and not is_lost:
            outcome.problems.append(f"node {node}: blames {_words(verdict)}")
        stood = _verdict(before)
        was_proven = before is not None and before["status"] == "fault" and blamed != [trial.culprit]
        if stood is not None and (verdict is None or was_proven) and not job.has_disk:
            outcome.problems.append(f"node {node}: lost {_words(stood)}, has {_words(verdict)}")
    elif trial.fault == "none" and verdict is not None and report["status"] == "fault" and not is_lost:
        outcome.problems.append(f"node {node}: made up {_words(verdict)}")


def _verdict(report: dict[str, Any] | None) -> dict[str, Any] | None:
    found: dict[str, Any] | None = report["verdict"] if report is not None else None
    return found


def _words(verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        return "-"
    nodes = f" node {verdict['culprits']['nodes']}" if verdict["culprits"]["nodes"] else ""
    return f"{verdict['code']} rank {verdict['culprits']['ranks']}{nodes}"


def _until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


def _is_free(port: int) -> bool:
    with socket.socket() as sock, contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", port))
        return True
    return False


def table(outcomes: Sequence[Outcome]) -> str:
    """By kind of job, by signal, and by nodes and framework: how many, how many failed, explained, time to the end."""
    names = {"sleep": "a rank sleeps", "stop": "a rank is stopped", "none": "healthy", "starting": "starting"}
    rows = ["                     trials  failed  explained  median s to the end  longest"]
    kinds: list[tuple[str, Callable[[Outcome], bool]]] = [
        *((names[fault], lambda o, fault=fault: o.trial.fault == fault) for fault in names),
        *((name, lambda o, name=name: o.trial.signal == name) for name in dict.fromkeys((*SIGNALS, "SIGQUIT"))),
        *((f"to {aim}", lambda o, aim=aim: o.trial.aim == aim) for aim in (*AIMS, "ranks")),
        *((f"{n} node{'s'[: n - 1]}, {f}", lambda o, n=n, f=f: (o.trial.nodes, o.trial.framework) == (n, f))
          for n in (1, 2) for f in ("torch", "jax")),
        ("disk full", lambda o: o.trial.is_disk_full),
        *((f"seldom: {kind}", lambda o, kind=kind: o.trial.unusual == kind) for kind in UNUSUAL),
        ("all", lambda _: True),
    ]  # fmt: skip
    for name, is_of in kinds:
        found = [o for o in outcomes if is_of(o)]
        if not found:
            continue
        hung = [o for o in found if o.trial.fault in {"sleep", "stop"}]
        explained = f"{sum(o.is_explained for o in hung)}/{len(hung)}" if hung else "-"
        times = [o.ended_s for o in found]
        rows.append(
            f"{name:20} {len(found):6} {sum(bool(o.problems) for o in found):7} {explained:>10} "
            f"{statistics.median(times):20.1f} {max(times):8.1f}"
        )
    return "\n".join(rows)


def play(trials: Sequence[Trial], out: Path, jobs: int, on_outcome: Callable[[Outcome], None]) -> list[Outcome]:
    """All of them, so many at a time; the folder of one that did not fail is removed."""
    lanes = Lanes(jobs)

    def one(trial: Trial) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix=f"interrupt-{trial.number}-", dir=out))
        try:
            with lanes.one() as lane:
                outcome = run(trial, folder, lane)
        except OSError as error:  # no port, no room for a process: not played, which is no success
            outcome = Outcome(trial=trial, problems=[f"not played: {error}"])
        if not outcome.problems:
            shutil.rmtree(folder, ignore_errors=True)
        on_outcome(outcome)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, trials))


def main() -> int:
    """All trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time (default: 1)")
    parser.add_argument("--only", default="", help="numbers of trials, for example 3,17: the others are left out")
    parser.add_argument("--unusual", action="store_true", help="each trial has something that is seldom")
    parser.add_argument("--frameworks", default="", help="torch,jax (default: those that are installed)")
    parser.add_argument("--out", type=Path, help="where folders of trials are (default: the temporary folder)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGQUIT):  # ignored in a shell's background, and by all that is started there
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    chance = random.Random(args.seed)  # noqa: S311
    found = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is not None]
    frameworks = [word for word in args.frameworks.split(",") if word] or ["torch", *found]  # torch more often
    out = args.out or Path(tempfile.gettempdir())
    out.mkdir(parents=True, exist_ok=True)
    trials = [Trial.draw(number, chance, frameworks) for number in range(args.number)]
    if args.unusual:
        seldom = random.Random(f"unusual {args.seed}")  # noqa: S311
        trials = [trial.with_something_unusual(seldom) for trial in trials]
    only = {int(word) for word in args.only.split(",") if word}
    trials = [trial for trial in trials if not only or trial.number in only]
    lock = threading.Lock()

    def show(outcome: Outcome) -> None:
        state = "ok  " if not outcome.problems else "FAIL"
        words = f"{outcome.before} -> {outcome.after} ({outcome.ended_s:.1f} s)"
        lines = [f"{outcome.trial.words():75} {state} {words}", *(f"      {problem}" for problem in outcome.problems)]
        with lock:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()

    outcomes = play(trials, out.absolute(), max(1, args.jobs), show)
    sys.stdout.write(f"\n{table(outcomes)}\n")
    failed = [outcome for outcome in outcomes if outcome.problems]
    sys.stdout.write(f"\n{len(failed)} of {len(outcomes)} trials failed (seed {args.seed}); {versions()}\n")
    if failed:
        numbers = ",".join(str(outcome.trial.number) for outcome in failed)
        sys.stdout.write(f"what they left: {out.absolute()}/interrupt-NUMBER-*; once more: --only {numbers}\n")
    if args.json is not None:
        saved = {
            "seed": args.seed,
            "failed": len(failed),
            "versions": versions(),
            "cpus": len(os.sched_getaffinity(0)),
            "jobs": args.jobs,
            "trials": [_row(outcome) for outcome in outcomes],
        }
        args.json.write_text(json.dumps(saved, indent=1, ensure_ascii=False) + "\n")
    return 1 if failed else 0


def versions() -> str:
    """Of what took part."""
    words = [f"python {sys.version.split()[0]}"]
    for name in ("torch", "jax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            words.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(words)


if __name__ == "__main__":
    sys.exit(main())
