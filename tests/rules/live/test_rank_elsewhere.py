"""LIV008."""

from typing import Any

from msgspec.structs import replace

from allready.judging.loading import load
from allready.judging.stall_live import doing_of
from allready.model import (
    Confidence,
    FaultClass,
    GroupProgress,
    Operation,
    Position,
    ProcessStack,
    ProcessState,
    RankStatus,
    Recorder,
    ThreadStack,
)
from allready.model.fill import fill
from allready.model.process import SystemCall
from tests.cases import cases
from tests.rules.live.made import NOW, ask, behind, mark, progress, stack, waiting


def test_names_the_one_that_waits_in_another_call() -> None:
    [hit] = ask("LIV008", behind(2), stacks=(stack(2, "in_collective", "distributed_c10d.py:99 new_group"),)).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((2,), None)


def test_who_still_pickles_its_object_waits_for_nobody() -> None:
    """Seen: `gather_object` of a long list; its frames are those of a call for all ranks from the beginning."""
    stacks = (stack(2, "in_collective", "distributed_c10d.py:3405 _object_to_tensor"),)
    for running in ({"process_state": ProcessState.RUNNING}, {}):
        seen = {2: {"syscall": SystemCall(name="running")}}
        assert ask("LIV008", behind(2, **running), seen=seen, stacks=stacks).state == "clear"
        [hit] = ask("LIV006", behind(2, **running), seen=seen, stacks=stacks).hits
        assert hit.fault_class is FaultClass.CPU_BUSY
    spins = behind(2, process_state=ProcessState.RUNNING, groups=(mark(64),))  # as one that waits for a GPU does
    assert doing_of(spins, None, stacks[0], 0.0) == "in_collective"


def test_who_went_on_since_its_beacon_spoke_stands_nowhere() -> None:
    """Seen: on an overloaded machine the cell still showed an import, and the stack the end of the joining."""
    stacks = (stack(2, "in_collective", "distributed_c10d.py:1417 _is_barrier_after_init"),)
    assert ask("LIV008", behind(2, site="train.py:2 <module>"), stacks=stacks).state == "clear"
    assert ask("LIV008", behind(2, site="train.py:30 save"), stacks=stacks).state == "hit"


def test_a_receive_that_nobody_answers_is_a_matter_of_arguments() -> None:
    [hit] = ask("LIV008", behind(2), stacks=(stack(2, "in_collective", "distributed_c10d.py:2799 recv"),)).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((2,), FaultClass.DESYNC_ARGS)


def test_a_send_that_nobody_takes_is_a_call_too_many_or_too_few() -> None:
    [hit] = ask("LIV008", behind(2), stacks=(stack(2, "in_collective", "distributed_c10d.py:2552 isend"),)).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((2,), None)


def test_shows_what_the_others_wait_in_with_size_and_line() -> None:
    stacks = (stack(2, "in_collective", "distributed_c10d.py:99 new_group"),)
    [told] = progress({r: waiting(r) for r in (0, 1, 3)} | {2: behind(2)})
    whole = Operation(seq=64, name="all_reduce", num_elements=1024, dtype="float32")
    known = {r: replace(p, stuck=whole) if p.stuck is not None else p for r, p in told.positions.items()}
    [hit] = ask("LIV008", behind(2), stacks=stacks, progress=(replace(told, positions=known),)).hits
    site = waiting(0).site
    assert hit.values["operation"] == f"all_reduce [1024] float32 #64 ({site})"


def test_names_the_fewer_side() -> None:
    others = tuple(stack(r, "in_collective", "distributed_c10d.py:99 new_group") for r in (0, 1, 3))
    [hit] = ask("LIV008", behind(0), behind(1), behind(3), stacks=others).hits
    assert hit.culprits.ranks == (2,)


def test_blames_nobody_on_a_tie() -> None:
    others = tuple(stack(r, "in_collective", "distributed_c10d.py:99 new_group") for r in (0, 1))
    [hit] = ask("LIV008", behind(0), behind(1), stacks=others).hits
    assert hit.culprits.ranks == ()


