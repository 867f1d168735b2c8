"""One rank of a test job: steps with a safe all_reduce, a fault at one of them, and recovery.

Every call's result is checked: the sum over the present members, of numbers that differ by rank and step.
"""

import json
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE, DEVICE = int(plan["rank"]), int(plan["size"]), str(plan.get("device", "cpu"))
odd: list[str] = []
"""How this rank's next call differs from that of the others."""
ENDS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
stops_once_failed: list[bool] = []
"""Whether this rank stops after its next failure is agreed, and before it recovers."""
ONE_OFF = "one off"
"""It is the call before or after in its place: it was made, or left out."""


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "at_s": time.monotonic(), **values}) + "\n")
    sys.stdout.flush()


def strike(fault: dict[str, Any], members: tuple[int, ...]) -> None:
    if fault["kind"] == "kill" and len(members) == 1:
        return  # with the last member the job's state would be gone
    if "after_s" in fault:  # inside of the next call, most likely
        later = {k: v for k, v in fault.items() if k != "after_s"}
        threading.Timer(float(fault["after_s"]), strike, [later, members]).start()
        return
    say("fault", kind=fault["kind"])
    kind = fault["kind"]
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "sleep":
        time.sleep(float(fault["s"]))
    elif kind == "raise":
        raise ValueError("made by the test")
    elif kind.startswith(("kill_forming", "stop_forming")):
        end_in_forming(ENDS[kind[:4]], has_said=kind.endswith("_later"))
    elif kind == "stop_recovering":
        stops_once_failed.append(True)
    elif kind == "differ":
        odd.append(str(fault["how"]))
    elif kind == "exit":
        sys.exit(0)
    elif kind == "crash":
        raise SystemError("made by the test, not caught")


def end_in_forming(number: signal.Signals, *, has_said: bool) -> None:
    """At the next one, before this rank has given the others its address, or right afterwards."""
    from allready.runtime import group

    tell = group._meet

    def end(*given: Any) -> Any:
        group._meet = tell
        found = tell(*given) if has_said else None
        os.kill(os.getpid(), number)
        return found or tell(*given)

    group._meet = end  # type: ignore[assignment]


