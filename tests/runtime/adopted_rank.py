"""One rank of a test job whose group torch has made: `plan["kind"]` says what happens."""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE, KIND = int(plan["rank"]), int(plan["size"]), str(plan["kind"])
LONG = timedelta(seconds=100)


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "at_s": time.monotonic(), **values}) + "\n")
    sys.stdout.flush()


def make_by_torch() -> None:
    import torch.distributed as dist

    where = f"file://{plan['file']}" if "file" in plan else f"tcp://127.0.0.1:{plan['port']}"
    dist.init_process_group("gloo", init_method=where, rank=ME, world_size=SIZE, timeout=LONG)


def summed(value: float, **given: Any) -> float:
    import torch

    import allready

    values = torch.full((5,), value)
    allready.safe_all_reduce(values, **given)
    return float(values[0].item())


def connection_of_the_script() -> tuple[socket.socket, socket.socket] | None:
    """Between the first two ranks, and where one of them listens; torch knows nothing of it."""
    import torch
    import torch.distributed as dist

    server = socket.create_server(("127.0.0.1", 0))
    port = torch.tensor([server.getsockname()[1]])
    dist.broadcast(port, 0)
    if ME > 1:
        return None
    if ME == 1:
        return socket.create_connection(("127.0.0.1", int(port.item()))), server
    accepted, _ = server.accept()
    return accepted, server


def is_whole(connection: socket.socket) -> bool:
    connection.settimeout(20.0)
    connection.sendall(b"still there")
    return connection.recv(11) == b"still there"


def error_of(call: Any, *given: Any, **named: Any) -> str:
    try:
        call(*given, **named)
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return f"{type(error).__name__}: {error}"
    return ""


def strike() -> None:
    if KIND == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if KIND == "raise":
        raise ValueError("made by the test")
    time.sleep(2.0)


def train() -> None:
    """Steps with DDP, a plain sum in a group from before and a safe call; one rank's fault; recovery."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import allready
    from allready.runtime.session import current

    make_by_torch()
    connection = connection_of_the_script()
    before: Any = dist.new_group(list(range(SIZE)))
    refused = ""
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    step, has_failed = 0, False
    say("started", first=summed(ME + 1.0))
    while step < 12:
        try:
            model(torch.ones(2, 8)).sum().backward()
            is_victim = step == 5 and plan["victim"] == ME and not has_failed
            if is_victim and KIND == "raise":  # the others wait in the group from before
                has_failed = True
                strike()
            if before is not None:
                refused = refused or error_of(allready.safe_barrier, before)
                plain = torch.ones(3)
                dist.all_reduce(plain, group=before)
                assert plain[0].item() == SIZE
            if is_victim:
                has_failed = True
                strike()
            allready.safe_barrier(timeout=1.0)
            step += 1
        except (allready.CollectiveFailed, RuntimeError, ValueError) as error:
            has_failed, before = True, None
            recovery = allready.recover(error, step=step, timeout=30)
            assert recovery.failure is not None
            verdict = recovery.failure.verdict
            assert verdict is not None
            if not recovery.is_same_group:
                model = DistributedDataParallel(model.module)
            step = max(recovery.steps)
            say(
                "recovered",
                members=recovery.members,
                is_same=recovery.is_same_group,
                code=verdict.code,
                culprits=verdict.culprits.ranks,
            )
    total = summed(1.0)
    whole = connection is None or plan["victim"] < 2 or is_whole(connection[0])
    allready.safe_barrier()
    store = current().group.store_text
    dist.destroy_process_group()
    threads = [t.name for t in threading.enumerate() if t.name.startswith("allready")]
    say("done", steps=step, total=total, is_whole=whole, refused=refused, threads=threads, store=store)


def hang() -> None:
    """A plain collective hangs after the first safe call, in a phase; the deadline holds for it too."""
    import torch
    import torch.distributed as dist

    import allready

    make_by_torch()
    with allready.phase("short", 1.5):
        summed(1.0)
        begin_s = time.monotonic()
        if ME == 0:
            time.sleep(4.0)
        error = error_of(dist.all_reduce, torch.ones(3)) if ME else "ValueError: late"
        say("plain", s=time.monotonic() - begin_s, error=error)
    recovery = allready.recover(RuntimeError(error), timeout=30)
    say("done", total=summed(1.0), members=recovery.members)
    allready.finish()


def miss() -> None:
    """One rank comes to no call: those that do name it; then it comes."""
    import torch.distributed as dist

    import allready

    make_by_torch()
    if plan["victim"] == ME:
        time.sleep(plan["wait_s"])
    else:
        try:
            allready.init_process_group(start_timeout=plan["wait_s"] / 2)
        except allready.RecoveryRefused as error:
            verdict = error.verdict
            say("refused", code=verdict and verdict.code, culprits=verdict and verdict.culprits.ranks)
    values = [summed(1.0)]
    dist.barrier()
    say("done", totals=values)
    allready.destroy_process_group()
    say("left", is_there=dist.is_initialized())


def call_twice() -> None:
    """A second thread calls while the first waits for the other rank to come."""
    import allready

    make_by_torch()
    found: list[str] = []
    if ME == 1:
        time.sleep(1.5)
    else:
        later = threading.Timer(0.7, lambda: found.append(error_of(allready.safe_barrier)))
        later.start()
    total = summed(1.0)
    if ME == 0:
        later.join()
    say("done", total=total, found=found)
    allready.finish()


def in_child(call: Any) -> str:
    """What it raises in a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, error_of(call).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as told:
        return told.read()


def alone() -> None:
    """One process: what is refused, what waits for no other, and one group of torch's after the other."""
    import torch.distributed as dist

    import allready

    make_by_torch()
    init = allready.init_process_group
    found = {
        "rank": error_of(init, rank=3),
        "size": error_of(init, world_size=2),
        "backend": error_of(init, "nccl"),
        "store": error_of(init, init_method="env://"),
        "rejoin": error_of(init, rejoin=True),
        "metrics": error_of(allready.metrics.start),
        "outside": str(allready.is_outside()),
        "forked": in_child(lambda: allready.safe_barrier(timeout=1.0)),
        "before": str(allready.effective_timeouts()),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(allready.phase("short", 7.0))
        found["in_phase"] = str(allready.effective_timeouts())
        total = summed(4.0)
        found["adopted"] = str(allready.effective_timeouts())
        found["again"] = error_of(init)
    found["after"] = str(allready.effective_timeouts())
    dist.destroy_process_group()
    found["gone"] = error_of(allready.safe_barrier)
    with socket.create_server(("127.0.0.1", 0)) as free:
        plan["port"] = free.getsockname()[1]
    make_by_torch()
    with allready.phase("short", 7.0):
        pass
    found["second"] = str(allready.effective_timeouts())
    total += summed(2.0)
    allready.finish()
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    found["fake"] = error_of(allready.safe_barrier)
    found["phase"] = error_of(allready.phase("short", 7.0).__enter__)
    allready.destroy_process_group()
    say("done", total=total, found=found, is_there=dist.is_initialized())


KINDS = {"hang": hang, "miss": miss, "twice": call_twice, "alone": alone}


try:
    KINDS.get(KIND, train)()
except Exception as ending:
    say("ended", error=type(ending).__name__, text=str(ending))
    raise
