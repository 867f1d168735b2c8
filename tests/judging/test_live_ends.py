"""How ranks ended: who was first, who was asked to end, who died of another's operation."""

import json
from collections.abc import Sequence

from msgspec.structs import replace

from allready.evidence.flight.reader import read_dump
from allready.evidence.reading import FlightDump
from allready.judging.analysis import Analysis
from allready.judging.causes import causes
from allready.judging.live_ends import reading_of_ends, settled, with_reported_sizes
from allready.judging.mismatch import is_flow
from allready.model import (
    CallSite,
    Death,
    Fleet,
    Frame,
    GroupProgress,
    Misfit,
    Mismatch,
    NodeStatus,
    Operation,
    Origin,
    Position,
    ProcessStack,
    ProcessState,
    RankStatus,
    Recorder,
    RunEvidence,
    ThreadStack,
    World,
)
from tests.cases import cases
from tests.live.monitor.made import entry

GLOO = (
    "gloo::EnforceNotMet: [enforce fail at third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
    "op.nbytes. 4000 vs 2000"
)


def death(rank: int, time_s: float | None = 100.0, **changes: object) -> Death:
    known = Death(kind="exception", origin=Origin(source="out.log", rank=rank), rank=rank, text="ValueError: x")
    return replace(known, time_s=time_s, **changes)


def ends(*ranks: RankStatus, stopping_s: float | None = None) -> Sequence[Death]:
    status = NodeStatus(node_rank=1, time_s=200.0, clock_offset_s=3.0, ranks=ranks)
    return reading_of_ends({1: status}, stopping_s=stopping_s).deaths


def ended(rank: int, exit_code: int | None = None, signal: str | None = None, **changes: object) -> RankStatus:
    state = ProcessState.KILLED if signal else ProcessState.EXITED
    known = RankStatus(rank=rank, pid=rank + 10, process_state=state, exit_code=exit_code, signal=signal, ended_s=150.0)
    return replace(known, **changes)


def test_times_are_those_of_node_0() -> None:
    [one] = ends(ended(2, signal="SIGKILL"))
    assert (one.kind, one.signal, one.time_s) == ("signal", "SIGKILL", 147.0)


def test_want_of_memory_is_told_as_such() -> None:
    [one] = ends(ended(2, signal="SIGKILL", oom_killed=True))
    assert one.kind == "oom"


def test_orderly_and_unknown_ends_are_no_deaths() -> None:
    assert ends(ended(0, 0), ended(1)) == []


def test_whoever_ends_after_the_job_was_told_to_was_told_to() -> None:
    before, run = ends(ended(0, 1, ended_s=140.0), ended(1, 1, ended_s=160.0), stopping_s=145.0)
    assert (before.by_launcher, run.by_launcher) == (False, True)


def causes_of(run: RunEvidence) -> tuple[Death, ...]:
    return causes(Analysis(Fleet(world=World(num_nodes=1, world_size=4), run_evidence=run)))


def test_only_the_first_is_the_cause() -> None:
    run = settled(RunEvidence(deaths=(death(1, 100.0), death(2, 101.0))))
    assert [(d.rank, d.first) for d in run.deaths] == [(1, True), (2, False)]


def test_a_kill_after_a_request_to_end_is_part_of_it() -> None:
    told = death(0, 100.0, kind="signal", signal="SIGTERM", text="")
    killed = death(1, 130.0, kind="signal", signal="SIGKILL", text="")
    assert causes_of(settled(RunEvidence(deaths=(told, killed)))) == ()
    assert [d.rank for d in causes_of(settled(RunEvidence(deaths=(killed,))))] == [1]


def test_an_interrupt_is_no_exception_of_its_own() -> None:
    assert causes_of(settled(RunEvidence(deaths=(death(0, text="KeyboardInterrupt"),)))) == ()


def test_an_error_of_a_thread_of_gloo_is_no_cause() -> None:
    thrown = death(2, kind="abort", signal="SIGABRT", text=GLOO)
    assert causes_of(settled(RunEvidence(deaths=(thrown,)))) == ()


TYPES = {1: "float64", 2: "float32"}
THREE = GroupProgress(
    group="0",
    source=Recorder.FLIGHT,
    label="default_pg",
    members=(0, 1, 2),
    positions={r: Position(enqueued=2) for r in range(3)},
)


def dump(rank: int, *entries: object) -> FlightDump:
    text = json.dumps({"version": "2.10", "entries": entries, "pg_config": {}, "pg_status": {}})
    [found] = read_dump(text.encode(), "ring.json", name_hint=f"rank{rank}").dumps
    return found


