"""DeepSpeed training that goes on through an evaluation in which a rank raises, hangs or dies: README.md.

    deepspeed --num_gpus 4 examples/deepspeed_eval/train.py
    torchrun --nproc-per-node 4 examples/deepspeed_eval/train.py --fault raise

`--engine ddp` is the same with torch's DistributedDataParallel.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import allready

FEATURES, CLASSES, BATCH = 16, 4, 32


class DeepSpeed:
    """DeepSpeed's engine; made anew after a failure, since it has groups of its own."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        import deepspeed

        self._forget_groups()
        model = network()
        model.load_state_dict(state)
        config = {
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_clipping": 1.0,
            "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
            "steps_per_print": 10**9,
        }
        with allready.subgroups():  # so that a failure releases ranks that wait in them
            self.engine, *_ = deepspeed.initialize(model=model, config=config, dist_init_required=False)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = torch.nn.functional.cross_entropy(self.engine(inputs), labels)
        return loss

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> float:
        loss = self.loss(inputs, labels)
        self.engine.backward(loss)
        self.engine.step()
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        return dict(self.engine.module.state_dict())

    @staticmethod
    def _forget_groups() -> None:
        """DeepSpeed keeps the groups of the engine before, which are gone."""
        import deepspeed.comm
        from deepspeed.utils import groups

        release = getattr(groups, "_release_process_group_references", None)  # DeepSpeed 0.19
        if release is not None:
            release(None)
        setattr(groups, "_WORLD_GROUP", None)  # noqa: B010 - it has no public name
        deepspeed.comm.comm.cdb = None


class Ddp:
    """The same by torch alone."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        model = network()
        model.load_state_dict(state)
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.model(inputs), labels)

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> float:
        self._optimizer.zero_grad()
        loss = self.loss(inputs, labels)
        loss.backward()
        self._optimizer.step()
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        return dict(self.model.module.state_dict())


ENGINES = {"deepspeed": DeepSpeed, "ddp": Ddp}


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Made up: the class is which of four sums of features is greatest."""
    inputs = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs.view(BATCH, CLASSES, -1).sum(2).argmax(1)


def strike(kind: str) -> None:
    """What happens on one rank, in the middle of an evaluation."""
    if kind == "raise":
        raise ValueError("made by --fault raise")
    if kind == "hang":
        time.sleep(3600)
    os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


def recorder(project: str) -> Any:
    """`log` of an offline run of Weights & Biases on rank 0, or None."""
    if not project or dist.get_rank() != 0:
        return None
    import wandb

    return wandb.init(project=project, mode="offline", settings=wandb.Settings(console="off"))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=list(ENGINES), default="deepspeed")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--evaluate-every", type=int, default=20)
    parser.add_argument("--fault", choices=["none", "raise", "hang", "stop", "kill"], default="none")
    parser.add_argument("--fault-rank", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds that a collective may take")
    parser.add_argument("--wandb", default="", metavar="PROJECT", help="write an offline run of W&B")
    parser.add_argument("--local_rank", type=int, default=0, help="DeepSpeed's launcher gives it")
    return parser.parse_args()


def main() -> int:
    given = options()
    timeout = timedelta(seconds=given.timeout)
    torch.manual_seed(0)
    allready.init_process_group("gloo", timeout=timeout)
    me = dist.get_rank()
    with allready.phase("start", timedelta(minutes=5)):  # W&B, which rank 0 starts, takes seconds
        engine = ENGINES[given.engine](network().state_dict())
        run = recorder(given.wandb)
        allready.safe_barrier()
    has_struck = False

    def train_step(step: int) -> None:
        engine.step(*batch(step * 1000 + me))

    def take_over(recovery: allready.Recovery, _step: int | None = None) -> None:
        nonlocal engine
        state = engine.state()
        for value in state.values():
            dist.broadcast(value, recovery.source)
        engine = ENGINES[given.engine](state)

    def evaluate(held_out: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
        nonlocal has_struck
        if given.fault != "none" and me == given.fault_rank and loop.step == given.evaluate_every and not has_struck:
            has_struck = True
            strike(given.fault)
        with torch.no_grad():
            loss = engine.loss(*held_out)
        dist.all_reduce(loss)  # as evaluations do; a rank that does not come fails it for all
        return {"loss": float(loss) / dist.get_world_size()}

    def after_step(step: int) -> None:
        if step % given.evaluate_every:
            return
        found = loop.evaluate(
            evaluate,
            [batch(10**6 + 10 * n + me) for n in range(4)],
            record=None if run is None else lambda values, at: run.log(values, step=at),
            timeout=timeout,
            sync_timeout=timeout,
        )
        if dist.get_rank() == 0:
            loss = found.metrics.get("loss", float("nan"))
            print(f"step {step}: loss {loss:.3f}, coverage {found.coverage}, attempts {found.attempts}", flush=True)

    loop = allready.TrainLoop(
        given.steps, on_recovery=take_over, after_step=after_step, min_ranks=2, recover_timeout=timeout
    )
    end = loop.run(train_step)
    print(f"rank {me}: {end.step} steps with {dist.get_world_size()} ranks", flush=True)
    if run is not None:
        run.finish()
    allready.finish(timeout=timeout)
    return end.exit_code


if __name__ == "__main__":
    sys.exit(main())
