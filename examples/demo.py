"""`make demo`: two nodes with two ranks each on this machine, healthy first, then with faults, named in seconds.

With network namespaces (root, or user namespaces) the nodes are a lab; without, two processes on loopback and a
stopped rank.
"""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from allready.lab.faults import DataPortsDropped, Fault
from allready.lab.lab import Lab, end_group, probe

LIMIT_S = 60.0
NUM_NODES, NPROC = 2, 2

Start = Callable[[int, Sequence[str]], "subprocess.Popen[str]"]


def check_argv(node_rank: int, master: str, port: int, report_dir: Path, extra: Sequence[str]) -> list[str]:
    """The command of one node."""
    return [
        sys.executable,
        "-m",
        "allready",
        "check",
        "--nnodes",
        str(NUM_NODES),
        "--node-rank",
        str(node_rank),
        "--nproc-per-node",
        str(NPROC),
        "--master-addr",
        master,
        "--master-port",
        str(port),
        "--quick",
        "--report-dir",
        str(report_dir),
        *extra,
    ]


def show(text: str) -> None:
    """A line of the demo itself."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def act(
    title: str,
    start: Start,
    *,
    master: str,
    port: int,
    folder: Path,
    nodes: Sequence[int] = range(NUM_NODES),
    extra: Sequence[str] = (),
    on_line: Callable[[str], None] = lambda _line: None,
) -> tuple[int, float]:
    """Run one scene and show node 0's words; the others write their reports.  Gives node 0's exit code and seconds."""
    show(f"\n=== {title}")
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        running: dict[int, subprocess.Popen[str]] = {}
        for node_rank in sorted(nodes, reverse=True):  # any order will do
            argv = check_argv(node_rank, master, port, folder / f"node{node_rank}", extra)
            show(f"node {node_rank} $ {shlex.join(['allready', *argv[3:]])}")
            running[node_rank] = start(node_rank, argv)
            stack.callback(end_group, running[node_rank])
        watched = running[0]
        killer = threading.Timer(LIMIT_S, lambda: _kill(watched))
        killer.start()
        try:
            assert watched.stdout is not None
            for line in watched.stdout:
                sys.stdout.write(f"  {line}")
                sys.stdout.flush()
                on_line(line)
            code = watched.wait(timeout=LIMIT_S)
            for process in running.values():
                process.wait(timeout=LIMIT_S)
        finally:
            killer.cancel()
    duration_s = time.monotonic() - began
    show(f"--- exit code {code} after {duration_s:.1f} s; report: {folder / 'node0' / 'report.html'}")
    return code, duration_s


def _kill(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def in_lab(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Scenes between namespaces: title, expected and real exit code."""
    with Lab.up(NUM_NODES, name=f"demo{os.getpid()}") as lab:

        def start(node_rank: int, argv: Sequence[str]) -> "subprocess.Popen[str]":
            return lab.popen(node_rank, argv, stdout=_out(node_rank), stderr=_err(node_rank), text=True)

        where = {"master": lab.view.address(0), "port": 29500}
        title = "two nodes, four ranks, everything in order"
        yield title, 0, act(title, start, folder=folder / "healthy", **where)[0]  # type: ignore[arg-type]
        title = "the worker never starts"
        code, _ = act(title, start, folder=folder / "absent", nodes=(0,), extra=("--wait", "5"), **where)  # type: ignore[arg-type]
        yield title, 1, code
        title = "a firewall on node 1 lets only the master port through"
        fault: Fault = DataPortsDropped(node=1)
        try:
            undo = lab.apply(fault)
        except Exception as error:  # noqa: BLE001 - no packet filter here: the demo goes on and reports it
            show(f"\n=== {title}\nleft out: {error}")
            return
        with undo:
            yield title, 1, act(title, start, folder=folder / "filtered", **where)[0]  # type: ignore[arg-type]


def on_loopback(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Scenes without namespaces: title, expected and real exit code."""
    processes: dict[int, subprocess.Popen[str]] = {}

    def start(node_rank: int, argv: Sequence[str]) -> "subprocess.Popen[str]":
        processes[node_rank] = subprocess.Popen(
            argv, stdout=_out(node_rank), stderr=_err(node_rank), text=True, start_new_session=True
        )
        return processes[node_rank]

    title = "two nodes, four ranks, everything in order"
    yield title, 0, act(title, start, folder=folder / "healthy", master="127.0.0.1", port=_free_port())[0]
    title = "the worker never starts"
    code, _ = act(
        title, start, folder=folder / "absent", master="127.0.0.1", port=_free_port(), nodes=(0,), extra=("--wait", "5")
    )
    yield title, 1, code
    title = "rank 3 on node 1 is stopped in the middle of the sweep (kill -STOP)"
    stopped: list[int] = []

    def stop_rank_3(line: str) -> None:
        if "sweep" in line and not stopped:
            stopped.extend(_rank_pids(processes[1].pid, rank=3))
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    code, _ = act(
        title,
        start,
        folder=folder / "stopped",
        master="127.0.0.1",
        port=_free_port(),
        on_line=stop_rank_3,
        extra=("--iters", "200"),
    )
    yield title, 1, code


def _out(node_rank: int) -> int:
    return subprocess.PIPE if node_rank == 0 else subprocess.DEVNULL


def _err(node_rank: int) -> int:
    return subprocess.STDOUT if node_rank == 0 else subprocess.DEVNULL


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _rank_pids(agent: int, *, rank: int) -> list[int]:
    """Processes of one rank below its agent."""
    import psutil

    found = []
    for child in psutil.Process(agent).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.environ().get("RANK") == str(rank):
                found.append(child.pid)
    return found


def main() -> int:
    """Run all scenes; 0 when each ended as it must."""
    folder = Path("demo-report").absolute()
    why = probe(packet_filters=True)
    if why is not None:
        show(f"without network namespaces ({why}): two processes on loopback instead")
    results = list(on_loopback(folder) if why is not None else in_lab(folder))
    show("")
    for title, expected, code in results:
        show(f"{'as expected' if code == expected else 'NOT AS EXPECTED'}: exit code {code}: {title}")
    show(f"open {folder / 'healthy' / 'node0' / 'report.html'} in a browser; the faults' reports lie beside it")
    return 0 if all(code == expected for _, expected, code in results) else 1


if __name__ == "__main__":
    sys.exit(main())
