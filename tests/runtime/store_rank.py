"""A job whose store is in a process of its own, which the test stops: process 0; the others are ranks 0 and 1."""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

plan = json.loads(sys.argv[1])
ME = int(plan["rank"])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def make() -> Exception:
    import torch.distributed as dist

    import allready

    try:
        with allready.phase("making", float(plan["answer_s"])), allready.subgroups():
            dist.new_group([0, 1])
    except (RuntimeError, TimeoutError, allready.CollectiveFailed) as error:
        return error
    raise AssertionError("torch has made a group without its store")


def main() -> None:
    import torch
    import torch.distributed as dist

    import allready
    from allready.messaging import job_store

    long = timedelta(seconds=100)
    store = dist.TCPStore(
        "127.0.0.1", int(plan["port"]), is_master=ME == 0, wait_for_workers=False, timeout=long
    )  # not a rank's
    if ME == 0:
        store.wait(["over"], long)
        return
    job_store.ANSWER_S = float(plan["answer_s"])
    allready.init_process_group(store=dist.PrefixStore("job", store), rank=ME - 1, world_size=2, start_timeout=long)
    say("formed")
    while not Path(plan["go"]).exists():
        time.sleep(0.01)
    error = make() if plan["makes"] else ValueError("made by the test")
    say("failed", text=str(error))
    recovery = allready.recover(error, timeout=50)
    values = torch.ones(3)
    allready.safe_all_reduce(values)
    say("good", total=values[0].item(), members=recovery.members, is_same=recovery.is_same_group)
    allready.finish()


main()