def test_whoever_only_just_came_there_may_go_on() -> None:
    short = behind(2, site_since_s=NOW - 0.3)
    assert ask("LIV008", short, stacks=(stack(2, "in_collective"),)).state == "clear"


def test_without_a_recorder_another_line_of_the_program_is_odd() -> None:
    bare = [waiting(r, groups=(), framework="jax") for r in range(4)]
    odd = waiting(3, groups=(), framework="jax", site="train.py:99 metrics")
    stacks = tuple(stack(r, "gpu_wait") for r in range(4))
    [hit] = ask("LIV008", *bare[:3], odd, stacks=stacks).hits
    assert hit.culprits.ranks == (3,)


def test_without_a_majority_at_a_line_both_sides_are_shown_and_neither_is_accused() -> None:
    """Seen in a JAX job of two: one gathered alone, and both were said to wait in one line, after a minute."""
    bare = [waiting(r, groups=(), framework="jax", gpu_busy_share=0.0) for r in (0, 1)]
    odd = [waiting(r, groups=(), framework="jax", gpu_busy_share=0.0, site="train.py:99 metrics") for r in (2, 3)]
    stacks = tuple(stack(r, "gpu_wait") for r in range(4))
    [hit] = ask("LIV008", *bare, *odd, stacks=stacks).hits
    assert (hit.culprits.ranks, hit.fault_class, hit.confidence) == ((), None, Confidence.POSSIBLE)
    assert (hit.values["site"], hit.values["operation"]) == ("train.py:99 metrics", "train.py:12 step")
    assert {e.source for e in hit.evidence} == {f"rank {r}" for r in range(4)}
    [hit] = ask("LIV008", *bare, *odd, stacks=stacks, live={"hang_after_s": 5.0}).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY), "--on-hang acts on no possible verdict"
    busy = [replace(rank, gpu_busy_share=1.0) for rank in (*bare, *odd)]
    assert ask("LIV008", *busy, stacks=stacks).state == "clear", "one may ask for a result that the others do not need"
    hidden = [replace(rank, gpu_busy_share=None) for rank in (*bare, *odd)]
    assert ask("LIV008", *hidden, stacks=stacks).state == "clear", "a ROCm GPU or a TPU may compute"
    [hit] = ask("LIV008", *hidden, stacks=stacks, live={"hang_after_s": 5.0}).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY)


@cases(
    ("busy", "hang_after_s", "confidence"),
    [(0.0, 60.0, "likely"), (1.0, 60.0, "possible"), (None, 60.0, "possible"), (1.0, 5.0, "likely")],
)
def test_who_alone_may_wait_for_a_result_is_named_as_possible(
    busy: float | None, hang_after_s: float, confidence: str
) -> None:
    """`if process_index() == 0: print(float(loss))` in a job with long steps."""
    ranks = [waiting(r, groups=(), framework="jax", gpu_busy_share=busy) for r in range(4)]
    ranks[0] = replace(ranks[0], site="train.py:20 log")
    stacks = tuple(stack(r, "gpu_wait") for r in range(4))
    [hit] = ask("LIV008", *ranks, stacks=stacks, live={"hang_after_s": hang_after_s}).hits
    assert (hit.culprits.ranks, hit.confidence) == ((0,), confidence)


@cases(
    ("lines", "who"),
    [((10, 11, 12, 13), "rank 1 (gpu0, pid 101), rank 2 (gpu1, pid 102), rank 3 (gpu1, pid 103)"),
     ((10, 10, 11, 12), "rank 2 (gpu1, pid 102), rank 3 (gpu1, pid 103)")],
)  # fmt: skip
def test_ranks_at_several_lines_are_not_said_to_wait_at_one(lines: tuple[int, ...], who: str) -> None:
    ranks = [waiting(r, groups=(), framework="jax", site=f"train.py:{line} f") for r, line in enumerate(lines)]
    stacks = tuple(stack(r, "gpu_wait") for r in range(4))
    [hit] = ask("LIV008", *ranks, stacks=stacks, live={"hang_after_s": 5.0}).hits
    rule = load()["LIV008"]
    assert fill(rule.message, hit.values).startswith(f"{who} have waited for others since ")
    assert "compare its line with" in fill(rule.steps[0].explanation, hit.values)
    assert {f"train.py:{line} f" for line in lines} == {e.values["site"] for e in hit.evidence}