def test_the_rank_that_died_of_a_size_is_odd_where_all_others_called_alike() -> None:
    deaths = (death(2, kind="abort", signal="SIGABRT", text=GLOO, is_collective_error=True),)
    rings = [dump(0, entry(1, 50.0), entry(2, 51.0)), dump(1, entry(1, 50.0), entry(2, 51.0)), dump(2, entry(1, 50.0))]
    [found] = with_reported_sizes(RunEvidence(deaths=deaths, progress=(THREE,)), rings).mismatches
    assert (found.odd, found.seq, found.kind) == ((2,), 2, "size")
    unheard = replace(THREE, positions={r: Position(enqueued=2) for r in (0, 1)})  # it had reported nothing yet
    [found] = with_reported_sizes(RunEvidence(deaths=deaths, progress=(unheard,)), rings[:2]).mismatches
    assert (found.odd, found.seq) == ((2,), 2)
    stranger = replace(unheard, members=(0, 1))
    assert with_reported_sizes(RunEvidence(deaths=deaths, progress=(stranger,)), rings[:2]).mismatches == ()
    unlike = [rings[0], dump(1, entry(1, 50.0), entry(2, 51.0, size=7)), rings[2]]
    assert with_reported_sizes(RunEvidence(deaths=deaths, progress=(THREE,)), unlike).mismatches == ()
    assert with_reported_sizes(RunEvidence(progress=(THREE,)), rings).mismatches == ()


PAIR = replace(THREE, members=(0, 1), positions={r: Position(enqueued=25) for r in range(2)})
LOOP = [672, 65, 65, 672, 130, 1344]
"""Sizes of an iteration: what a model's parts are gathered in, and its gradients reduced in."""


def fsdp(rank: int, *, num: int, extra: Sequence[int] = ()) -> FlightDump:
    """A rank's ring of so many calls of the loop, and others behind them."""
    sizes = [*(LOOP * 9)[:num], *extra]
    names = [*["all_gather", "all_gather", "all_gather", "all_gather", "all_reduce", "all_reduce"] * 9][:num]
    names += ["all_gather"] * len(extra)
    return dump(
        rank,
        *(entry(at + 1, 50.0 + at, name, size=size) for at, (name, size) in enumerate(zip(names, sizes, strict=True))),
    )


@cases(
    ("extra", "room", "odd"),
    [
        ((672, 65, 672), 130, (0,)),  # it evaluates by itself: two parts are gathered once more
        ((672, 65, 672), 200, ()),  # room for another size: not a call of the loop
        ((672, 65, 99), 130, ()),  # what came is of no call of the loop: either may be wrong
    ],
)
def test_of_two_the_one_that_left_its_loop_is_odd_not_the_one_that_gloo_ended(
    extra: tuple[int, ...], room: int, odd: tuple[int, ...]
) -> None:
    """Seen: rank 0 of two evaluated an FSDP model alone; Gloo ended rank 1, in the backward pass of its loop."""
    text = GLOO.replace("4000 vs 2000", f"{extra[-1] * 2} vs {room}")
    deaths = (death(1, kind="abort", signal="SIGABRT", text=text, is_collective_error=True),)
    rings = [fsdp(0, num=24, extra=extra), fsdp(1, num=20)]
    site = CallSite("/home/u/train.py", 9, "main")
    main = ThreadStack(name="MainThread", is_main=True, frames=(Frame(function="main", file=site.file, line=9),))
    stack = ProcessStack(origin=Origin(source="stacks.txt"), role="rank", rank=1, threads=(main,))
    found = with_reported_sizes(RunEvidence(deaths=deaths, progress=(PAIR,), stacks=(stack,)), rings).mismatches
    assert all(m.by_rank[1].site == site for m in found)
    assert [(m.odd, m.seq, m.by_rank[1].num_elements, is_flow(m)) for m in found] == (
        [(odd, 27, 65, True)] if odd else []
    )


def test_a_call_of_another_thread_is_another_call_and_no_other_size() -> None:
    """Seen: a thread of one rank reduced a metric beside the loop, and Gloo ended that rank."""
    site = CallSite("/home/u/train.py", 9, "main")
    thread = ThreadStack(
        name="Thread-1",
        frames=(
            Frame(function="all_reduce", file="/x/site-packages/torch/distributed/distributed_c10d.py", line=3252),
            Frame(function="log", file="/home/u/train.py", line=6),
        ),
    )
    main = replace(thread, is_main=True, frames=(thread.frames[0], Frame(function="main", file=site.file, line=9)))
    stack = ProcessStack(origin=Origin(source="stacks.txt"), role="rank", rank=2, threads=(thread, main))
    deaths = (death(2, kind="abort", signal="SIGABRT", text=GLOO, is_collective_error=True),)
    frames = [{"name": "main", "filename": site.file, "line": 9}]
    calls = [{**entry(n, 50.0 + n), "frames": frames} for n in (1, 2)]
    rings = [dump(0, *calls), dump(1, *calls), dump(2, calls[0])]
    for threads, is_other in (((thread, main), True), ((main,), False)):
        run = RunEvidence(deaths=deaths, progress=(THREE,), stacks=(replace(stack, threads=threads),))
        [found] = with_reported_sizes(run, rings).mismatches
        assert (found.odd, is_flow(found)) == ((2,), is_other)


