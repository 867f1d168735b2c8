"""One rank of a test job: tensors of all kinds through the safe calls, then a call that one rank never enters."""

import inspect
import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def make_team() -> Any:
    import torch.distributed as dist

    import allready

    with allready.subgroups():
        return dist.new_group([0, 2])


def others() -> None:
    """Scattered, exchanged and chunked, also in a subgroup."""
    import torch
    import torch.distributed as dist

    import allready
    from allready.errors import UsageError

    team = make_team()
    teams: list[tuple[Any, int, int]] = [(None, SIZE, ME)]
    if ME != 1:
        teams.append((team, 2, ME // 2))
    found: dict[str, list[Any]] = {"scattered": [], "highest": [], "exchanged": [], "uneven": [], "chunks": []}
    for group, size, place in teams:
        rows = torch.arange(float(2 * size * 3)).view(2 * size, 3) + ME
        part = torch.zeros(3, 2).t()
        allready.safe_reduce_scatter(part, rows, group=group, confirm=True)
        found["scattered"].append(part.tolist())
        highest = torch.zeros(3, dtype=torch.int64)
        allready.safe_reduce_scatter(highest, torch.full((3 * size,), ME), dist.ReduceOp.MAX, group)
        found["highest"].append(highest.tolist())
        got = torch.zeros(2, size).t()
        allready.safe_all_to_all(got, torch.full((size, 2), float(ME)) + torch.arange(size)[:, None] * 10, group=group)
        found["exchanged"].append(got.tolist())
        mine = torch.full((size * (size + 1) // 2,), float(ME))
        got = torch.zeros(size * (place + 1))
        allready.safe_all_to_all(got, mine, [place + 1] * size, list(range(1, size + 1)), group)
        found["uneven"].append(got.tolist())
        for chunk_bytes in (1, torch.tensor(16), 10**9):  # as an int of NumPy's: a whole number of another class
            wide = torch.arange(3001.0)[::3] + ME
            allready.safe_all_reduce(wide, group=group, chunk_bytes=chunk_bytes)
            found["chunks"].append(bool((wide == torch.arange(3001.0)[::3] * size + (3 if size == 3 else 2)).all()))
    if ME == 1:
        texts = []
        part = torch.zeros(1)
        strange: list[Callable[[], Any]] = [
            lambda: allready.safe_all_gather([part], part, team),
            lambda: allready.safe_reduce_scatter(part, part, group=team),
            lambda: allready.safe_all_to_all(part, part, group=team),
        ]
        for call in strange:
            try:
                call()
            except UsageError as error:
                texts.append(str(error))
        say("strange", texts=texts)
    dist.new_group([0, 1], timeout=timedelta(seconds=77))
    with allready.phase("short", timedelta(seconds=33)):
        limits = allready.effective_timeouts()
    say(
        "limits",
        text=str(limits),
        of={
            ",".join(map(str, g.ranks)): [g.plain and g.plain.total_seconds(), g.calls and g.calls.total_seconds()]
            for g in limits
        },
    )
    empty = torch.zeros(0)
    allready.safe_reduce_scatter(empty, torch.zeros(0))
    allready.safe_all_reduce(empty, chunk_bytes=4)
    say("others", **found)


ODD_TYPES = ("float8_e4m3fn", "float8_e5m2", "int16", "uint16", "uint32", "uint64", "bool", "int8", "complex64")


def lazy_views() -> list[str]:
    """Of numbers that are not those in memory."""
    import torch

    import allready

    turned = torch.full((2,), complex(1, ME)).conj()
    negative = torch.full((2,), complex(1, ME)).conj().imag
    allready.safe_all_reduce(negative)
    summed = torch.full((2,), complex(1, ME)).conj()
    allready.safe_all_reduce(summed)
    allready.safe_broadcast(turned, 1)
    scattered = torch.zeros(1, dtype=torch.complex64).conj()
    allready.safe_reduce_scatter(scattered, torch.full((SIZE,), complex(1, ME)).conj())
    return [str(t[0].item()) for t in (negative, summed, turned, scattered)]


def of_all_kinds() -> None:
    """What is moved may have any type of elements and shape; what cannot be done says so before the call begins."""
    import torch
    import torch.distributed as dist

    import allready
    from allready.errors import UsageError

    moved: dict[str, list[Any]] = {}
    refused = []
    for name in ODD_TYPES:
        kind = getattr(torch, name)
        one = torch.tensor([0.0, 1.0, float(ME), float(ME)]).to(kind)
        said = one.clone().view(2, 2).t()
        allready.safe_broadcast(said, 1)
        gathered = [torch.zeros(4).to(kind) for _ in range(SIZE)]
        allready.safe_all_gather(gathered, one)
        sent = torch.full((SIZE, 2, 1), ME + 1).to(kind)
        got = torch.zeros(SIZE, 2, 1).to(kind)
        allready.safe_all_to_all(got, sent)
        point = torch.tensor(float(ME)).to(kind)
        allready.safe_broadcast(point, 0)
        moved[name] = [
            [int(v.real) for v in t.flatten().to(torch.complex64).tolist()] for t in (said, *gathered, got, point)
        ]
        for reduce in (allready.safe_all_reduce, lambda t: allready.safe_reduce_scatter(t[:1], t[:SIZE])):
            try:
                reduce(torch.zeros(4).to(kind))
            except UsageError as error:
                refused.append((name, "float32" in str(error)))
    wide = [torch.zeros(300, 300) for _ in range(SIZE)]  # not gathered as small ones are
    wide[1] = torch.zeros(300, 300).t()
    allready.safe_all_gather(wide, torch.arange(90_000.0).view(300, 300) + ME)
    is_wide = [bool((t == torch.arange(90_000.0).view(300, 300) + n).all()) for n, t in enumerate(wide)]
    truths = torch.tensor([True, ME == 0, False])
    allready.safe_all_reduce(truths)
    some = torch.zeros(1, dtype=torch.bool)
    allready.safe_reduce_scatter(some, torch.ones(SIZE, dtype=torch.bool))
    placed = torch.arange(2.0 * SIZE) + 100 * ME
    allready.safe_all_to_all(placed, placed)
    rows = torch.zeros(0, 3, dtype=torch.int16)
    allready.safe_all_to_all(torch.zeros(0, 3, dtype=torch.int16), rows)
    allready.safe_broadcast(rows, 0)

    weight = torch.nn.Parameter(torch.full((2, 3), float(ME)))
    allready.safe_all_reduce(weight)
    allready.safe_all_reduce(weight.detach().t(), restore=True)
    allready.safe_all_reduce(weight.t())
    with torch.inference_mode():
        column = torch.full((4, 2), float(ME))[:, 1]
    allready.safe_all_reduce(column)
    wrong: list[Callable[[], Any]] = [
        lambda: allready.safe_all_reduce(torch.ones(1).expand(3)),
        lambda: allready.safe_all_reduce(torch.ones(3).to_sparse()),
        lambda: allready.safe_all_reduce([1.0]),
        lambda: allready.safe_broadcast(None),
        lambda: allready.safe_all_gather([torch.ones(1)], torch.ones(1)),
        lambda: allready.safe_all_gather([torch.ones(2)] * SIZE, torch.ones(1)),
        lambda: allready.safe_all_to_all(torch.ones(SIZE + 1), torch.ones(SIZE + 1)),
        lambda: allready.safe_all_to_all(torch.ones(SIZE), torch.ones(SIZE, dtype=torch.int32)),
        lambda: allready.safe_all_reduce(torch.ones(1), on_failure="ignore"),
        lambda: allready.safe_all_reduce(torch.ones(1), chunk_bytes=1.5),
        lambda: allready.safe_all_reduce(torch.ones(1), chunk_bytes=0),
        lambda: allready.safe_all_reduce(torch.ones(1), timeout=timedelta.max),
        lambda: allready.safe_all_reduce(torch.ones(1), timeout=10**400),
        lambda: allready.safe_all_reduce(torch.ones(1), "sum"),
        lambda: allready.safe_all_reduce(torch.ones(1), chunk_bytes=True),
        lambda: allready.safe_all_reduce(torch.ones(1, dtype=torch.complex64), dist.ReduceOp.MAX),
        lambda: allready.safe_broadcast(torch.ones(1), SIZE),
        lambda: allready.safe_broadcast(torch.ones(1), "0"),
        lambda: allready.safe_broadcast(torch.quantize_per_tensor(torch.ones(1), 0.1, 0, torch.qint8)),
        lambda: allready.safe_all_gather(None, torch.ones(1)),
        lambda: allready.safe_all_to_all(torch.ones(SIZE), torch.ones(SIZE), [1], [1]),
        lambda: allready.safe_all_to_all(torch.ones(SIZE), torch.ones(SIZE), [1] * SIZE, [2] * SIZE),
    ]
    errors = 0
    for call in wrong:
        try:
            call()
        except UsageError:
            errors += 1
    say(
        "kinds",
        moved=moved,
        refused=refused,
        weight=weight.unique().tolist(),
        column=column.tolist(),
        errors=errors,
        is_wide=is_wide,
        lazy=lazy_views(),
        bytes_of_truths=[*truths.view(torch.uint8).tolist(), *some.view(torch.uint8).tolist()],
        placed=placed.tolist(),
    )


def begun_early() -> list[float]:
    """A call of a size that none had, and of which one rank only looks whether it has ended."""
    import torch

    import allready

    values = torch.ones(17)
    handle = allready.safe_all_reduce(values, async_op=True, timeout=timedelta(seconds=10))
    if ME == 2:
        until_s = time.monotonic() + 60.0
        while not handle.is_completed() and time.monotonic() < until_s:
            time.sleep(0.01)
    handle.wait()
    return [float(value) for value in values.unique()]


def in_any_order() -> dict[str, list[Any]]:
    """Calls in flight beside plain ones, in two groups of the same ranks, and splits in a group that is not sorted."""
    import torch
    import torch.distributed as dist

    import allready

    found: dict[str, list[Any]] = {"beside": [], "twins": [], "unsorted": []}
    for size in (19, 23):  # none had these: they are compared
        own, plain = torch.full((size,), 1.0), torch.full((size,), 100.0)
        handle = allready.safe_all_reduce(own, async_op=True)
        time.sleep(0.2 * ME)
        dist.all_reduce(plain)
        handle.wait()
        found["beside"] += [own[0].item(), plain[0].item()]
    unsorted = {"sort_ranks": False} if "sort_ranks" in inspect.signature(dist.new_group).parameters else {}
    with allready.subgroups():
        twins = [dist.new_group([0, 2]) for _ in range(2)]
        group = dist.new_group([2, 0, 1], **unsorted)
    if ME != 1:
        values = [torch.ones(29), torch.ones(31)]
        order = (0, 1) if ME == 0 else (1, 0)
        begun = [allready.safe_all_reduce(values[n], group=twins[n], async_op=True) for n in order]
        for handle in begun:
            handle.wait()
        for n in (0, 1):  # as often in the one as in the other, each in the order of that group
            allready.safe_all_reduce(values[n], group=twins[n])
        found["twins"] = [v.unique().tolist() for v in values]
    rows = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    place = dist.get_group_rank(group, ME)
    receives = [row[place] for row in rows]
    got = torch.zeros(sum(receives))
    sent = torch.full((sum(rows[place]),), float(place))
    allready.safe_all_to_all(got, sent, receives, rows[place], group)
    found["unsorted"] = [n.unique().tolist() for n in got.split(receives)]
    return found


def in_flight() -> None:
    """Several calls begun and not yet waited for; then one rank begins fewer of them, and another one does not wait."""
    import torch

    import allready
    from allready.errors import UsageError

    team = make_team()
    early = begun_early()
    begun = [allready.safe_all_reduce(torch.full((3,), ME + n), async_op=True) for n in range(3)]
    backwards = [handle.wait() for handle in reversed(begun)]
    column = torch.full((4, 6), float(ME))[:, 2]
    tensors = [torch.full((5,), ME + 10), torch.full((5,), ME + 20)]
    orders = [(tensors[0], None), (tensors[1], team)]
    for tensor, group in orders if ME == 0 else reversed(orders):  # the order between groups is each rank's own
        if group is None or ME != 1:
            allready.safe_all_reduce(tensor, group=group, async_op=True)
    handle = allready.safe_all_reduce(column, async_op=True)
    got = torch.zeros(SIZE)
    other = allready.safe_all_to_all(got, torch.full((SIZE,), float(ME)), async_op=True)
    allready.safe_barrier()  # completes what was begun before it in its group
    is_done = [handle.is_completed(), handle.wait(), other.wait(), handle.wait()]
    if ME != 1:
        allready.safe_barrier(team)
    refused = 0
    try:
        allready.safe_all_reduce(torch.ones(1), async_op=True, confirm=True)
    except UsageError:
        refused = 1
    say(
        "begun",
        backwards=backwards,
        column=column.tolist(),
        got=got.tolist(),
        is_done=is_done,
        refused=refused,
        tensors=[t[0].item() for t in tensors],
        early=early,
        **in_any_order(),
    )

    sources = [torch.full((100_000,), float(10 * ME + n)) for n in range(3)]
    handles = []
    try:
        for n, source in enumerate(sources[: 1 if ME == 2 else 3]):
            handles.append(
                allready.safe_all_reduce(
                    source,
                    async_op=True,
                    restore=n > 0,
                    timeout=timedelta(seconds=0.7),
                    on_failure="return" if n == 1 else "raise",
                )
            )
        if ME == 0:
            handles[0].wait()
            failure = handles[1].wait()
            assert failure is not None
        else:
            late()
        allready.safe_barrier()
    except allready.CollectiveFailed as error:
        if ME == 0:
            failure = handles[1].wait()  # once more
        allready.recover(error)
    outcomes = []
    for handle in handles[1:]:
        try:
            failure = handle.wait()
        except allready.CollectiveFailed as error:
            failure = error
        outcomes.append([failure.verdict.code, failure.verdict.culprits.ranks, failure.is_restored])
    again = torch.ones(1)
    allready.safe_all_reduce(again, confirm=True)
    say("abandoned", outcomes=outcomes, content=[s.unique().tolist() for s in sources], total=again.item())


def late() -> None:
    """Until the others have given up."""
    from allready.runtime.session import current

    member, until_s = current().member, time.monotonic() + 60.0
    while member.is_open and time.monotonic() < until_s:
        time.sleep(0.01)


def overdue() -> None:
    """One rank comes late to each of these; all go on."""
    import torch

    import allready

    short = timedelta(seconds=0.7)
    kept = torch.full((2,), 5.0)
    source = torch.ones(1_000_001)
    adaptive = allready.AdaptiveTimeout(least=timedelta(seconds=1), after=3)
    with allready.phase("learned", adaptive):
        for _ in range(4):
            allready.safe_all_reduce(torch.ones(1000))
        learned = allready.effective_timeouts()[0]
    say("learned", limits={k: v.total_seconds() for k, v in learned.learned.items()}, text=str(learned))
    calls: dict[str, Callable[[Any], object]] = {
        "scatter": lambda _: allready.safe_reduce_scatter(kept, torch.ones(2 * SIZE), timeout=short),
        "exchange": lambda _: allready.safe_all_to_all(torch.ones(SIZE), torch.ones(SIZE), timeout=short),
        "in_team": lambda team: allready.safe_reduce_scatter(kept, torch.ones(4), group=team, timeout=short),
        "chunked": lambda _: allready.safe_all_reduce(source, timeout=short, restore=True, chunk_bytes=4096),
        "learned": lambda _: allready.safe_all_reduce(torch.ones(999), timeout=adaptive),
    }
    for name, call in calls.items():
        team = make_team() if name == "in_team" else None
        try:
            if ME == 2:
                late()
            if team is None or ME != 1:
                call(team)
            allready.safe_barrier()
        except allready.CollectiveFailed as failure:
            verdict, agreed = failure.verdict, failure.failure
            assert agreed is not None
            say(
                "overdue",
                name=name,
                code=verdict and verdict.code,
                culprits=verdict and verdict.culprits.ranks,
                team=agreed.group,
                kept=kept.tolist(),
                source=source.unique().tolist(),
                is_restored=failure.is_restored,
            )
            allready.recover(failure)
        again = torch.ones(1)
        allready.safe_all_reduce(again, confirm=True)
        say("after", name=name, total=again.item())


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
        "views",
        column=column.tolist(),
        beside=matrix[:, 0].tolist(),
        said=said.unique().tolist(),
        rows=[r.unique().tolist() for r in rows],
    )

    for is_strided in (False, True):
        with allready.phase("short", timedelta(seconds=0.7)):
            if ME == SIZE - 1:
                late()
            wide = torch.full((2_000_000,), float(ME))[::2] if is_strided else torch.full((1_000_000,), float(ME))
            failure = allready.safe_all_reduce(wide, on_failure="return", restore=True)
        assert failure is not None
        verdict = failure.verdict
        say(
            "late",
            code=verdict and verdict.code,
            culprits=verdict and verdict.culprits.ranks,
            is_restored=failure.is_restored,
            content=wide.unique().tolist(),
        )
        recovery = allready.recover(failure)
        again = torch.ones(1)
        allready.safe_all_reduce(again, confirm=True)
        say("again", members=recovery.members, total=again.item())
    others()
    of_all_kinds()
    in_flight()
    overdue()
    allready.safe_barrier()
    allready.destroy_process_group()


main()
