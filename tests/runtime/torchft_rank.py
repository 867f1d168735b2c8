"""One rank of a replica group under torchft: one rank raises in a step, which is then dropped and done again."""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

plan = json.loads(sys.argv[1])
RANK, STEPS = int(plan["rank"]), 8
REPLICA, ME = divmod(RANK, 2)


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


class Manager:
    """The part of torchft's that a training loop and we call, in a job of one replica group; for where it is not."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._step = 0

    def start_quorum(self) -> None:
        self._error = None

    def current_step(self) -> int:
        return self._step

    def errored(self) -> Exception | None:
        return self._error

    def report_error(self, e: Exception) -> None:
        self._error = e

    def should_commit(self) -> bool:
        import torch

        import allready

        votes = torch.tensor([int(self._error is None)])
        # As torchft's own vote final on all ranks: else the one that raises next would end it on who still is in it.
        allready.safe_all_reduce(votes, torch.distributed.ReduceOp.MIN, confirm=True)
        self._step += int(votes.item())
        return bool(votes.item())


class Group:
    """That of torchft, as far as we call it."""

    num_aborts = 0

    def abort(self) -> None:
        self.num_aborts += 1


def lighthouse() -> str:
    """Rank 0 of all starts it; its address."""
    from torchft.coordination import LighthouseServer

    path = Path(plan["where"]) / "lighthouse"
    if RANK == 0:
        globals()["server"] = server = LighthouseServer(
            bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=10_000, heartbeat_timeout_ms=5000
        )
        path.with_suffix(".new").write_text(server.address())
        path.with_suffix(".new").rename(path)
    until_s = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return path.read_text()


def real(module: Any, store: Any) -> tuple[Any, Any]:
    import torchft

    group = torchft.ProcessGroupGloo(timeout=timedelta(seconds=60))
    manager = torchft.Manager(
        pg=group,
        min_replica_size=2,
        load_state_dict=module.load_state_dict,
        state_dict=module.state_dict,
        replica_id=f"replica{REPLICA}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=ME,
        world_size=2,
        lighthouse_addr=lighthouse(),
        timeout=timedelta(seconds=60),
        quorum_timeout=timedelta(seconds=60),
        init_sync=False,  # all begin with the same weights
    )
    return manager, group


def store_of_replica() -> Any:
    """Its first rank has it."""
    import torch.distributed as dist

    port = Path(plan["where"]) / f"store{REPLICA}"
    if ME == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port.with_suffix(".new").write_text(str(store.port))
        port.with_suffix(".new").rename(port)
        return store
    until_s = time.monotonic() + 100
    while not port.exists():
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return dist.TCPStore("127.0.0.1", int(port.read_text()), is_master=False, wait_for_workers=False)


def main() -> None:
    import torch
    import torch.distributed as dist

    import allready
    from allready.integrations import torchft_failures

    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = store_of_replica()
    timeout = timedelta(seconds=30)
    allready.init_process_group(
        store=dist.PrefixStore("allready", store), rank=ME, world_size=2, timeout=timeout, start_timeout=100.0
    )
    module = torch.nn.Linear(4, 1)
    manager: Any
    group: Any
    manager, group = real(module, store) if plan["real"] else (Manager(), Group())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    has_struck = False
    while manager.current_step() < STEPS:
        step = manager.current_step()
        manager.start_quorum()
        optimizer.zero_grad()
        begin_s = time.monotonic()
        try:
            with torchft_failures(manager, group):
                if plan["victim"] == RANK and step == 3 and not has_struck:
                    has_struck = True
                    raise ValueError("made by the test")
                module(torch.ones(2, 4) * (RANK + 1)).sum().backward()
                for parameter in module.parameters():
                    dist.all_reduce(parameter.grad)  # within the replica group
                    if plan["real"]:
                        manager.allreduce(parameter.grad).wait()
        except allready.CollectiveFailed as failure:
            allready.recover(failure, step=step, min_ranks=2, timeout=timeout)
            say("failed", step=step, code=failure.verdict.code, culprits=failure.verdict.culprits.ranks)
        error = manager.errored()
        if manager.should_commit():
            optimizer.step()
        else:
            say("dropped", step=step, error=str(error), took_s=time.monotonic() - begin_s)
    say("done", steps=manager.current_step(), weights=[p.tolist() for p in module.parameters()])
    if plan["real"]:
        time.sleep(2.0)  # the others may still ask this replica's servers
        manager.shutdown(wait=False)
    else:
        say("aborts", num=group.num_aborts)
    allready.finish(timeout=timeout)
    sys.stdout.flush()
    os._exit(0)  # torchft's threads do not end


main()