def test_of_ranks_that_are_late_at_several_lines_no_one_line_is_said() -> None:
    sites = {2: "distributed_c10d.py:99 new_group", 3: "distributed_c10d.py:98 barrier"}
    stacks = tuple(stack(r, "in_collective", site) for r, site in sites.items())
    late = [behind(r, site=f"part{r}.py:7 f") for r in sites]
    [hit] = ask("LIV008", *late, stacks=stacks).hits
    assert hit.values["site"] is None


def test_a_receive_that_has_worked_before_may_miss_what_its_peer_left_out() -> None:
    """A stage of a pipeline skips one send: the next one waits in its recv, the others are in the next all_reduce."""
    stacks = (stack(2, "in_collective", "distributed_c10d.py:2799 recv"),)
    ranks = {r: waiting(r) for r in (0, 1, 3)} | {2: behind(2)}
    counted = behind(2, groups=(mark(63 + 30, pending=False),))  # Gloo counts sends and receives, and records none
    ends = {r: Position(enqueued=30, completed=30) for r in (1, 2)}
    pair = GroupProgress(
        group="0 send 1->2", base_name="0", pair=(1, 2), source=Recorder.FLIGHT, members=(1, 2), positions=ends
    )
    for rank, known in ((counted, progress(ranks)), (behind(2), (*progress(ranks), pair))):
        [hit] = ask("LIV008", rank, stacks=stacks, progress=known).hits
        assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.POSSIBLE)
    [hit] = ask("LIV008", behind(2), stacks=stacks, progress=progress(ranks)).hits
    assert hit.culprits.ranks == (2,)


def test_a_receive_in_a_loop_without_any_collective_may_miss_what_its_peer_left_out() -> None:
    """Seen: a pipeline of sends and receives alone, and a barrier at its end; who missed a send was named."""
    stacks = (stack(2, "in_collective", "distributed_c10d.py:2799 recv"),)
    [hit] = ask("LIV008", behind(2, groups=()), stacks=stacks).hits
    assert (hit.culprits.ranks, hit.fault_class, hit.confidence) == ((), None, Confidence.POSSIBLE)


def test_where_all_others_kept_to_the_calls_of_their_loop_the_send_of_one_is_one_too_many() -> None:
    stacks = (stack(2, "in_collective", "distributed_c10d.py:2753 send"),)
    known = progress({r: waiting(r) for r in (0, 1, 3)} | {2: behind(2)})
    counted = behind(2, groups=(mark(63 + 30, pending=False),))
    for turns, accused in (({0: True, 1: True, 3: True}, (2,)), ({0: True, 3: True}, ())):
        [hit] = ask("LIV008", counted, stacks=stacks, progress=known, turns=turns).hits
        assert (hit.culprits.ranks, hit.fault_class) == (accused, None)


def test_a_receive_of_the_loop_in_another_place_of_it_is_a_matter_of_order() -> None:
    """It left the all_reduce out, and is in the next iteration's recv: that one has worked before."""
    stacks = (stack(2, "in_collective", "distributed_c10d.py:2799 recv"),)
    known: Any = {"progress": progress({r: waiting(r) for r in (0, 1, 3)} | {2: behind(2)})}
    known["turns"] = dict.fromkeys((0, 1, 3), True)
    for enqueued, fault_class in ((63 + 30, None), (63, FaultClass.DESYNC_ARGS)):
        [hit] = ask("LIV008", behind(2, groups=(mark(enqueued, pending=False),)), stacks=stacks, **known).hits
        assert (hit.culprits.ranks, hit.fault_class) == ((2,), fault_class)


