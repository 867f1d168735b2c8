"""A small training loop for the fault suite: Gloo, steps of some 30 ms, mostly asleep: four ranks fit two cores.

Every way in which the suite needs a job to differ is an option.  It is written as a user's script is: nothing in it
knows of the tool that watches it.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from marks import Marks, joining  # type: ignore[import-not-found]


def options() -> argparse.Namespace:
    """Everything in which the suite needs a job to differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--step-ms", type=float, default=30, help="time asleep in each step")
    parser.add_argument("--compute-ms", type=float, default=0, help="CPU time in each step")
    parser.add_argument("--size", type=int, default=4096, help="elements of the gradient")
    parser.add_argument(
        "--pattern", default="plain", choices=("plain", "groups", "ring", "p2p", "both_send", "all_to_all", "subset")
    )
    parser.add_argument("--loader", type=int, default=0, metavar="WORKERS", help="a DataLoader with so many workers")
    parser.add_argument("--slow-data-rank", type=int, default=-1)
    parser.add_argument("--slow-data-ms", type=float, default=0)
    parser.add_argument("--tolerant", action="store_true", help="an exception in a batch skips the batch")
    parser.add_argument("--handler-barrier", action="store_true", help="... and its handler calls a barrier")
    parser.add_argument("--first-s", type=float, default=0, help="the first step takes so long on every rank")
    parser.add_argument("--evaluate-at", type=int, default=-1, help="all ranks compute without collectives")
    parser.add_argument("--evaluate-s", type=float, default=10)
    parser.add_argument("--save-at", type=int, default=-1, help="rank 0 saves, the others wait in a barrier")
    parser.add_argument("--save-s", type=float, default=10)
    parser.add_argument("--heavy-rank", type=int, default=-1, help="this rank does --heavy-percent more in each step")
    parser.add_argument("--heavy-percent", type=float, default=20)
    parser.add_argument("--flip-rank", type=int, default=-1, help="which rank breaks the pattern, from --flip-at on")
    parser.add_argument("--flip-at", type=int, default=100)
    parser.add_argument("--fewer-rank", type=int, default=-1, help="this rank has only --flip-at batches")
    parser.add_argument("--say", default="", help="a line that every step 20 of rank --say-rank prints")
    parser.add_argument("--say-rank", type=int, default=-1)
    return parser.parse_args()


def spend(cpu_s: float) -> None:
    """Compute for so long."""
    end = time.thread_time() + cpu_s
    value = 0
    while time.thread_time() < end:
        value = (value * 31 + 7) % 1_000_003


def evaluate(duration_s: float) -> None:
    """An evaluation on every rank by itself: some work, no collective."""
    end = time.monotonic() + duration_s
    while time.monotonic() < end:
        spend(0.002)
        time.sleep(0.02)


def save_checkpoint(duration_s: float) -> None:
    """A large file and a slow disk."""
    import tempfile

    end = time.monotonic() + duration_s
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < end:
            file.seek(0)
            file.write(bytes(1 << 20))
            spend(0.005)
            time.sleep(0.02)


class Numbers:
    """A dataset; one rank's may be slow."""

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> float:
        if self._slow_s:
            self.read_from_slow_disk()
        return float(index)

    def read_from_slow_disk(self) -> None:
        time.sleep(self._slow_s)


