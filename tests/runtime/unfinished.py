"""A rank that ends by an exception while a thread of Gloo's is in an operation that nothing ends."""

import json
import sys
import time
from datetime import timedelta

plan = json.loads(sys.argv[1])


def main() -> None:
    import torch
    import torch.distributed as dist

    import allready
    from allready.runtime.session import current

    allready.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{plan['port']}",
        rank=plan["rank"],
        world_size=plan["size"],
        start_timeout=timedelta(seconds=100),
    )
    # Gloo does not always notice that a connection was shut: here it never does.
    current().group.cut = lambda: None  # type: ignore[method-assign]
    sys.stdout.write(json.dumps({"event": "started"}) + "\n")
    sys.stdout.flush()
    if plan["rank"] == 1:  # alive and never in the operation: its end would end it
        time.sleep(300)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert work is not None
    current().group.note_unfinished(work)
    raise ValueError("made by the test")


main()
