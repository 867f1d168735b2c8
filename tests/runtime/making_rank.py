"""One rank of a test job that makes groups while rank 1 fails or does not come."""

import contextlib
import json
import sys
import time
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])
LIMIT_S = float(plan.get("limit_s", 0.7))
"""Of the making, where rank 1 is late."""


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def fail() -> None:
    raise ValueError("made by the test")


def be_late() -> None:
    time.sleep(LIMIT_S + 1.0)


def come_half(**how: Any) -> None:
    """The others know where this rank listens, and wait for its connection."""
    import torch.distributed as dist

    class Half(dist.Store):  # type: ignore[misc]
        def __init__(self, whole: Any) -> None:
            super().__init__()
            self._whole = whole

        def set(self, key: str, value: bytes) -> None:
            self._whole.set(key, value)

        def wait(self, *_: Any) -> None:
            fail()

    groups = dist.distributed_c10d._world.pg_map
    backend, store = groups[dist.group.WORLD]
    groups[dist.group.WORLD] = backend, Half(store)
    try:
        make(**how)
    finally:
        groups[dist.group.WORLD] = backend, store


def be_late_to_tell() -> None:
    """The others have made their groups and wait to learn this rank's ports."""
    from allready.runtime import group

    tell = group._exchange

    def late(*args: Any) -> Any:
        group._exchange = tell
        be_late()
        return tell(*args)

    group._exchange = late  # type: ignore[assignment]


def make(**how: Any) -> Any:
    import torch.distributed as dist

    return dist.new_group(list(range(SIZE)), **how)


def not_made(
    name: str, *, before: Any = int, inside: Any = int, outside: Any = None, is_after: bool = False, **how: Any
) -> None:
    """Rank 1 does something else where the others wait for it in torch, or before; or without `subgroups`."""
    import allready

    begin_s = time.monotonic()
    try:
        if ME == 1:
            before()
        is_late = bool({be_late, be_late_to_tell} & {inside, outside})
        with (
            allready.phase("making", LIMIT_S if is_late else 60),
            allready.subgroups() if outside is None else contextlib.nullcontext(),
        ):
            if is_after:
                make()
            if ME == 1:
                (outside or inside)(**how)
            if not is_after:
                make(**how)
    except (ValueError, RuntimeError, allready.CollectiveFailed) as error:
        took_s = time.monotonic() - begin_s
        recovery = allready.recover(error)
        verdict = recovery.failure and recovery.failure.verdict
        say(
            name,
            code=verdict and verdict.code,
            culprits=verdict and verdict.culprits.ranks,
            members=recovery.members,
            took_s=took_s,
            error=f"{type(error).__name__}: {error}"[:300],
        )


def main() -> None:
    import torch

    import allready

    device = plan.get("device", "cpu")
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(ME % torch.cuda.device_count())
    where = f"tcp://127.0.0.1:{plan['port']}"
    backend = plan.get("backend", "gloo")
    try:
        start_s = float(plan.get("start_s", 100))
        allready.init_process_group(backend, init_method=where, rank=ME, world_size=SIZE, start_timeout=start_s)
    except allready.RecoveryRefused as refused:
        say("refused", code=refused.verdict.code, culprits=refused.verdict.culprits.ranks, text=str(refused))
        return
    not_made("inside", inside=fail)
    not_made("before", before=fail)
    if "gloo" in backend:  # of others torch has no such wait, or it is of NCCL
        not_made("half", inside=come_half)
    if backend == "gloo":
        not_made("half_of_parts", inside=come_half, backend="cpu:gloo")
    not_made("late", inside=be_late)
    not_made("after", inside=be_late, is_after=True)
    not_made("telling", inside=be_late_to_tell, is_after=True)
    not_made("outside", outside=be_late)
    with allready.subgroups():
        group = make()
    values = torch.ones(3, device=device)
    allready.safe_all_reduce(values, group=group)
    say("made", total=values[0].item())
    allready.finish()


main()
