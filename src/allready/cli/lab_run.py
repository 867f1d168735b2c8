"""`allready lab run`: a command on every node of a lab, with faults at an exact rank and step."""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from allready.cli.interrupts import noted_signals
from allready.cli.options import count, positive_s
from allready.errors import UsageError
from allready.text.ui import ui

if TYPE_CHECKING:
    from allready.lab import Lab
    from allready.lab.inject.commands import NodeCommand
    from allready.lab.inject.job import LabJob
    from allready.lab.inject.plan import FaultPlan
    from allready.lab.inject.truth import Injected

_TIMED_OUT = 124


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `allready lab run`."""
    parser.add_argument("--nodes", type=count, default=2, help="number of nodes (default: %(default)s)")
    parser.add_argument("--nproc-per-node", type=count, default=2, help="ranks per node (default: %(default)s)")
    parser.add_argument(
        "--fault",
        action="append",
        nargs="+",
        default=[],
        metavar=("KIND", "PARAMETER=VALUE"),
        help="for example: kill rank=3 step=50, or link_down node=1 step=50; may be repeated; all kinds: "
        "allready lab fault list",
    )
    parser.add_argument(
        "--step-of",
        default="auto",
        metavar="WHAT",
        help="what counts as a step: optimizer, collective, jit or MODULE:FUNCTION (default: detected)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of random faults (default: %(default)s)")
    parser.add_argument("--name", help="use this running lab (default: create one and remove it afterwards)")
    parser.add_argument("--master-port", type=count, default=29500, help="master port on node 0 (default: %(default)s)")
    parser.add_argument("--timeout", type=positive_s, metavar="S", help="kill the job after S seconds; exit code 124")
    parser.add_argument(
        "--grace", type=positive_s, default=10.0, metavar="S", help="seconds between SIGTERM and SIGKILL"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the plan and the log of injected faults")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="allready run SCRIPT, torchrun SCRIPT, or python SCRIPT; launchers get their flags for "
        "each node, a plain program gets RANK, WORLD_SIZE and so on",
    )


def run(args: argparse.Namespace, language: str) -> int:
    """Carry it out; exits with the job's exit code (that of the first node with another than 0)."""
    from allready.lab.inject.plan import plan_of

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command was given; write: allready lab run --fault kill rank=1 step=20 -- torchrun SCRIPT")
    plan = plan_of(args.fault, step_of=args.step_of, seed=args.seed)
    with contextlib.ExitStack() as stack:
        lab = _lab(args, stack)
        if args.out is not None:
            folder = _fresh(args.out)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="allready-lab-run-")))
        return _run(args, language, command, lab, plan, folder)


def _lab(args: argparse.Namespace, stack: contextlib.ExitStack) -> "Lab":
    from allready.lab import Lab

    if args.name is None:
        return stack.enter_context(Lab.up(args.nodes, name=f"run-{os.getpid()}"))
    lab = Lab.attach(args.name)
    if lab.view.num_nodes < args.nodes:
        raise UsageError(
            "the lab {name!r} has {num_nodes} nodes; give --nodes {num_nodes}",
            name=args.name,
            num_nodes=lab.view.num_nodes,
        )
    return lab


