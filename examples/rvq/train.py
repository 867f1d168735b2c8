"""Train a residual vector quantiser on several ranks: `torchrun --nproc-per-node 2 examples/rvq/train.py`.

Stopped by SIGTERM or Ctrl-C it finishes the step, saves and ends with 143 or 130; started again it goes on from there.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from data import Batches, held_out
from options import parse
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import allready
from model import Codec


class Training:
    """The state that is saved, and the steps."""

    def __init__(self, options: Any, device: torch.device) -> None:
        torch.manual_seed(0)
        self.options, self.device = options, device
        self.codec = Codec(options.num_codebooks, options.num_codes, allready.safe_all_reduce).to(device)
        self.optimizer = torch.optim.Adam(self.codec.parameters(), lr=options.learning_rate)
        self.folder = Path(options.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.last_loss = float("nan")

    def join(self) -> None:
        """Take part in the present group."""
        self.model = DistributedDataParallel(self.codec)
        torch.manual_seed(1000 + dist.get_rank())

    def feed(self, step: int) -> None:
        rank, num_ranks = dist.get_rank(), dist.get_world_size()
        self.batches = Batches(self.options, rank=rank, num_ranks=num_ranks, device=self.device).from_step(step)
        self.held_out = [clips.to(self.device) for clips in held_out(self.options, rank=rank, num_ranks=num_ranks)]

    def state(self, step: int) -> dict[str, Any]:
        return {"step": step, "codec": self.codec.state_dict(), "optimizer": self.optimizer.state_dict()}

    def share(self, state: dict[str, Any] | None, source: int) -> int:
        """Every rank takes the state of rank `source`; its step."""
        box = [state]
        dist.broadcast_object_list(box, source, device=self.device)
        if box[0] is None:
            return 0
        self.codec.load_state_dict(box[0]["codec"])
        self.optimizer.load_state_dict(box[0]["optimizer"])
        return int(box[0]["step"])

    def resume(self) -> int:
        """Begin with the checkpoint that rank 0 finds; the step to begin with."""
        path = self.folder / "checkpoint.pt"
        is_there = dist.get_rank() == 0 and path.exists()
        state = torch.load(path, weights_only=True, map_location=self.device) if is_there else None
        has_any = torch.tensor([int(is_there)], device=self.device)
        dist.broadcast(has_any, 0)
        step = self.share(state, 0) if has_any.item() else 0
        self.feed(step)
        return step

    def train_step(self, _step: int) -> None:
        self.model.train()
        self.optimizer.zero_grad()
        loss, commitment, _ = self.model(next(self.batches))
        (loss + 0.25 * commitment).backward()
        if self.device.type == "cuda":  # no error says that DDP's own all-reduce was aborted: docs/runtime.md, NCCL
            allready.safe_barrier()
        self.optimizer.step()
        self.last_loss = loss.item()

    def evaluate_batch(self, clips: Tensor) -> dict[str, float]:
        """The reconstruction loss, and the part of all codes that all ranks together use for this batch."""
        self.codec.eval()
        with torch.no_grad():
            loss, _, numbers = self.codec(clips)
        used = torch.zeros(self.options.num_codebooks, self.options.num_codes, device=self.device)
        used.scatter_(1, numbers, 1.0)
        allready.safe_all_reduce(used)
        return {"loss": loss.item(), "codebook_use": (used > 0).float().mean().item()}

    def take_over(self, recovery: allready.Recovery, step: int) -> None:
        if not recovery.is_same_group:
            self.join()
        self.share(self.state(step) if recovery.rank == recovery.source else None, recovery.source)
        self.feed(step)
        print(f"rank {recovery.rank} of {recovery.world_size} goes on from step {step}", flush=True)

    def save(self, step: int) -> None:
        """Rank 0 writes, so that an interruption leaves the old checkpoint or the new one."""
        if dist.get_rank() == 0:
            path = self.folder / "checkpoint.pt"
            torch.save(self.state(step), path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)

    def record(self, values: dict[str, Any], step: int) -> None:
        with (self.folder / "records.jsonl").open("a") as records:
            records.write(json.dumps({"step": step, "train/loss": self.last_loss, **values}) + "\n")
        print(f"step {step}: {values}", flush=True)


def chosen_device(name: str) -> torch.device:
    """This rank's GPU, or the CPU; ranks share GPUs where there are fewer."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise SystemExit("--device cuda: torch sees no GPU here")
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    return torch.device(name)


def main() -> int:
    options = parse()
    device = chosen_device(options.device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    allready.init_process_group(backend, timeout=timedelta(seconds=options.timeout_s))
    training = Training(options, device)
    training.join()

    def after_step(step: int) -> None:
        if step % options.eval_every == 0:
            loop.evaluate(training.evaluate_batch, training.held_out, record=training.record)
            training.save(step)

    loop = allready.TrainLoop(
        options.num_steps,
        step=training.resume(),
        on_recovery=training.take_over,
        after_step=after_step,
        save=training.save,
        min_ranks=options.min_ranks,
    )
    end = loop.run(training.train_step)
    if dist.get_rank() == 0:
        print(f"ended at step {end.step}", flush=True)
    allready.finish()
    return end.exit_code


if __name__ == "__main__":
    sys.exit(main())
