"""One rank of `runtime_peers.py`: rank.py TOOL FAULT FOLDER.  The same training with what each tool asks for."""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TOOL, FAULT, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
ME, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VICTIM, STRIKE, STEPS, PACE_S = 1, 20, 100_000, 0.05


class Training:
    """The model, and what is written down of each step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
        self.model: Any = self.module
        self.optimizer: Any = torch.optim.SGD(self.module.parameters(), lr=0.01)
        self._has_struck = (FOLDER / f"{ME}.jsonl").exists()
        self._out = (FOLDER / f"{ME}.jsonl").open("a")

    def note(self, event: str, begin_s: float) -> None:
        """Write down that something that began then has ended."""
        self._out.write(json.dumps({"event": event, "begin_s": begin_s, "end_s": time.monotonic()}) + "\n")
        self._out.flush()

    def strike(self, step: int) -> None:
        """The fault, once, on the victim."""
        if ME != VICTIM or step != STRIKE or self._has_struck:
            return
        self._has_struck = True
        self.note("fault", time.monotonic())
        if FAULT == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "hang":
            time.sleep(3600)
        raise ValueError("made by the benchmark")

    def backward(self, step: int) -> None:
        """The gradients of all ranks."""
        time.sleep(PACE_S)
        self.strike(step)
        inputs = torch.randn(32, 64)
        self.optimizer.zero_grad()
        (self.model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean().backward()

    def step(self, step: int) -> None:
        """A whole one."""
        begin_s = time.monotonic()
        self.backward(step)
        self.optimizer.step()
        self.note("step", begin_s)


def with_allready(training: Training) -> None:
    """A `TrainLoop`."""
    import allready

    allready.init_process_group(timeout=None if TOOL == "allready-run" else timedelta(seconds=5))
    patience = timedelta(seconds=60 if TOOL == "allready" else 5)  # for a rank that is alive: 60 s by default
    training.model = DistributedDataParallel(training.module)

    def take_over(recovery: allready.Recovery, _step: int) -> None:
        if not recovery.is_same_group:
            training.model = DistributedDataParallel(training.module)
        for parameter in training.module.parameters():
            dist.broadcast(parameter.data, recovery.source)

    loop = allready.TrainLoop(STEPS, on_recovery=take_over, min_ranks=2, recover_timeout=patience)
    loop.run(training.step)


def with_torchft(training: Training) -> None:
    """A `Manager` and its DistributedDataParallel."""
    import torchft

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}  # a replica group of one rank
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    is_tuned = TOOL == "torchft-tuned"
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5 if is_tuned else 60)),
        min_replica_size=2,
        load_state_dict=training.module.load_state_dict,
        state_dict=training.module.state_dict,
        replica_id=f"replica_{ME}",
        store_addr="127.0.0.1",
        store_port=store.port,
        timeout=timedelta(seconds=5 if is_tuned else 60),
        quorum_timeout=timedelta(seconds=60),
    )
    training.model = torchft.DistributedDataParallel(manager, training.module)
    inner = training.optimizer
    while manager.current_step() < STEPS:
        begin_s, step = time.monotonic(), manager.current_step()
        manager.start_quorum()
        try:
            training.backward(step)
        except ValueError as error:  # as torchft asks: the step is dropped, the replica goes on
            manager.report_error(error)
        if manager.should_commit():
            inner.step()
            training.note("step", begin_s)


def with_nvrx(training: Training) -> None:
    """The training function inside of `inprocess.Wrapper`, which calls it again."""
    from nvidia_resiliency_ext import inprocess

    more: dict[str, Any] = {}
    gloo = timedelta(minutes=30)
    if TOOL == "nvrx-tuned":
        more = {"soft_timeout": timedelta(seconds=5), "hard_timeout": timedelta(seconds=10)}
        gloo = timedelta(seconds=4)
    port = int(os.environ["MASTER_PORT"])

    def train(call: inprocess.CallWrapper = None) -> None:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        store = dist.PrefixStore(f"training/{call.iteration}", store)
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])  # the wrapper sets them anew
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=gloo)
        training.model = DistributedDataParallel(training.module)
        for step in range(STEPS):
            training.step(step)

    inprocess.Wrapper(store_kwargs={"host_name": "127.0.0.1", "port": port}, **more)(train)()


def main() -> None:
    """Train by the chosen tool."""
    (FOLDER / f"{ME}.pid").write_text(str(os.getpid()))
    training = Training()
    {"allready": with_allready, "torchft": with_torchft, "nvrx": with_nvrx}[TOOL.partition("-")[0]](training)


if __name__ == "__main__":
    main()
