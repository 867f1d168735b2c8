"""One rank of a test job that calls plain collectives only, and whose epoch is ended again and again in the middle."""

import json
import sys
import threading
from datetime import timedelta

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])


def end_soon(number: int) -> None:
    """From a thread, so at any moment of any rank's operation."""
    from allready.model import FailureCause
    from allready.runtime.messages import Fail
    from allready.runtime.session import current

    session = current()
    fail = Fail(epoch=session.member.epoch, cause=FailureCause.RAISED, error="made by the test")
    threading.Timer(number * 17 % 50 / 1000, session.send, (fail,)).start()


def main() -> None:
    import torch
    import torch.distributed as dist

    import allready

    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{plan['port']}"
    long = timedelta(seconds=100)  # longer than the test waits: only a released rank goes on
    allready.init_process_group(init_method=where, rank=ME, world_size=SIZE, start_timeout=long, timeout=long)
    error: Exception | None = None
    numbers = []
    for number in range(plan["cycles"]):
        try:
            if ME == 0:
                end_soon(number)
            while True:
                dist.all_reduce(torch.ones(16_384))
        except (RuntimeError, ValueError) as caught:
            error = caught
        recovery = allready.recover(error, step=number, timeout=timedelta(seconds=20))
        numbers.append(len(recovery.members))
    allready.destroy_process_group()
    sys.stdout.write(json.dumps({"event": "done", "members": numbers}) + "\n")


main()