def test_two_that_exchange_are_at_odds_with_each_other_while_the_rest_is_in_a_collective() -> None:
    pair = (stack(0, "in_collective", "c10d.py:1 send"), stack(1, "in_collective", "c10d.py:2 recv"))
    [hit] = ask("LIV008", behind(0), behind(1), stacks=pair).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((0, 1), FaultClass.DESYNC_ARGS)


def test_a_receive_in_a_group_of_its_own_may_miss_what_its_peer_left_out() -> None:
    """A pair of stages: their group has no collectives, so nothing counts their sends."""
    thread = ThreadStack(name="", frames=(), is_main=True, peer=1, has_peer_group=True)
    waits = stack(2, "in_collective", "distributed_c10d.py:2799 recv")
    [hit] = ask("LIV008", behind(2), stacks=(replace(waits, threads=(thread,)),)).hits
    assert (hit.culprits.ranks, hit.fault_class, hit.confidence) == ((), None, Confidence.POSSIBLE)


ARGS = FaultClass.DESYNC_ARGS


@cases(
    ("peers", "accused", "fault_class"),
    [({2: 1, 3: 2}, (2,), None), ({2: 3, 3: 2}, (2, 3), ARGS), ({2: 1, 3: 0}, (2, 3), ARGS), ({2: 1}, (2, 3), ARGS)],
)
def test_who_waits_for_one_that_waits_for_another_stage_is_not_the_one(
    peers: dict[int, int], accused: Any, fault_class: FaultClass | None
) -> None:
    """A chain of receives: rank 3 waits for rank 2, which waits for one that is in the collective of all."""
    stacks = tuple(stack(r, "in_collective", "distributed_c10d.py:2799 recv") for r in (2, 3))
    stacks = tuple(
        replace(s, threads=(ThreadStack(name="", frames=(), is_main=True, peer=peers.get(s.rank or 0)),))
        for s in stacks
    )
    [hit] = ask("LIV008", behind(2), behind(3), stacks=stacks).hits
    assert (hit.culprits.ranks, hit.fault_class) == (accused, fault_class)


def connecting(rank: int) -> RankStatus:
    """A rank that is still inside init_process_group: it has no group yet."""
    return behind(rank, groups=(), phase="joining", num_operations=0, site="train.py:3 init")


INIT = "distributed_c10d.py:2169 _new_process_group_helper"


def test_who_still_connects_is_not_in_another_call_than_the_one_who_is_through() -> None:
    stacks = tuple(stack(r, "in_collective", INIT) for r in (1, 2, 3))
    ranks = [connecting(r) for r in (1, 2, 3)]
    assert ask("LIV008", *ranks, stacks=stacks).state == "clear"
    [hit] = ask("LIV006", *ranks, stacks=stacks).hits
    assert (hit.culprits.ranks, hit.confidence, hit.severity) == ((1, 2, 3), Confidence.POSSIBLE, None)
    assert hit.fault_class is FaultClass.START_PATH


def test_nor_is_it_where_no_record_tells() -> None:
    bare = [waiting(0, groups=(), num_operations=0, site="train.py:9 reduce")]
    stacks = tuple(stack(r, "in_collective", INIT) for r in (1, 2, 3))
    assert ask("LIV008", *bare, *[connecting(r) for r in (1, 2, 3)], stacks=stacks).state == "clear"


def test_a_group_that_only_some_build_is_another_call() -> None:
    """They have made operations before: new_group is called by some ranks only."""
    stacks = (stack(2, "in_collective", "distributed_c10d.py:99 new_group"),)
    [hit] = ask("LIV008", behind(2, phase="joining"), stacks=stacks).hits
    assert hit.culprits.ranks == (2,)