def _fresh(folder: Path) -> Path:
    old = [path for pattern in ("fault-*.json", "problem-*.txt") for path in folder.glob(pattern)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in old:
            path.unlink()
    except OSError as error:
        raise UsageError("--out {folder}: {reason}", folder=folder, reason=error.strerror) from error
    return folder


def _run(
    args: argparse.Namespace, language: str, command: list[str], lab: "Lab", plan: "FaultPlan", folder: Path
) -> int:
    from allready.lab.inject.commands import LabLayout, node_commands
    from allready.lab.inject.job import LabJob

    layout = LabLayout(
        num_nodes=args.nodes,
        nproc_per_node=args.nproc_per_node,
        master_addr=lab.view.address(0),
        master_port=args.master_port,
    )
    for fault in plan.rank_faults:
        if isinstance(fault.rank, int) and fault.rank >= layout.world_size:
            raise UsageError(
                "fault {kind}: no rank {rank}; there are {world_size}",
                kind=fault.kind,
                rank=fault.rank,
                world_size=layout.world_size,
            )
    commands = node_commands(command, layout)
    printer, announcer = _Printer(), _Announcer(language)
    job = LabJob(lab, commands, plan, folder, output=printer.pipe)
    try:
        with noted_signals() as caught, job:
            code = _follow(args, language, job, folder, caught, announcer)
            job.end(grace_s=args.grace)
    finally:
        printer.close()
        if args.name is None:
            lab.down()
            job.driver.remove_groups()
    announcer.announce(job.truth())
    _print_truth(job.truth(), job.problems(), language, planned=len(args.fault))
    return code


def _follow(
    args: argparse.Namespace, language: str, job: "LabJob", folder: Path, caught: list[int], announcer: "_Announcer"
) -> int:
    from allready.lab.inject.truth import read_truth

    deadline = time.monotonic() + args.timeout if args.timeout else None
    end_at: float | None = None
    forwarded = 0
    while job.poll():
        announcer.announce(read_truth(folder))
        if len(caught) > forwarded:
            forwarded = len(caught)
            job.send(signal.Signals(caught[-1]))
            end_at = end_at or time.monotonic() + args.grace
            if forwarded > 1:
                return 128 + caught[0]
        if deadline is not None and time.monotonic() > deadline:
            print(ui("lab.run_timed_out", language, timeout_s=f"{args.timeout:g}"), file=sys.stderr)
            return _TIMED_OUT
        if end_at is not None and time.monotonic() > end_at:
            return 128 + caught[0]
        time.sleep(0.05)
    if caught:
        return 128 + caught[0]
    codes = [process.returncode for process in job.processes.values()]
    first = next((code for code in codes if code), 0)
    return int(first) if first >= 0 else 128 - int(first)


class _Announcer:
    """Prints what was injected, each once."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._announced: set[tuple[int, int | None]] = set()

    def announce(self, found: "list[Injected]") -> None:
        """Print those that are new."""
        for truth in found:
            if (truth.id, truth.rank) not in self._announced and truth.kind != "mark":
                self._announced.add((truth.id, truth.rank))
                print(truth_words(truth, self._language), file=sys.stderr, flush=True)


def truth_words(truth: "Injected", language: str) -> str:
    """One line of what was done."""
    at = time.strftime("%H:%M:%S", time.localtime(truth.injected_s)) + f".{int(truth.injected_s % 1 * 1000):03d}"
    detail = ", ".join(word for word in (truth.op, truth.detail) if word)
    where = ui("lab.run_network", language) if truth.rank is None else ui("lab.run_rank", language, rank=truth.rank)
    step = "-" if truth.step is None else truth.step
    if truth.status != "injected":
        return ui("lab.run_not_injected", language, id=truth.id, kind=truth.kind, where=where, why=truth.why)
    words = ui("lab.run_injected", language, id=truth.id, kind=truth.kind, where=where, step=step, time=at)
    return f"{words} ({detail})" if detail else words


def _print_truth(found: "list[Injected]", problems: list[str], language: str, *, planned: int) -> None:
    missing = set(range(1, planned + 1)) - {truth.id for truth in found if truth.kind != "mark"}
    for number in sorted(missing):
        print(ui("lab.run_never", language, id=number), file=sys.stderr)
    for problem in problems:
        print(ui("lab.run_problem", language, problem=problem), file=sys.stderr)


class _Printer:
    """Prints the lines of all commands, each with its label; one thread per command, until `close`."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._ends: list[IO[bytes]] = []
        self._lock = threading.Lock()

    def pipe(self, command: "NodeCommand") -> int | IO[Any]:
        """Where a command's output goes."""
        reading, writing = os.pipe()
        source, end = os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
        thread = threading.Thread(target=self._copy, args=(source, command.label), daemon=True)
        thread.start()
        self._threads.append(thread)
        self._ends.append(end)
        return end

    def _copy(self, source: IO[bytes], label: str) -> None:
        with source:
            for line in source:
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                with self._lock:
                    print(f"[{label}] {text}", flush=True)

    def close(self) -> None:
        """Close our ends, and give the last lines a moment."""
        for end in self._ends:
            end.close()
        for thread in self._threads:
            thread.join(2)