class Trainer:
    """The loop's state."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch
        import torch.distributed as dist

        self.args = args
        joining(int(os.environ["RANK"]))
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.marks = Marks(self.rank)
        self.parameter = torch.nn.Parameter(torch.zeros(args.size))
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.01)
        self.groups: list[Any] = []
        if args.pattern == "groups":
            self.groups = [dist.new_group(), dist.new_group()]
        elif args.pattern == "ring":
            pairs = [(r, (r + 1) % self.world) for r in range(self.world)]
            made = {pair: dist.new_group(sorted(pair)) for pair in pairs}
            # Groups in one global order on every rank: that is what keeps such a job free of deadlocks.
            order = [(0, 1), (self.world - 1, 0), *[p for p in pairs if p not in {(0, 1), (self.world - 1, 0)}]]
            self.groups = [made[pair] for pair in order if self.rank in pair]
        self.batches: Iterator[Any] | None = None
        if args.loader:
            from torch.utils.data import DataLoader

            slow_s = args.slow_data_ms / 1000 if args.slow_data_rank == self.rank else 0.0
            self.batches = iter(DataLoader(Numbers(slow_s), batch_size=1, num_workers=args.loader))

    def work(self, step: int) -> None:
        """The part of a step that is this rank's own."""
        args = self.args
        if step == 0 and args.first_s:
            evaluate(args.first_s)
        factor = 1 + args.heavy_percent / 100 if args.heavy_rank == self.rank else 1
        if args.compute_ms:
            spend(args.compute_ms / 1000 * factor)
        if self.batches is not None:
            next(self.batches)
        time.sleep(args.step_ms / 1000 * factor)

    def is_flipped(self, step: int) -> bool:
        """Whether this rank breaks the pattern now."""
        return bool(self.rank == self.args.flip_rank and step >= self.args.flip_at)

    def communicate(self, step: int) -> None:
        """The part that needs the others."""
        import torch
        import torch.distributed as dist

        args = self.args
        gradient = torch.ones(args.size)
        self.marks.enter()
        dist.all_reduce(gradient)
        self.parameter.grad = gradient / self.world
        if args.pattern == "plain":
            if args.tolerant and self.rank == args.flip_rank and step == args.flip_at:
                raise ValueError("broken sample")
            self.marks.enter()
            dist.broadcast(torch.zeros(16), 0)
        elif self.groups:
            groups = list(reversed(self.groups)) if self.is_flipped(step) else self.groups
            for group in groups:
                self.marks.enter()
                dist.all_reduce(torch.ones(64), group=group)
        elif args.pattern == "all_to_all":
            self.marks.enter()
            dist.all_to_all_single(torch.zeros(4 * self.world), torch.ones(4 * self.world))
        elif args.pattern in {"p2p", "both_send"}:
            self.neighbours(step)
        elif args.pattern == "subset" and step == args.flip_at:
            self.marks.enter()
            if self.rank != args.flip_rank:
                dist.new_group(list(range(self.world)))
        self.optimizer.step()

    def neighbours(self, step: int) -> None:
        """Pairs exchange; with both_send and flipped, both send first."""
        import torch
        import torch.distributed as dist

        peer = self.rank ^ 1
        if peer >= self.world:
            return
        mine, theirs = torch.ones(1 << 20), torch.zeros(1 << 20)
        pair = {self.rank, peer}
        both = self.args.pattern == "both_send" and self.args.flip_rank in pair and step >= self.args.flip_at
        self.marks.enter()
        if self.rank < peer or both:
            dist.send(mine, peer)
            dist.recv(theirs, peer)
        else:
            dist.recv(theirs, peer)
            dist.send(mine, peer)

    def step(self, step: int) -> None:
        """One iteration."""
        import torch.distributed as dist

        args = self.args
        if not args.tolerant:
            self.work(step)
            self.communicate(step)
        else:
            try:
                self.work(step)
                self.communicate(step)
            except ValueError as error:
                sys.stderr.write(f"step {step}: {error}, skipping the batch\n")
                if args.handler_barrier:
                    dist.barrier()
        if step == args.evaluate_at:
            evaluate(args.evaluate_s)
        if step == args.save_at:
            if self.rank == 0:
                save_checkpoint(args.save_s)
            self.marks.enter()
            dist.barrier()
        if args.say and args.say_rank == self.rank and step % 20 == 0:
            sys.stderr.write(args.say + "\n")


def main() -> None:
    """Train."""
    import torch
    import torch.distributed as dist

    args = options()
    torch.set_num_threads(1)
    trainer = Trainer(args)
    steps = args.flip_at if trainer.rank == args.fewer_rank else args.steps
    for step in range(steps):
        trainer.step(step)
    if trainer.rank == args.fewer_rank:
        sys.stdout.write("data exhausted\n")
        return
    trainer.marks.enter()
    dist.barrier()
    dist.destroy_process_group()
    if os.environ.get("ALLREADY_LAB_TIMES"):
        sys.stdout.write(f"rank {trainer.rank} done\n")


if __name__ == "__main__":
    main()
