"""One rank of a test job whose training uses DDP and plain collectives only; `recover` makes it survive."""

import contextlib
import json
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "at_s": time.monotonic(), **values}) + "\n")
    sys.stdout.flush()


def strike() -> None:
    if plan["kind"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if plan["kind"] == "late":
        time.sleep(3.0)
        return
    raise ValueError("made by the test")


def main() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import allready

    torch.set_num_threads(1)
    torch.manual_seed(0)
    where = f"tcp://127.0.0.1:{plan['port']}"
    long = timedelta(seconds=plan.get("timeout_s", 100))  # longer than the test waits: only a released rank goes on
    allready.init_process_group(init_method=where, rank=ME, world_size=SIZE, start_timeout=100, timeout=long)
    model = DistributedDataParallel(torch.nn.Linear(64, 8))
    say("started")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step, has_failed = 0, False
    while step < plan.get("steps", 20):
        try:
            optimizer.zero_grad()
            loss = model(torch.full((4, 64), float(ME + step))).pow(2).mean()
            if step == 8 and plan["victim"] == ME and not has_failed:
                has_failed = True
                say("fault")
                strike()
            with allready.phase("short", plan["deadline_s"]) if "deadline_s" in plan else contextlib.nullcontext():
                loss.backward()
            optimizer.step()
            step += 1
        except (RuntimeError, ValueError) as error:
            has_failed = True
            recovery = allready.recover(error, step=step, timeout=timedelta(seconds=30))
            if not recovery.is_same_group:
                model = DistributedDataParallel(model.module)
            for parameter in model.parameters():
                dist.broadcast(parameter.data, recovery.source)
            step = max(recovery.steps)
            assert recovery.failure is not None
            verdict = recovery.failure.verdict
            assert verdict is not None
            say(
                "recovered",
                members=recovery.members,
                is_same=recovery.is_same_group,
                code=verdict.code,
                culprits=verdict.culprits.ranks,
            )
    total = sum(float(p.double().sum()) for p in model.parameters())
    allready.safe_barrier()
    allready.destroy_process_group()
    say("done", total=round(total, 9), steps=step)


try:
    main()
except Exception as ending:
    say("ended", error=type(ending).__name__, text=str(ending))
    raise