def test_of_two_the_one_in_its_first_send_is_named_where_the_other_kept_to_its_loop() -> None:
    """No count of ranks tells it, but no round before had a send; a call that both must make says nothing."""
    pair = (
        waiting(0, groups=(mark(64, members=(0, 2)),)),
        behind(2, groups=(mark(63, pending=False, members=(0, 2)),)),
    )
    known = {r.rank: r for r in (*pair, behind(1, groups=()), behind(3, groups=()))}
    rows: list[tuple[str, dict[int, bool], tuple[int, ...]]] = [
        ("isend", {0: True}, (2,)), ("recv", {0: True}, (2,)),
        ("isend", {}, ()), ("isend", {0: False}, ()), ("new_group", {0: True}, ()),
    ]  # fmt: skip
    for call, turns, accused in rows:
        stacks = (stack(2, "in_collective", f"distributed_c10d.py:2552 {call}"),)
        [hit] = ask("LIV008", *known.values(), stacks=stacks, progress=progress(known), turns=turns).hits
        assert hit.culprits.ranks == accused, (call, turns)
        assert (hit.fault_class, hit.confidence) == (None, Confidence.LIKELY if accused else Confidence.POSSIBLE)


HANDLE = {2: {"syscall": SystemCall(name="futex")}}


def test_who_waits_for_a_handle_that_no_record_has_waits_for_other_ranks() -> None:
    """Seen: `batch_isend_irecv` with a wrong peer over Gloo was "waits for a lock" (CPU-STUCK)."""
    late = behind(2, phase="communicating")
    [hit] = ask("LIV008", late, stacks=(stack(2, "user_code"),), seen=HANDLE).hits
    assert hit.culprits.ranks == (2,)
    assert ask("LIV006", late, stacks=(stack(2, "user_code"),), seen=HANDLE).state == "clear"


def test_of_two_that_wait_for_handles_each_may_be_the_one_that_is_missed() -> None:
    late = [behind(r, phase="communicating") for r in (1, 2)]
    seen = dict.fromkeys((1, 2), HANDLE[2])
    [hit] = ask("LIV008", *late, stacks=(stack(1, "user_code"), stack(2, "user_code")), seen=seen).hits
    assert not hit.culprits


def test_who_waits_for_a_handle_may_wait_for_a_rank_that_computes() -> None:
    """A stage of a pipeline that is no member of the group in which the others wait."""
    three = [waiting(r, groups=(mark(64, members=(0, 1, 2)),)) for r in (0, 1)]
    late = behind(2, phase="communicating", groups=(mark(63, pending=False, members=(0, 1, 2)),))
    works = behind(3, groups=(), cpu_share=1.0, process_state="running")
    seen = {**HANDLE, 3: {"syscall": SystemCall(name="running")}}
    stacks = (stack(2, "user_code"), stack(3, "cpu_work"))
    assert ask("LIV008", *three, late, works, stacks=stacks, seen=seen).state == "clear"
    [hit] = ask("LIV006", *three, late, works, stacks=stacks, seen=seen).hits
    assert (hit.severity, hit.culprits.ranks) == (None, (2,))
    idle = behind(3, groups=(), phase="communicating")
    assert ask("LIV008", *three, late, idle, stacks=stacks[:1], seen=HANDLE).state == "hit"


def test_ranks_that_make_groups_in_another_order_from_one_line_are_told_apart_by_the_groups() -> None:
    """Seen: `for ranks in pairs: dist.new_group(ranks)`, and one rank's list began with another pair."""
    joining = [waiting(r, groups=(), phase="joining", site="train.py:9 make") for r in range(4)]

    def making(rank: int, group: str) -> ProcessStack:
        one = stack(rank, "in_collective", "train.py:9 make")
        return replace(one, threads=(replace(one.threads[0], makes=group),))

    stacks = tuple(making(r, "1,3 name=1" if r == 3 else "all name=1") for r in range(4))
    [hit] = ask("LIV008", *joining, stacks=stacks, progress=()).hits
    assert hit.culprits.ranks == (3,)
    said = fill(load()["LIV008"].message, hit.values)
    assert "at train.py:9 make (1,3 name=1)" in said
    assert "(train.py:9 make (all name=1))" in said
    same = tuple(making(r, "all name=1") for r in range(4))
    assert ask("LIV008", *joining, stacks=same, progress=()).state == "clear"
    unread = tuple(making(r, "" if r == 3 else "all name=1") for r in range(4))
    assert ask("LIV008", *joining, stacks=unread, progress=()).state == "clear"
