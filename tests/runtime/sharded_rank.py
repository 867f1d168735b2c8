"""One rank of a test job with tensor parallel or FSDP2: one rank comes too late or dies, and mesh and model are made
anew."""

import json
import os
import signal
import sys
import time
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def bare() -> Any:
    """The same weights each time."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 4))


def whole() -> Any:
    """What one process computes."""
    import torch

    return bare()(torch.ones(2, 12)).detach()


def make(size: int) -> Any:
    """The model, divided among the ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    import allready

    model = bare()
    with allready.subgroups():
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("all",))
        if plan["kind"] == "fsdp":
            return fully_shard(model, mesh=mesh)
        return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def strike() -> None:
    if plan["fault"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(plan["timeout_s"] + 0.7)


def main() -> None:
    import torch

    import allready

    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{plan['port']}"
    allready.init_process_group(
        init_method=where, rank=ME, world_size=SIZE, start_timeout=100, timeout=plan["timeout_s"]
    )
    # What comes before the deadline counts includes torch's first use of it, which takes seconds.
    with allready.phase("start", 100):
        model = make(SIZE)
        model(torch.ones(2, 12)).sum().backward()
        allready.safe_barrier()
    losses: list[float] = []
    caught: Exception | None = None
    has_struck = False
    while len(losses) < 6:
        try:
            if caught is not None:
                error, caught = caught, None
                recovery = allready.recover(error, step=len(losses), timeout=30)
                failure = recovery.failure
                assert failure is not None
                say("recovered", members=recovery.members, code=failure.verdict.code if failure.verdict else None)
                losses = losses[: min(recovery.steps)]
                try:  # its groups are gone; that it was tried must not disturb the new one
                    model(torch.ones(2, 12)).pow(2).sum().backward()
                except (RuntimeError, ValueError) as gone:
                    say("old", text=str(gone))
                with allready.phase("start", 100):
                    model = make(recovery.world_size)
            if len(losses) == 3 and plan["victim"] == ME and not has_struck:
                has_struck = True
                strike()
            loss = model(torch.ones(2, 12)).pow(2).sum()
            loss.backward()
            allready.safe_barrier()
            losses.append(round(float(loss.detach()), 4))
        except (allready.CollectiveFailed, RuntimeError) as error:
            caught = error
            say("failed", error=type(error).__name__, text=str(error)[:300])
    allready.safe_barrier()
    allready.destroy_process_group()
    say("done", losses=losses, whole=round(float(whole().pow(2).sum()), 4))


main()
