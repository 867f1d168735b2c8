"""One rank of a test job: forks, threads and interrupts around the safe calls, and a store that is used again."""

import contextlib
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])
LONG = timedelta(seconds=100)


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def total() -> float:
    import torch

    import allready

    values = torch.full((1000,), float(ME + 1))
    allready.safe_all_reduce(values, timeout=timedelta(seconds=30))
    return float(values[0].item())


def double(value: int) -> int:
    return 2 * value


def children() -> None:
    """Forked and spawned workers, and a forked child that calls; the job is not disturbed."""
    from allready.errors import UsageError

    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.apply(double, (4,)) == 8
    child = os.fork()
    if child == 0:
        try:
            total()
        except UsageError:
            os._exit(7)
        os._exit(1)
    say("children", code=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), total=total())


def threads() -> None:
    """A second thread calls while the first one waits: it is refused, and the first one's sum is right."""
    from allready.errors import UsageError

    refused = []

    def second() -> None:
        time.sleep(0.3)
        try:
            total()
        except UsageError as error:
            refused.append(str(error))

    thread = threading.Thread(target=second)
    if ME == 0:
        thread.start()
    else:
        time.sleep(1.0)
    found = total()
    if ME == 0:
        thread.join()
    say("threads", total=found, refused=len(refused))


def interrupt() -> None:
    """Ctrl+C on rank 1 inside of a call; all go on together.  What is left of the old group is no danger to a child."""
    import torch.distributed as dist

    import allready

    gc.disable()
    cycle: list[Any] = [dist.group.WORLD]
    cycle.append(cycle)
    del cycle
    if ME == 1:
        threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        if ME == 0:
            time.sleep(1.5)  # so that rank 1 waits
        total()
    except (KeyboardInterrupt, allready.CollectiveFailed) as error:
        recovery = allready.recover(error)
        verdict = recovery.failure.verdict
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0 if not gc.isenabled() else 1)
        gc.enable()
        until_s = time.monotonic() + 20.0
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until_s:
            time.sleep(0.01)
        if not ended[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        say("interrupt", code=verdict.code, culprits=verdict.culprits.ranks, total=total(), child=ended)
    else:
        say("interrupt", code="none")


def orphan() -> None:
    """The last rank is killed while a child that it forked lives on: the others know at once."""
    import allready

    if ME == SIZE - 1:
        if os.fork() == 0:
            time.sleep(float(plan["child_s"]))
            os._exit(0)
        total()
        time.sleep(0.5)  # the sum is there for this rank, and may still be on its way to the others
        os.kill(os.getpid(), signal.SIGKILL)
    total()
    begin_s = time.monotonic()
    try:
        total()
    except allready.CollectiveFailed as error:
        took_s = time.monotonic() - begin_s
        allready.recover(error)
        say("orphan", took_s=took_s, code=error.verdict.code, total=total())


def again() -> None:
    """A launcher starts the ranks again and keeps its store: nothing of the first attempt is taken for the second."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", plan["port"], is_master=ME == 0, wait_for_workers=False, timeout=LONG)
    for attempt in range(2):
        if os.fork() == 0:
            attempt_of(attempt)
        os.wait()
        store.set(f"ended/{attempt}/{ME}", "1")
    say("again")
    store.add("ended", 1)
    while ME == 0 and store.add("ended", 0) < SIZE:
        time.sleep(0.02)


def end_when_broken() -> None:
    import torch.distributed as dist

    beside = dist.TCPStore("127.0.0.1", plan["port"], is_master=False, wait_for_workers=False, timeout=LONG)
    beside.wait(["broken"])
    time.sleep(0.3 * ME)
    os._exit(0)


def attempt_of(attempt: int) -> None:
    import torch.distributed as dist

    import allready

    own = dist.TCPStore("127.0.0.1", plan["port"], is_master=False, wait_for_workers=False, timeout=LONG)
    if attempt == 0 and ME == SIZE - 1:  # dies before it joins: the first hub never knew of it
        own.wait(["allready/hub"])
        own.set("broken", "1")
        os._exit(0)
    if attempt == 0:
        threading.Thread(target=end_when_broken, daemon=True).start()
    elif ME == 0:
        time.sleep(1.0)  # the others find what the first attempt has left
    else:  # one that lives would take this rank for that which it waits for: launchers end them first
        own.wait(["ended/0/0"])
    allready.init_process_group(store=own, rank=ME, world_size=SIZE, start_timeout=LONG)
    say("joined", attempt=attempt, total=total())
    allready.safe_barrier()
    allready.destroy_process_group()
    os._exit(0)


def main() -> None:
    import torch

    import allready

    torch.set_num_threads(1)
    if plan["what"] == "again":
        again()
        return
    where = f"tcp://{plan.get('host', '127.0.0.1')}:{plan['port']}"
    allready.init_process_group(init_method=where, rank=ME, world_size=SIZE, start_timeout=LONG)
    children()
    threads()
    interrupt()
    orphan()
    with contextlib.suppress(allready.CollectiveFailed):
        allready.safe_barrier()
    allready.destroy_process_group()
    say("done")


if __name__ == "__main__":
    main()
