"""One rank of a test job over NCCL: when safe calls return, what their deadline covers, and what a failure leaves."""

import json
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import allready

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])
LONG = timedelta(seconds=60)
SHORT = timedelta(seconds=1.5)
CYCLES_PER_S = 1_500_000_000


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def total() -> float:
    values = torch.full((1000,), float(ME + 1), device="cuda")
    allready.safe_all_reduce(values, timeout=LONG)
    return float(values[0].item())


def returns() -> None:
    """The result is there on return; other streams are not waited for."""
    beside = torch.cuda.Stream()
    with torch.cuda.stream(beside):
        torch.cuda._sleep(3 * CYCLES_PER_S)
    torch.cuda._sleep(CYCLES_PER_S // 5)
    values = torch.full((1000,), float(ME + 1), device="cuda")
    allready.safe_all_reduce(values, timeout=LONG)
    is_done, is_busy_beside = torch.cuda.current_stream().query(), not beside.query()
    beside.synchronize()
    say("returns", is_done=is_done, is_busy_beside=is_busy_beside, total=float(values[0].item()))


def in_flight() -> None:
    """Several calls at a time; what the current stream does after `wait` has their results."""
    many = [torch.full((100_000,), float(ME + n), device="cuda") for n in range(4)]
    handles = [allready.safe_all_reduce(one, timeout=LONG, async_op=True) for one in many]
    part = torch.zeros(2, device="cuda")
    whole = torch.ones(2 * SIZE, device="cuda")
    handles.append(allready.safe_reduce_scatter(part, whole, timeout=LONG, async_op=True))
    for handle in reversed(handles):
        handle.wait()
    say("in_flight", sums=[float((one + 0.0)[-1].item()) for one in many], part=part.tolist())


def ahead() -> None:
    """The host goes on before the result is there; what the stream does next has it, and the barrier waits for all."""
    values, added = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    for _ in range(150):
        values.fill_(float(ME + 1))
        allready.safe_all_reduce(values, timeout=LONG, ahead=True)
        added += values
    torch.cuda.synchronize()
    allready.safe_all_reduce(values, timeout=LONG, ahead=True)
    torch.cuda._sleep(2 * CYCLES_PER_S)
    begin_s = time.monotonic()
    allready.safe_all_reduce(values, timeout=LONG, ahead=True)
    took_s = time.monotonic() - begin_s
    is_busy = not torch.cuda.current_stream().query()
    allready.safe_barrier(timeout=LONG)
    say(
        "ahead",
        took_s=took_s,
        is_busy=is_busy,
        is_done=torch.cuda.current_stream().query(),
        added=added.unique().tolist(),
    )


def ahead_hangs() -> None:
    """The deadline of a call that runs ahead is kept while the host is in a wait of torch's."""
    values = torch.zeros(1000, device="cuda")
    for _ in range(3):  # then what follows the barrier is expected, too
        allready.safe_all_reduce(values, timeout=LONG, ahead=True)
        allready.safe_barrier(timeout=LONG)
    begin_s = time.monotonic()
    if ME == 2:
        time.sleep(4.0)
    else:
        allready.safe_all_reduce(values, timeout=SHORT, ahead=True)
        torch.cuda.synchronize()
        say("released", took_s=time.monotonic() - begin_s)
    allready.safe_barrier(timeout=LONG)


def fails(event: str, call: Any) -> None:
    """The call fails here as everywhere; then all go on."""
    begin_s = time.monotonic()
    try:
        call()
    except (allready.CollectiveFailed, RuntimeError) as error:
        took_s = time.monotonic() - begin_s
        recovery = allready.recover(error)
        assert recovery.failure is not None
        verdict = recovery.failure.verdict
        assert verdict is not None
        say(
            event,
            code=verdict.code,
            culprits=verdict.culprits.ranks,
            took_s=took_s,
            total=total(),
            is_restored=getattr(error, "is_restored", None),
        )
    else:
        say(event, code="none")


def device_is_late() -> None:
    """All ranks call in time, and the GPU work before the call of one takes longer than the deadline."""
    values = torch.full((1000,), 7.0, device="cuda")
    if ME == 1:
        torch.cuda._sleep(4 * CYCLES_PER_S)
    allready.safe_all_reduce(values, timeout=SHORT)


def plain_hangs() -> None:
    """A plain collective has no deadline of its own; the barrier behind it has."""
    if ME == 2:
        time.sleep(4.0)
    else:
        dist.all_reduce(torch.ones(1000, device="cuda"))
    allready.safe_barrier(timeout=SHORT)


def restores() -> None:
    values = torch.full((1_000_000,), float(ME), device="cuda")
    if ME == 0:
        time.sleep(4.0)
    failure = allready.safe_all_reduce(values, timeout=SHORT, restore=True, on_failure="return")
    if failure is not None:
        say("content", values=values.unique().tolist())
        raise failure


def main() -> None:
    torch.cuda.set_device(ME % torch.cuda.device_count())
    allready.init_process_group(
        "cpu:gloo,cuda:nccl",
        init_method=f"tcp://127.0.0.1:{plan['port']}",
        rank=ME,
        world_size=SIZE,
        start_timeout=timedelta(seconds=100),
    )
    on_cpu = torch.full((10,), float(ME + 1))
    allready.safe_all_reduce(on_cpu, timeout=LONG)
    wide = torch.full((4, 6), float(ME), device="cuda")
    allready.safe_broadcast(wide[:, 1], 1, timeout=LONG)
    rows = [torch.zeros(3, device="cuda") for _ in range(SIZE)]
    allready.safe_all_gather(rows, torch.full((3,), float(ME), device="cuda"), timeout=LONG, confirm=True)
    part = torch.zeros(2, device="cuda")
    allready.safe_reduce_scatter(part, torch.arange(2.0 * SIZE, device="cuda") + ME, timeout=LONG)
    got = torch.zeros(SIZE, device="cuda")
    allready.safe_all_to_all(got, torch.full((SIZE,), float(ME), device="cuda"), timeout=LONG)
    parts = torch.full((1001,), float(ME + 1), device="cuda")
    allready.safe_all_reduce(parts, timeout=LONG, chunk_bytes=400)
    say(
        "healthy",
        on_cpu=on_cpu[0].item(),
        total=total(),
        column=wide[:, 1].tolist(),
        beside=wide[0, 0].item(),
        rows=[r[0].item() for r in rows],
        part=part.tolist(),
        got=got.tolist(),
        parts=parts.unique().tolist(),
    )
    in_flight()
    returns()
    ahead()
    fails("device_is_late", device_is_late)
    fails("plain_hangs", plain_hangs)
    fails("restores", restores)
    fails("ahead_hangs", ahead_hangs)
    allready.safe_barrier(timeout=LONG)
    allready.destroy_process_group()
    say("done")


main()
