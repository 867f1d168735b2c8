"""A job of two or three ranks for the tests of the injector: plain processes, a step every 20 ms, always ends.

As a script it is one rank: it prints what it does, and when nothing moves for a while it writes down what PyTorch's
own recorder saw and leaves with exit code 7.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STALLED = 7
STALL_S = 1.5
NUM_STEPS = 25


@dataclass(kw_only=True)
class Outcome:
    """What became of a job."""

    codes: dict[int, int | None]  # None: it still ran and was killed
    words: dict[int, str]
    truth: list[Any]
    problems: list[str]
    seen: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # rank -> operations in the recorder's ring
    history: dict[int, str] = field(default_factory=dict)  # rank -> all states in /proc that were seen, in order

    def operations(self, rank: int) -> list[tuple[str, Any, Any]]:
        """Name, sizes and dtype of everything that a rank issued."""
        return [
            (e["profiling_name"].partition(":")[2], tuple(map(tuple, e["input_sizes"])), tuple(e["input_dtypes"]))
            for e in self.seen[rank]
        ]


def play(
    folder: Path,
    faults: Sequence[str],
    *,
    world: int = 2,
    step_of: str = "auto",
    mode: str = "plain",
    timeout_s: float = 30.0,
    argv: Sequence[str] = (),
    env: dict[str, str] | None = None,
    driver: bool = False,
) -> Outcome:
    """Run a job with faults given as words of a command line; every process is gone afterwards."""
    from allready.lab.inject.driver import Driver
    from allready.lab.inject.plan import plan_of, python_path
    from allready.lab.inject.truth import problems, read_truth

    plan = plan_of([fault.split() for fault in faults], step_of=step_of)
    truth = folder / "truth"
    base = {
        **os.environ,
        **plan.write(truth),
        "PYTHONPATH": python_path(None),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
        "JOB_MODE": mode,
        "JOB_FOLDER": str(folder),
        "TORCH_FR_BUFFER_SIZE": "300",
        **(env or {}),
    }
    command = list(argv) or [sys.executable, "-u", str(Path(__file__).resolve())]
    processes: dict[int, subprocess.Popen[bytes]] = {}
    outside = Driver(plan, truth, None) if driver else None
    states: dict[int, str] = {}
    deadline, is_ending = time.monotonic() + timeout_s, False
    try:
        for rank in range(world):
            with (folder / f"rank{rank}.log").open("wb") as log:
                processes[rank] = subprocess.Popen(
                    command,
                    env={**base, "RANK": str(rank)},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
        if outside is not None:
            outside.start()
        while time.monotonic() < deadline:
            running = [rank for rank, p in processes.items() if p.poll() is None]
            if len(running) <= 1 and not is_ending:
                is_ending = True
                deadline = min(deadline, time.monotonic() + (1.0 if running else 0.0))
            for rank in running:
                with contextlib.suppress(OSError):
                    stat = Path(f"/proc/{processes[rank].pid}/stat").read_text()
                    states[rank] = states.get(rank, "") + stat.rpartition(")")[2].split()[0]
            time.sleep(0.02)
        codes = {rank: p.poll() for rank, p in processes.items()}
    finally:
        if outside is not None:
            outside.close()
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        if outside is not None:
            outside.remove_groups()
    seen = {
        rank: json.loads((folder / f"ring{rank}.json").read_text()).get("entries", [])
        for rank in processes
        if (folder / f"ring{rank}.json").exists()
    }
    words = {rank: (folder / f"rank{rank}.log").read_text() for rank in processes}
    return Outcome(
        codes=codes, words=words, truth=read_truth(truth), problems=problems(truth), seen=seen, history=states
    )


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class _Watch:
    """Writes the recorder's ring and leaves when no step was made for a while."""

    def __init__(self, rank: int) -> None:
        self.moved = time.monotonic() + 15.0  # the first step takes as long as this machine lets it
        self.is_leaving = threading.Event()
        self._rank = rank
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_end(self) -> None:
        """Once a stall was seen: wait for the end that the watch makes; returns only if that never comes."""
        self._thread.join(10.0)

    def _run(self) -> None:
        while time.monotonic() < self.moved + STALL_S:
            time.sleep(0.05)
        self.is_leaving.set()
        self.write()
        # The others see their own stall first, and are not torn out of it by this end.
        rings = [Path(os.environ["JOB_FOLDER"]) / f"ring{rank}.json" for rank in range(int(os.environ["WORLD_SIZE"]))]
        until = time.monotonic() + 5.0
        while time.monotonic() < until and not all(ring.exists() for ring in rings):
            time.sleep(0.05)
        time.sleep(0.2)
        os._exit(STALLED)

    def write(self) -> None:
        import torch

        dump = torch._C._distributed_c10d._dump_fr_trace_json(True, False)
        text = dump if isinstance(dump, str) else bytes(dump).decode()
        (Path(os.environ["JOB_FOLDER"]) / f"ring{self._rank}.json").write_text(text)


def train_step(step: int, state: dict[str, Any]) -> None:
    """One step: all_reduce, broadcast, and what the mode adds."""
    import torch
    import torch.distributed as dist

    mode, rank, world = os.environ["JOB_MODE"], dist.get_rank(), dist.get_world_size()
    time.sleep(0.02)
    if mode == "ddp":
        state["model"](torch.ones(2, 4)).sum().backward()
        state["optimizer"].step()
        return
    if mode == "loader":
        next(state["batches"])
    total = torch.full((8,), float(rank))
    if mode == "tolerant":
        try:
            dist.all_reduce(total)
        except RuntimeError as error:
            sys.stdout.write(f"skipping step {step}: {error}\n")
    else:
        dist.all_reduce(total)
    dist.broadcast(torch.zeros(4), 0)
    if mode == "all_to_all":
        dist.all_to_all_single(torch.zeros(2 * world), torch.ones(2 * world))
    if mode == "p2p":
        (dist.send if rank == 0 else dist.recv)(torch.zeros(3), 1 - rank)
    if mode == "groups":
        dist.all_reduce(torch.ones(3), group=state["group"])
    if "optimizer" in state:
        state["parameter"].grad = total[:1].clone()
        state["optimizer"].step()


def main() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    mode = os.environ["JOB_MODE"]
    dist.init_process_group("gloo")
    watch = _Watch(dist.get_rank())
    state: dict[str, Any] = {}
    if mode == "ddp":
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        state = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    elif mode != "no_optimizer":
        parameter = torch.nn.Parameter(torch.zeros(1))
        state = {"parameter": parameter, "optimizer": torch.optim.SGD([parameter], lr=0.1)}
    if mode == "groups":
        state["group"] = dist.new_group()
    if mode == "loader":
        from torch.utils.data import DataLoader

        loader = DataLoader(range(10_000), batch_size=1, num_workers=1, prefetch_factor=2)
        state["batches"] = iter(loader)
    for step in range(NUM_STEPS):
        begun = time.monotonic()
        try:
            train_step(step, state)
        except RuntimeError:
            if watch.is_leaving.is_set():  # torn out of the stall by another rank's end, a moment before its own
                watch.wait_for_end()
            raise
        watch.moved = time.monotonic()
        sys.stdout.write(f"step {step} took {watch.moved - begun:.3f}\n")
    watch.write()
    sys.stdout.write("done\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