def test_the_room_that_a_rank_had_tells_which_of_two_sizes_it_called_with() -> None:
    """Two of four with one size are no majority; Gloo's message about the third is the vote that lacks."""
    calls = {
        rank: Operation(seq=9, name="all_reduce", num_elements=n) for rank, n in {0: 4096, 2: 8192, 3: 4096}.items()
    }
    group = GroupProgress(group="0", source=Recorder.FLIGHT, members=(0, 1, 2, 3), positions={})
    mismatch = Mismatch(group="0", source=Recorder.FLIGHT, kind="size", seq=9, by_rank=calls)

    def odd(came_bytes: int, room_bytes: int, rank: int = 1) -> tuple[int, ...]:
        text = f"[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. {came_bytes} vs {room_bytes}"
        deaths = (death(rank, kind="abort", signal="SIGABRT", text=text, is_collective_error=True),)
        run = RunEvidence(deaths=deaths, progress=(group,), mismatches=(mismatch,))
        [found] = with_reported_sizes(run, []).mismatches
        return found.odd

    assert odd(4096, 2048) == (2,)
    assert odd(4096, 1024) == (), "neither of the two sizes"
    assert odd(4096, 2048, rank=7) == (), "not a member"
    assert odd(4096, 2048, rank=3) == (), "its call is known, and the fourth is not"


def test_the_room_that_a_rank_had_tells_which_of_two_types_it_called_with() -> None:
    """Rank 1 of three reduced float64; Gloo ended rank 0 before its ring held the call."""
    calls = {r: Operation(seq=41, name="all_reduce", num_elements=1000, dtype=t) for r, t in TYPES.items()}
    group = GroupProgress(group="0", source=Recorder.FLIGHT, members=(0, 1, 2), positions={})
    mismatch = Mismatch(group="0", source=Recorder.FLIGHT, kind="dtype", seq=41, by_rank=calls)
    for came_bytes, odd in ((1336, (1,)), (668, ())):
        text = f"[enforce fail at pair.cc:464] op.preamble.length <= op.nbytes. {came_bytes} vs 668"
        deaths = (death(0, kind="abort", signal="SIGABRT", text=text, is_collective_error=True),)
        run = RunEvidence(deaths=deaths, progress=(group,), mismatches=(mismatch,))
        [found] = with_reported_sizes(run, []).mismatches
        assert found.odd == odd


def test_equal_totals_of_an_operation_with_splits_tell_nothing() -> None:
    """The rank that got too much from another one is the victim of splits that no recorder writes down."""
    deaths = (death(1, kind="abort", signal="SIGABRT", text=GLOO, is_collective_error=True),)
    first, second = entry(1, 50.0), entry(2, 51.0, "all_to_all", size=16)
    rings = [dump(0, first, second), dump(1, first), dump(2, first, second)]
    assert with_reported_sizes(RunEvidence(deaths=deaths, progress=(THREE,)), rings).mismatches == ()
    third = entry(3, 52.0)  # the others have gone on meanwhile
    rings = [dump(0, first, second, third), dump(1, first), dump(2, first, second, third)]
    group = replace(THREE, positions={0: Position(enqueued=3), 1: Position(enqueued=2), 2: Position(enqueued=3)})
    assert with_reported_sizes(RunEvidence(deaths=deaths, progress=(group,)), rings).mismatches == ()


def test_arguments_that_gloo_refuses_by_themselves_are_compared_with_nobody_s() -> None:
    """GLO012 names the rank."""
    text = "RuntimeError: [enforce fail at gloo/alltoallv.cc:138] inLengthPerRank[myRank] == outLengthPerRank[myRank]. "
    group = GroupProgress(
        group="0", source=Recorder.FLIGHT, members=(0, 1, 2), positions={r: Position(enqueued=7) for r in range(3)}
    )
    one = death(2, text=text, is_collective_error=True)
    assert with_reported_sizes(RunEvidence(deaths=(one,), progress=(group,)), []).mismatches == ()


def exchange(rank: int, to_each: list[int]) -> FlightDump:
    """A ring with one all_to_all of three ranks, whose splits are known."""
    rows = [["0", 2, "all_to_all", None, to_each, [500, 250, 250]]]
    entries = [entry(1, 50.0), entry(2, 51.0, "all_to_all", size=1000)]
    text = json.dumps({"version": "2.10", "entries": entries, "arguments": rows})
    [found] = read_dump(text.encode(), "ring.json", name_hint=f"rank{rank}").dumps
    return found


def test_what_gloo_refused_tells_whose_splits_do_not_fit() -> None:
    """4000 bytes are 1000 floats, and only one rank sent so many to the rank that died."""
    deaths = (death(1, kind="abort", signal="SIGABRT", text=GLOO, is_collective_error=True),)
    run = RunEvidence(deaths=deaths, progress=(THREE,))
    died = dump(1, entry(1, 50.0))
    [found] = with_reported_sizes(run, [exchange(0, [500, 250, 500]), died, exchange(2, [200, 1000, 250])]).mismatches
    assert (found.kind, found.seq, found.odd, found.missing) == ("splits", 2, (2,), (1,))
    assert found.misfits[-1] == Misfit(sender=2, receiver=1, num_sent=1000, num_expected=500)
    either = with_reported_sizes(run, [exchange(0, [500, 1000, 250]), died, exchange(2, [250, 1000, 250])])
    assert either.mismatches == ()
