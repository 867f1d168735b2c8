"""One rank of a test job: tensors of all kinds through the safe calls, then a call that one rank never enters."""

import json
import sys
import time
from datetime import timedelta
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def main() -> None:
    import torch
    import torch.distributed as dist

    import allready

    allready.init_process_group(
        init_method=f"tcp://127.0.0.1:{plan['port']}", rank=ME, world_size=SIZE, start_timeout=timedelta(seconds=100)
    )
    sums = {}
    for dtype in (torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8):
        tensor = torch.full((7, 3), ME + 1, dtype=dtype)
        allready.safe_all_reduce(tensor)
        sums[str(dtype)] = tensor.unique().tolist()
    say("dtypes", sums=sums)

    matrix = torch.full((4, 6), float(ME))
    column = matrix[:, 1]
    allready.safe_all_reduce(column, dist.ReduceOp.MAX, confirm=True)
    said = torch.full((3, 2), float(ME)).t()
    allready.safe_broadcast(said, 1)
    rows = [torch.zeros(2, 3).t() for _ in range(SIZE)]
    allready.safe_all_gather(rows, torch.full((3, 2), float(ME)))
    empty = torch.zeros(0)
    allready.safe_all_reduce(empty)
    say(
        "views", column=column.tolist(), beside=matrix[:, 0].tolist(), said=said.unique().tolist(),
        rows=[r.unique().tolist() for r in rows],
    )  # fmt: skip

    with allready.phase("short", timedelta(seconds=0.7)):
        if ME == SIZE - 1:
            time.sleep(1.5)
        wide = torch.full((2_000_000,), float(ME))[::2] if plan["strided"] else torch.full((1_000_000,), float(ME))
        failure = allready.safe_all_reduce(wide, on_failure="return", restore=True)
    assert failure is not None
    verdict = failure.verdict
    say(
        "late", code=verdict and verdict.code, culprits=verdict and verdict.culprits.ranks,
        is_restored=failure.is_restored, content=wide.unique().tolist(),
    )  # fmt: skip
    recovery = allready.recover(failure)
    again = torch.ones(1)
    allready.safe_all_reduce(again)
    say("again", members=recovery.members, total=again.item())
    allready.safe_barrier()
    allready.destroy_process_group()


main()
