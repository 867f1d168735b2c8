"""How fast training goes on: python benchmarks/runtime_recovery.py [--device cuda] [--runs 20] [--kinds stop raise ...]

Four ranks train a small model with DDP, plain collectives and one safe_barrier in each step.  All runs of a kind are
played in one job, one after the other; each ends when all ranks that are to go on have done their next good step.

raise  an exception in one rank; from there on
kill   SIGKILL of one rank, which is started again afterwards
stop   SIGSTOP of one rank; from the deadline on (`--deadline`)
hang   the same without any deadline, under `allready run`: from the stop on
sleep  a rank that sleeps in code of its own, without any deadline, under `allready run`: from then on
loop   a rank in a loop of Python's that never ends, likewise
calls  the same, and the loop calls functions of Python that compute
flag   the same, and the loop has a condition that stays true
rejoin the rank that was stopped wakes; from there until all ranks train again (measured in the jobs of `stop`)

Prints a JSON object for each kind.  With `--device cuda` all ranks share one GPU, over NCCL.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANKS = 4
WAIT_S = 60.0
SETTLE_S = 0.2
UNDER_RUN = {"hang", "sleep", "loop", "calls", "flag"}
"""Kinds without any deadline."""
KINDS = ["raise", "kill", "stop", "hang", "sleep", "loop", "calls", "flag"]


def _go_round() -> None:
    while True:
        pass


def _next(number: int, step: int = 1) -> int:
    following = number + step
    return following if following < 1000 else 0


def _go_round_and_call() -> None:
    number = 0
    while True:
        number = _next(_next(number), 3)


def _go_round_by_a_flag(flag: bool = True) -> None:
    number = 0
    while flag and number < 10:
        pass


class Rank:
    """Trains until it is asked to end, and writes down what happens to it."""

    def __init__(self, folder: Path, device: str, deadline_s: float) -> None:
        self.device, self.deadline_s = device, deadline_s or None
        self.number = int(os.environ["RANK"])
        self._end = folder / "end"
        self._file = (folder / f"rank{self.number}").open("a", buffering=1)
        self._is_to_raise = self._sleeps = False
        self._loop: Callable[[], None] | None = None
        signal.signal(signal.SIGUSR1, self._note)
        signal.signal(signal.SIGUSR2, self._turn)
        loops = (_go_round, _go_round_and_call, _go_round_by_a_flag)
        self._loops = dict(enumerate(loops, signal.SIGRTMIN))
        for number in self._loops:
            signal.signal(number, self._turn_loop)

    def say(self, event: str, **values: Any) -> None:
        self._file.write(json.dumps({"event": event, "at_s": time.monotonic(), **values}) + "\n")

    def _note(self, *_: object) -> None:
        self._is_to_raise = True

    def _turn(self, *_: object) -> None:
        self._sleeps = not self._sleeps

    def _turn_loop(self, number: int, *_: object) -> None:
        self._loop = self._loops[number]

    def _perhaps_loop(self) -> None:
        """A loop that only Ctrl+C ends: a handler of another signal might do that as well, and nothing is claimed."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGUSR1, signal.SIGUSR2, *self._loops)}
        try:
            loop()
        except KeyboardInterrupt:
            pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _perhaps_sleep(self) -> None:
        while self._sleeps:
            time.sleep(0.05)

    def _perhaps_raise(self) -> None:
        if self._is_to_raise:
            self._is_to_raise = False
            self.say("raised")
            raise ValueError("made by the benchmark")

    def train(self) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        import allready

        torch.set_num_threads(1)
        torch.manual_seed(0)
        if self.device == "cuda":
            # NCCL takes ranks of one host for ones on GPUs of their own.  Set here, for ranks of `allready run` too.
            os.environ |= {"NCCL_HOSTID": f"host{self.number}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
            torch.cuda.set_device(0)
        allready.init_process_group("nccl" if self.device == "cuda" else "gloo", start_timeout=120)
        bare = torch.nn.Linear(256, 64).to(self.device)
        model = bare if allready.is_outside() else DistributedDataParallel(bare)
        step, is_new, called_s = 0, not allready.is_outside(), 0.0
        self.say("started", pid=os.getpid())
        error: Exception | None = None
        while not self._end.exists():
            try:
                if error is not None or allready.is_outside():
                    caught, error = error, None
                    recovery = allready.recover(caught, step=step, rejoin=True)
                    if not recovery.is_same_group or not isinstance(model, DistributedDataParallel):
                        model = DistributedDataParallel(bare)
                    for parameter in bare.parameters():
                        dist.broadcast(parameter.data, recovery.source)
                    step, is_new = max(recovery.steps), True
                called_s = time.monotonic()
                self._perhaps_raise()
                self._perhaps_sleep()
                self._perhaps_loop()
                model.zero_grad()
                # With a deadline DDP's own calls have it as well.
                with allready.phase("training", self.deadline_s) if self.deadline_s else contextlib.nullcontext():
                    model(torch.full((8, 256), float(step % 7), device=self.device)).pow(2).mean().backward()
                    allready.safe_barrier(timeout=self.deadline_s)
                with torch.no_grad():
                    for parameter in bare.parameters():
                        parameter -= 0.01 * parameter.grad
                step += 1
                if is_new:
                    is_new = False
                    self.say("good", ranks=dist.get_world_size())
                time.sleep(0.005)
            except (allready.CollectiveFailed, RuntimeError, ValueError) as failure:
                self.say("failed", called_s=called_s, error=f"{type(failure).__name__}: {failure}"[:300])
                error = failure
        os._exit(0)  # the others may be in the middle of a step


class Job:
    """Its ranks, from outside."""

    def __init__(self, folder: Path, device: str, deadline_s: float, *, under_run: bool) -> None:
        self.folder, self.deadline_s = folder, deadline_s
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        own = [
            str(Path(__file__).resolve()),
            "--folder",
            str(folder),
            "--device",
            device,
            "--deadline",
            str(deadline_s),
        ]
        source = str(Path(__file__).resolve().parents[1] / "src")
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self._environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
        self._command = [sys.executable, *own]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._out = (folder / "out").open("ab")
        if under_run:
            run = ["-m", "allready", "run", "--nnodes", "1", "--nproc-per-node", str(RANKS), *own]
            self.processes[0] = subprocess.Popen(
                [sys.executable, *run], env=self._environment, stdout=self._out, stderr=self._out, cwd=folder
            )
        else:
            for rank in range(RANKS):
                self.start(rank)
        self.until(lambda: all(self.last(r, "good") for r in range(RANKS)), 120.0)

    def start(self, rank: int, *, again: bool = False) -> None:
        """Start a rank, perhaps in the place of a dead one."""
        more = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        more |= {"ALLREADY_REJOIN": "1"} if again else {}
        self.processes[rank] = subprocess.Popen(
            self._command, env=self._environment | more, stdout=self._out, stderr=self._out
        )

    def events(self, rank: int) -> list[dict[str, Any]]:
        path = self.folder / f"rank{rank}"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def last(self, rank: int, kind: str) -> dict[str, Any]:
        """Its last event of this kind, or an empty one."""
        return next((e for e in reversed(self.events(rank)) if e["event"] == kind), {})

    def signal(self, rank: int, number: int) -> float:
        begin_s = time.monotonic()
        os.kill(self.last(rank, "started")["pid"], number)
        return begin_s

    def until(self, condition: Callable[[], bool], limit_s: float = WAIT_S) -> None:
        until_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until_s:
                tails = [self.events(r)[-3:] for r in range(RANKS)]
                raise TimeoutError(f"{tails} {(self.folder / 'out').read_text()[-2000:]}")
            time.sleep(0.01)

    def good_s(self, ranks: list[int], since_s: float, num_ranks: int) -> float:
        """When the last of these has done its first good step after that moment in a group of so many."""

        def found(rank: int) -> float:
            events = [e for e in self.events(rank) if e["event"] == "good" and e["ranks"] == num_ranks]
            return next((float(e["at_s"]) for e in events if e["at_s"] > since_s), 0.0)

        self.until(lambda: all(found(r) for r in ranks))
        return max(found(r) for r in ranks)

    def close(self) -> None:
        (self.folder / "end").touch()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
        self._out.close()


def play(job: Job, kind: str, victim: int) -> dict[str, float]:
    """One fault and what follows, until all ranks train again: seconds of each kind measured."""
    everyone = list(range(RANKS))
    others = [r for r in everyone if r != victim]
    if kind == "raise":
        sent_s = job.signal(victim, signal.SIGUSR1)
        end_s = job.good_s(everyone, sent_s, RANKS)
        return {kind: end_s - float(job.last(victim, "raised")["at_s"])}
    if kind == "kill":
        begin_s = job.signal(victim, signal.SIGKILL)
        job.processes[victim].wait(20)
        end_s = job.good_s(others, begin_s, RANKS - 1)
        job.start(victim, again=True)
        job.good_s(everyone, end_s, RANKS)
        return {kind: end_s - begin_s}
    turns = {
        "sleep": (signal.SIGUSR2, signal.SIGUSR2),
        "loop": (signal.SIGRTMIN, signal.SIGINT),
        "calls": (signal.SIGRTMIN + 1, signal.SIGINT),
        "flag": (signal.SIGRTMIN + 2, signal.SIGINT),
    }
    halt, wake = turns.get(kind, (signal.SIGSTOP, signal.SIGCONT))
    stopped_s = begin_s = job.signal(victim, halt)
    end_s = job.good_s(others, stopped_s, RANKS - 1)
    if kind == "stop":  # the first deadline that passed
        failed = [next(e for e in job.events(r) if e["event"] == "failed" and e["at_s"] > stopped_s) for r in others]
        begin_s = min(f["called_s"] for f in failed) + job.deadline_s
    time.sleep(0.3)
    woken_s = job.signal(victim, wake)
    back_s = job.good_s(everyone, woken_s, RANKS)
    return {kind: end_s - begin_s, ("rejoin" if kind == "stop" else "rejoin under run"): back_s - woken_s}


def main() -> int:
    """Prints one JSON object per kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--deadline", type=float, default=1.0, help="of each step, in seconds")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder is not None:
        Rank(given.folder, given.device, given.deadline).train()
        return 0
    is_bad = False
    for kind in given.kinds:
        deadline_s = 0.0 if kind in UNDER_RUN else given.deadline
        took: dict[str, list[float]] = {}
        wrong = ""
        with tempfile.TemporaryDirectory() as folder:
            job = Job(Path(folder), given.device, deadline_s, under_run=kind in UNDER_RUN)
            try:
                for number in range(given.runs):
                    time.sleep(SETTLE_S + 0.0037 * number)  # anywhere in a step
                    for name, s in play(job, kind, 1 + number % (RANKS - 1)).items():
                        took.setdefault(name, []).append(s)
            except (TimeoutError, OSError) as error:
                wrong, is_bad = str(error), True
            finally:
                job.close()
        for name, all_s in took.items():
            rounded = sorted(round(s, 3) for s in all_s)
            found = {
                "median_s": round(statistics.median(all_s), 3),
                "runs": len(all_s),
                "from_to_s": [rounded[0], rounded[-1]],
            }
            print(json.dumps({"kind": name, **found, "wrong": wrong}), flush=True)
        if wrong and not took:
            print(json.dumps({"kind": kind, "wrong": wrong}), flush=True)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