def teams_of(size: int) -> list[list[list[int]]]:
    """The rows and columns of a mesh that is two wide; with three ranks it has a hole."""
    rows = [[r for r in range(size) if r // 2 == k] for k in (0, 1)]
    return [rows, [[r for r in range(size) if r % 2 == k] for k in (0, 1)]]


def make_teams(members: tuple[int, ...]) -> list[tuple[Any, list[int]]]:
    """Groups of which this rank is one, each with the numbers of its members; by a device mesh where that is whole."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    import allready

    if not plan.get("mesh") or len(members) < 2:
        return [(None, list(members))]
    own = members.index(ME)
    with allready.subgroups():
        if len(members) == 4:
            mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("row", "column"))
            made = [[mesh.get_group("column")], [mesh.get_group("row")]]  # along a row only the column changes
            chosen = [next(t for t in teams if own in t) for teams in teams_of(4)]
            return [(groups[0], [members[r] for r in team]) for groups, team in zip(made, chosen, strict=True)]
        teams = [team for both in teams_of(len(members)) for team in both if team]
        groups_of = [(dist.new_group(team), team) for team in teams]
    return [(group, [members[r] for r in team]) for group, team in groups_of if own in team]


def reduced(values: Any, group: Any, timeout: timedelta) -> Any:
    import torch

    import allready

    if plan.get("plain"):
        torch.distributed.all_reduce(values, group=group)
        return values
    if not plan.get("in_flight"):
        allready.safe_all_reduce(values, group=group, timeout=timeout, confirm=bool(plan.get("confirm")))
        return values
    beside = values.clone()
    first = allready.safe_all_reduce(values, group=group, timeout=timeout, async_op=True)
    second = allready.safe_all_reduce(beside, group=group, timeout=timeout, async_op=True)
    second.wait()
    first.wait()
    return torch.cat([values, beside])


OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all")


def transferred(step: int, group: Any, team: list[int], timeout: timedelta) -> tuple[list[float], list[float]]:
    """One of all operations, safe or plain, with a large tensor: values of its result, and what they are to be."""
    import torch
    import torch.distributed as dist

    import allready

    is_plain, operation = bool(plan.get("plain")), OPERATIONS[step % len(OPERATIONS)]
    given: dict[str, Any] = {"group": group} if is_plain else {"group": group, "timeout": timeout}
    if not is_plain and plan.get("in_flight"):
        given["async_op"] = True
    elements = int(plan["large"]) // len(team) * len(team)
    values = torch.full((elements,), float(step * SIZE + ME), device=DEVICE)
    total, first = float(sum(step * SIZE + m for m in team)), float(step * SIZE + team[0])
    each = [float(step * SIZE + m) for m in team]
    if operation == "all_reduce":
        work = (dist.all_reduce if is_plain else allready.safe_all_reduce)(values, **given)
        found, expected = [values], [total]
    elif operation == "broadcast":
        source = dist.get_global_rank(group, 0) if group is not None else 0
        work = (dist.broadcast if is_plain else allready.safe_broadcast)(values, source, **given)
        found, expected = [values], [first]
    elif operation == "all_gather":
        found, expected = [torch.zeros_like(values) for _ in team], each
        work = (dist.all_gather if is_plain else allready.safe_all_gather)(found, values, **given)
    elif operation == "reduce_scatter":
        found, expected = [values.new_zeros(elements // len(team))], [total]
        scatter = dist.reduce_scatter_tensor if is_plain else allready.safe_reduce_scatter
        work = scatter(found[0], values, **given)
    else:
        received = torch.zeros_like(values)
        found, expected = list(received.chunk(len(team))), each
        work = (dist.all_to_all_single if is_plain else allready.safe_all_to_all)(received, values, **given)
    if given.get("async_op"):
        work.wait()
    return [t[n].item() for t in found for n in (0, -1, t.numel() // 2)], [e for e in expected for _ in range(3)]


def varied(step: int, group: Any, team: list[int], timeout: timedelta) -> tuple[list[float], list[float]]:
    """A call of a loop in which no call is like the one before it; or what this rank calls in its place."""
    import torch
    import torch.distributed as dist

    import allready

    how = odd.pop() if odd else ""
    given: dict[str, Any] = {"group": group, "timeout": timeout, "async_op": bool(plan.get("in_flight"))}
    elements = len(team) * (3 + step % 5) * (2 if how == "size" else 1)
    total = float(sum(step * SIZE + m for m in team))
    kind = OPERATIONS[(step + (how == "operation")) % len(OPERATIONS)]
    is_other_type = how == "dtype" or (how == "argument" and kind == "all_gather")  # that has no other argument
    dtype = torch.float64 if is_other_type else torch.float32
    values = torch.full((elements,), float(step * SIZE + ME), dtype=dtype, device=DEVICE)
    if how == "skip":
        odd.append(ONE_OFF)
        return [], []
    if how == "barrier":
        allready.safe_barrier(group, timeout=timeout)
        return [], []
    found, expected = [values], [total]
    if kind == "all_reduce":
        op = dist.ReduceOp.MAX if how == "argument" else None
        work = allready.safe_all_reduce(values, op, **given)
    elif kind == "broadcast":
        place = 1 if how == "argument" and len(team) > 1 else 0
        source = dist.get_global_rank(group, place) if group is not None else place
        work = allready.safe_broadcast(values, source, **given)
        expected = [float(step * SIZE + team[0])]
    elif kind == "all_gather":
        found, expected = [torch.zeros_like(values) for _ in team], [float(step * SIZE + m) for m in team]
        work = allready.safe_all_gather(found, values, **given)
    elif kind == "reduce_scatter":
        found = [values.new_zeros(elements // len(team))]
        work = allready.safe_reduce_scatter(found[0], values, dist.ReduceOp.MAX if how == "argument" else None, **given)
    else:
        sends = receives = [elements // len(team)] * len(team)
        if how == "argument" and len(team) > 1:
            sends = [sends[0] - 1, sends[1] + 1, *sends[2:]]
        received = torch.zeros_like(values)
        work = allready.safe_all_to_all(received, values, receives, sends, **given)
        found, expected = list(received.chunk(len(team))), [float(step * SIZE + m) for m in team]
    if given["async_op"]:
        work.wait()
    if how == "twice":
        odd.append(ONE_OFF)
        varied(step, group, team, timeout)
    return [t[n].item() for t in found for n in (0, -1)], [e for e in expected for _ in range(2)]


def call_and_check(step: int, group: Any, team: list[int], timeout: timedelta) -> None:
    """One step's call; the process ends where its result is wrong."""
    import torch

    if plan.get("large"):
        got, expected = transferred(step, group, team, timeout)
    elif plan.get("varied"):
        got, expected = varied(step, group, team, timeout)
    else:
        values = torch.full((int(plan.get("elements", 1000)),), float(step * SIZE + ME), device=DEVICE)
        values = reduced(values, group, timeout)
        got, expected = [values[0].item(), values[-1].item()], [float(sum(step * SIZE + m for m in team))] * 2
    if got != expected:
        say("wrong", step=step, got=got, expected=expected, team=team)
        os._exit(9)


def say_failed(error: Exception, step: int, blocked_s: float) -> None:
    failure = getattr(error, "failure", None)
    verdict = getattr(error, "verdict", None)
    say(
        "failed",
        step=step,
        blocked_s=blocked_s,
        error=type(error).__name__,
        text=str(error),
        epoch=None if failure is None else failure.epoch,
        first_void=None if failure is None else failure.first_void,
        code=None if verdict is None else verdict.code,
        culprits=None if verdict is None else verdict.culprits.ranks,
    )


def say_recovered(recovery: Any, step: int) -> None:
    import allready
    from allready.runtime.session import current

    values: dict[str, Any] = {"members": recovery.members, "joined": recovery.joined, "step": step}
    values["limited"] = allready.effective_timeouts()[0].ranks
    if ME not in recovery.joined:  # it knows another failure
        agreed, verdict = recovery.failure, recovery.failure.verdict
        values |= {
            "first_void": agreed.first_void, "survivors": agreed.failure.survivors, "cause": agreed.failure.cause,
            "code": verdict and verdict.code, "culprits": verdict and verdict.culprits.ranks,
        }  # fmt: skip
    say("recovered", rank=recovery.rank, epoch=current().member.epoch, is_same=recovery.is_same_group, **values)


def join(timeout: timedelta) -> None:
    import torch

    import allready

    where = f"tcp://127.0.0.1:{plan['port']}"
    if plan.get("adopted"):
        torch.distributed.init_process_group("gloo", init_method=where, rank=ME, world_size=SIZE)
    else:
        allready.init_process_group(
            "nccl" if DEVICE == "cuda" else "gloo",
            init_method=where,
            rank=ME,
            world_size=SIZE,
            start_timeout=timedelta(seconds=100),
            timeout=timeout if plan.get("plain") else None,
            answer_within=timedelta(seconds=float(plan.get("answer_s", 1.0))),
        )


def main() -> None:
    import torch

    import allready

    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.cuda.set_device(ME % torch.cuda.device_count())
    timeout = timedelta(seconds=float(plan.get("timeout_s", 2.0)))
    join(timeout)
    say("started", is_outside=allready.is_outside())
    members = tuple(range(SIZE))
    teams = make_teams(members)
    faults = [f for f in plan.get("faults", []) if f["rank"] == ME]
    step, called_s, has_recovered = 0, time.monotonic(), False
    if allready.is_outside():
        recovery = allready.recover(rejoin=True)
        members, teams, step, has_recovered = recovery.members, [], max(recovery.steps), True
        say_recovered(recovery, step)
    while step < int(plan.get("steps", 30)) or len(members) < int(plan.get("least", 0)):
        try:
            for fault in [f for f in faults if f["step"] <= step]:
                faults.remove(fault)
                strike(fault, members)
            if not teams:
                called_s = time.monotonic()
                teams = make_teams(members)
            for group, team in teams:
                called_s = time.monotonic()
                call_and_check(step, group, team, timeout)
            if has_recovered:
                has_recovered = False
                say("good", step=step)
            if step % 7 == 3:
                called_s = time.monotonic()
                allready.safe_barrier(timeout=timeout)
            if plan.get("pace_s"):
                time.sleep(float(plan["pace_s"]))
            step += 1
        except (allready.CollectiveFailed, ValueError, RuntimeError) as error:
            say_failed(error, step, time.monotonic() - called_s)
            if stops_once_failed:
                stops_once_failed.clear()
                os.kill(os.getpid(), signal.SIGSTOP)
            recovery = allready.recover(
                error,
                step=step,
                min_ranks=int(plan.get("min_ranks", 1)),
                timeout=timedelta(seconds=float(plan.get("recover_s", 20.0))),
                rejoin=bool(plan.get("rejoin")),
            )
            members, has_recovered, teams = recovery.members, True, []
            step = max(recovery.steps)
            say_recovered(recovery, step)
    allready.safe_barrier(timeout=timeout)
    allready.destroy_process_group()
    say("done", steps=step)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        say("ended", error=type(error).__name__, text=str(error))
        raise
