"""One rank of a test job in which ranks 0 and 1 have two groups, and call in these in an order of their own."""

import json
import sys
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def groups() -> list[Any]:
    import torch.distributed as dist

    import allready

    with allready.subgroups():
        return [dist.new_group([0, 1]) for _ in range(2)]


def in_both_orders(first: Any, second: Any) -> list[float]:
    """Each rank begins with another group."""
    import torch

    import allready

    sums = {first: torch.ones(3), second: torch.full((5,), 2.0)}
    order = [first, second] if ME == 0 else [second, first]
    handles = [allready.safe_all_reduce(sums[g], group=g, timeout=20, async_op=True) for g in order]
    for handle in handles:
        handle.wait()
    return [sums[first][0].item(), sums[second][-1].item()]


def failed_in(name: str, call: Any) -> None:
    """The others wait in a barrier, and all recover."""
    import allready

    try:
        if ME < 2:
            call()
        else:
            allready.safe_barrier(timeout=30)
    except allready.CollectiveFailed as error:
        failure, verdict = error.failure, error.verdict
        assert failure is not None
        say(
            name,
            code=verdict and verdict.code,
            culprits=verdict and verdict.culprits.ranks,
            group=failure.group,
            twin=failure.twin,
            voids=[(v.group, v.twin, v.first_void) for v in failure.voids if v.group],
        )
        allready.recover(error)


def main() -> None:
    import torch

    import allready

    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{plan['port']}"
    allready.init_process_group(init_method=where, rank=ME, world_size=SIZE, start_timeout=100)
    first, second = groups()
    if ME < 2:
        say("sums", values=in_both_orders(first, second))
        allready.safe_all_reduce(torch.ones(2), group=first)
    failed_in("size", lambda: allready.safe_all_reduce(torch.ones(3 + ME), group=second, timeout=20))
    first, second = groups()
    failed_in(
        "apart", lambda: allready.safe_all_reduce(torch.ones(3), group=(first, second)[ME], timeout=1.0 + 20 * ME)
    )
    first, second = groups()
    if ME < 2:
        say("again", values=in_both_orders(first, second))
    allready.finish()


main()
