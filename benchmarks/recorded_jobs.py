"""What the programs that record jobs share: agents of torchrun and their certain end, stacks, what was done to them."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil


def free_port() -> int:
    """A TCP port no rank listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def end(process: "subprocess.Popen[bytes]") -> None:
    """Nothing of a job that has its own session is there when this returns."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None or number == signal.SIGKILL:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            time.sleep(1.0)
    process.wait(10)


class Agents:
    """One agent of torchrun on each "node" of this machine, 2 ranks in all; made by `started`."""

    def __init__(self, processes: Sequence["subprocess.Popen[bytes]"]) -> None:
        self._processes = processes
        self._workers: dict[int, psutil.Process] = {}

    @property
    def codes(self) -> list[int | None]:
        """Exit codes by node; None while it runs."""
        return [process.poll() for process in self._processes]

    def wait(self, until: float, *, also: Callable[[], bool] = lambda: True) -> bool:
        """Wait while anyone runs and `also` holds, not longer than `until` (monotonic); whether anyone still runs."""
        while time.monotonic() < until and None in self.codes and also():
            self._look()
            time.sleep(0.2)
        return None in self.codes

    def end(self) -> None:
        """Nothing of the agents and of what they started is there when this returns.

        Workers have sessions of their own, and some outlive their agent: stopped ones, and JAX's, which catch SIGTERM.
        """
        self._look()
        for process in self._processes:
            end(process)
        for worker in self._workers.values():
            with contextlib.suppress(psutil.NoSuchProcess):  # psutil tells a reused pid by its start
                worker.kill()
        psutil.wait_procs(list(self._workers.values()), timeout=10)

    def _look(self) -> None:
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._workers |= {w.pid: w for w in psutil.Process(process.pid).children(recursive=True)}


@contextlib.contextmanager
def started(
    folder: Path, program: Sequence[str], environs: Sequence[Mapping[str, str]], outputs: Sequence[str]
) -> Iterator[Agents]:
    """Two ranks of `program` under one agent for each environment; nothing of them is there afterwards.

    environs: besides this process's own, by node.
    outputs: names of files in `folder`, by node.
    """
    port, num = free_port(), len(environs)
    with contextlib.ExitStack() as stack:
        processes: list[subprocess.Popen[bytes]] = []
        agents = Agents(processes)
        stack.callback(agents.end)
        for node, (environ, output) in enumerate(zip(environs, outputs, strict=True)):
            argv = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nnodes",
                str(num),
                "--node-rank",
                str(node),
                "--nproc-per-node",
                str(2 // num),
                "--master-addr",
                "127.0.0.1",
                "--master-port",
                str(port),
                *program,
            ]
            log = stack.enter_context((folder / output).open("wb"))
            process = subprocess.Popen(
                argv, env={**os.environ, **environ}, stdout=log, stderr=log, start_new_session=True
            )
            processes.append(process)
        yield agents


def watched(
    folder: Path,
    program: Sequence[str],
    environs: Sequence[Mapping[str, str]],
    outputs: Sequence[str],
    *,
    reached: bytes,
    stacks_s: float,
    limit_s: float,
) -> list[int | None]:
    """`started`, to its end or for `limit_s`; the agents' exit codes.

    Stacks are taken `stacks_s` after the first output has `reached` in it: the fault has happened then, and no time-out
    has come.
    """
    began = time.monotonic()
    with started(folder, program, environs, outputs) as agents:
        agents.wait(began + limit_s / 2, also=lambda: reached not in (folder / outputs[0]).read_bytes())
        if agents.wait(time.monotonic() + stacks_s):
            stacks(folder)
        agents.wait(began + limit_s)
        codes = agents.codes
    for path in folder.glob("pid.*"):
        path.unlink()
    return codes


def all_of(names: Sequence[str], record: Callable[[str], str], at_a_time: int) -> None:
    """Record them; prints the line of each."""
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        for task in concurrent.futures.as_completed([pool.submit(record, name) for name in names]):
            sys.stdout.write(task.result() + "\n")
            sys.stdout.flush()


def on_nodes(env: Mapping[str, str], folder: Path, nodes: int, gpus: str) -> tuple[list[dict[str, str]], list[str]]:
    """`env` for each node, with its share of `gpus` ("0,1", or "" for none) and NCCL's logs; and files for the outputs.

    Two nodes are two hosts for NCCL as well, so that it connects them by sockets.
    """
    if nodes == 1:
        own = {"CUDA_VISIBLE_DEVICES": gpus, "NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p.log"}
        return [{**env, **own}], ["out.log"]
    mine = gpus.split(",") if gpus else [""] * nodes
    environs = [
        {
            **env,
            "CUDA_VISIBLE_DEVICES": mine[node],
            "NCCL_HOSTID": f"node{node}",
            "NCCL_DEBUG_FILE": f"{folder}/nccl.node{node}.%h.%p.log",
        }
        for node in range(nodes)
    ]
    return environs, [f"out.node{node}.log" for node in range(nodes)]


def stacks(folder: Path) -> None:
    """What the ranks are doing now, as far as they wrote `pid.RANK`; needs py-spy."""
    program = shutil.which("py-spy")
    for path in sorted(folder.glob("pid.*")) if program else ():
        done = subprocess.run(
            [str(program), "dump", "--pid", path.read_text()], capture_output=True, timeout=10, check=False
        )
        if done.returncode == 0:
            (folder / f"pyspy.{path.suffix[1:]}.txt").write_bytes(done.stdout)


def write_truth(
    folder: Path, name: str, fault_class: str, ranks: Sequence[int], codes: Sequence[int | None], began: float
) -> float:
    """What was done, beside what it left; returns how many seconds the job took since `began`."""
    seconds = round(time.monotonic() - began, 1)
    truth = {
        "scenario": name,
        "fault_class": fault_class,
        "culprit_ranks": list(ranks),
        "exit_code": None if None in codes else max((code for code in codes if code is not None), default=None),
        "seconds": seconds,
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return seconds
