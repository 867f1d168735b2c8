"""The only rank of a test job: what a call costs its thread, counted and not timed."""

import json
import resource
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

plan = json.loads(sys.argv[1])
NUM_CALLS = 500


def main() -> None:
    import torch
    import torch.distributed as dist

    import allready
    from allready.runtime.session import current

    where = f"tcp://127.0.0.1:{plan['port']}"
    allready.init_process_group(init_method=where, rank=0, world_size=1, timeout=timedelta(seconds=100))
    tensor = torch.zeros(256)
    limit = timedelta(seconds=50)
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: dist.all_reduce(tensor),
        "safe": lambda: allready.safe_all_reduce(tensor),
        "limited": lambda: allready.safe_all_reduce(tensor, timeout=limit),
        "plain broadcast": lambda: dist.broadcast(tensor, 0),
        "broadcast": lambda: allready.safe_broadcast(tensor),
    }
    session, num_sent = current(), [0]
    send = session.send

    def counted(message: Any) -> None:
        num_sent[0] += 1
        send(message)

    session.send = counted  # type: ignore[method-assign]
    found = {name: measured(call, num_sent) for name, call in ways.items()}
    found["confirmed"] = measured(lambda: allready.safe_all_reduce(tensor, confirm=True), num_sent)
    sys.stdout.write(json.dumps({"event": "cost", **found}) + "\n")
    allready.destroy_process_group()


def measured(call: Callable[[], object], num_sent: list[int]) -> dict[str, float]:
    """Of one call: functions of Python's and of C's that it calls, waits, messages to the hub; threads left behind."""
    call()
    events: Counter[str] = Counter()
    sys.setprofile(lambda _frame, event, _what: events.update([event]))
    call()
    sys.setprofile(None)
    sent, threads = num_sent[0], threading.active_count()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(NUM_CALLS):
        call()
    waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
    return {
        "functions": events["call"],
        "c_functions": events["c_call"],
        "waits": waits / NUM_CALLS,
        "messages": (num_sent[0] - sent) / NUM_CALLS,
        "threads": threading.active_count() - threads,
    }


main()
