"""LIV007."""

from typing import Any

from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import (
    Confidence,
    Death,
    FaultClass,
    Fleet,
    Mismatch,
    Operation,
    Origin,
    PairSurplus,
    Position,
    ProcessState,
    RankStatus,
    Recorder,
)
from allready.model.fill import fill
from tests.cases import cases
from tests.fleets import check
from tests.rules.live.made import NOW, ask, behind, ended, job, mark, stack, waiting


def test_names_the_rank_that_left_with_its_number_of_operations() -> None:
    [hit] = ask("LIV007", ended(1)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1,), Confidence.CERTAIN)
    assert hit.values["last"] == "63"


def test_names_the_one_that_made_a_call_more_when_all_others_are_through() -> None:
    [hit] = ask("LIV007", ended(0), ended(1), ended(3)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)


def test_whoever_ended_unseen_may_have_been_killed_and_is_no_desync() -> None:
    """A job that is only watched: its ranks are no children, so no rank learns their exit codes."""
    [hit] = ask("LIV007", ended(1, exit_code=None)).hits
    assert (hit.culprits.ranks, hit.confidence, hit.fault_class) == ((1,), Confidence.LIKELY, FaultClass.DEAD)
    assert "another number of calls" not in fill(load()["LIV007"].message, hit.values)
    assert "another number of calls" in fill(load()["LIV007"].message, ask("LIV007", ended(1)).hits[0].values)


def test_whose_parent_has_not_learnt_its_exit_code_yet_is_waited_for() -> None:
    """Seen on a busy machine: the rank left with exit code 0, and was called dead, since no rank knew that yet."""
    zombie = ended(1, exit_code=None, process_state=ProcessState.ZOMBIE)
    assert ask("LIV007", zombie).state == "clear"


def test_blames_nobody_on_a_tie() -> None:
    [hit] = ask("LIV007", ended(0), ended(1)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY)


def test_a_stack_that_is_newer_than_the_word_of_its_rank_waits_for_the_next_word() -> None:
    """Which may say that a signal made it leave: its exit handlers wait for the other ranks."""
    leaves = behind(1, groups=(mark(63, pending=False),), framework="jax")
    fleet = job(leaves, stacks=(stack(1, "exit"),))
    assert check("LIV007", fleet).state == "hit"
    assert fleet.live is not None
    newer = {n: replace(answer, time_s=NOW + 0.2) for n, answer in fleet.live.evidence.items()}
    assert check("LIV007", replace(fleet, live=replace(fleet.live, evidence=newer))).state == "clear"


def two(left: RankStatus, **changes: Any) -> Fleet:
    """A job of two ranks, of which one left and the other waits."""
    members: dict[str, Any] = {"members": (0, 1)}
    waits = waiting(0, groups=(mark(64, **members),))
    left = replace(left, groups=(mark(63, pending=False, **members),))
    fleet = job(waits, left, *(waiting(r, groups=()) for r in (2, 3)), **changes)
    live, world = fleet.live, fleet.world
    assert live is not None
    [node, *_] = (replace(n, ranks=n.ranks[:2]) for n in live.statuses.values())
    before = replace(node.ranks[0], site="train.py:9 step")
    seen = {20.0: before, 15.0: before, 2.0: waits}
    history = {0: tuple(replace(node, time_s=NOW - back, ranks=(rank, behind(1))) for back, rank in seen.items())}
    known = replace(live, statuses={0: node}, history=history, heard_s={0: 0.0}, world_size=2)
    return replace(fleet, live=known, world=replace(world, world_size=2, num_nodes=1, nodes=world.nodes[:1]))


def test_of_two_neither_is_accused_where_the_other_waits_at_a_line_of_its_own() -> None:
    """Seen in a JAX job: one of two processes made a call more at its end, and the other one was accused."""
    [hit] = check("LIV007", two(ended(1))).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY)
    said = fill(load()["LIV007"].message, hit.values)
    assert "either rank 1 (gpu0, pid 101) made a call too few or rank 0 (gpu0, pid 100) one too many" in said
    assert "seen last at train.py:30 save" in said
    assert "than the rest" not in said


@cases("ahead_s", [5.0, -5.0, 60.0, -60.0])
def test_where_it_was_before_is_asked_by_one_clock(ahead_s: float) -> None:
    """The node's clock may be off; the wait began by that of node 0."""
    fleet = two(ended(1))
    assert fleet.live is not None
    [words] = fleet.live.history.values()
    history = {0: tuple(replace(w, time_s=w.time_s + ahead_s, clock_offset_s=ahead_s) for w in words)}
    [hit] = check("LIV007", replace(fleet, live=replace(fleet.live, history=history))).hits
    assert hit.culprits.ranks == ()


def test_of_two_whose_calls_no_record_numbers_neither_is_accused() -> None:
    """Seen in a JAX job: a call more in the middle shows at its end only, at the line of all calls."""
    fleet = two(ended(1))
    assert fleet.live is not None
    [node] = fleet.live.statuses.values()
    bare = replace(node, ranks=tuple(replace(r, groups=(), framework="jax") for r in node.ranks))
    history = {0: (replace(bare, time_s=NOW - 20.0),)}
    live = replace(fleet.live, statuses={0: bare}, history=history)
    [hit] = check("LIV007", replace(fleet, live=live)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.LIKELY)


@cases(
    ("num_left", "busy", "hang_after_s", "accused", "confidence"),
    [(1, 1.0, 60.0, (3,), "possible"), (1, None, 60.0, (3,), "possible"), (1, 0.0, 60.0, (3,), "certain"),
     (2, 1.0, 60.0, (), "possible"), (2, 0.0, 60.0, (), "likely"), (2, 1.0, 5.0, (), "likely"),
     (3, 1.0, 60.0, (0,), "possible"), (3, 0.0, 60.0, (0,), "likely"), (3, None, 5.0, (0,), "likely")],
)  # fmt: skip
def test_who_may_wait_for_a_result_of_its_own_makes_no_sure_verdict(
    num_left: int, busy: float | None, hang_after_s: float, accused: tuple[int, ...], confidence: str
) -> None:
    """JAX processes at the end of the interpreter, while others compute a last evaluation: no record shows a wait."""
    waits = range(4 - num_left)
    ranks = [waiting(r, groups=(), framework="jax", gpu_busy_share=busy) for r in waits]
    for left, activity in (
        ([ended(r, groups=(), framework="jax") for r in range(4 - num_left, 4)], ""),
        ([behind(r, groups=(), framework="jax", phase="ending") for r in range(4 - num_left, 4)], "exit"),
    ):
        stacks = (*(stack(r, "gpu_wait") for r in waits), *(stack(r.rank, activity) for r in left if activity))
        [hit] = ask("LIV007", *ranks, *left, stacks=stacks, live={"hang_after_s": hang_after_s}).hits
        assert (hit.culprits.ranks, hit.confidence) == (accused, confidence), activity


def test_a_barrier_without_a_record_is_no_wait_for_a_result() -> None:
    ranks = [waiting(r, groups=(), framework="jax", gpu_busy_share=1.0) for r in (0, 1)]
    stacks = tuple(stack(r, "in_collective") for r in (0, 1))
    [hit] = ask("LIV007", *ranks, *(ended(r, groups=(), framework="jax") for r in (2, 3)), stacks=stacks).hits
    assert hit.confidence == "likely"


def test_of_two_the_one_that_left_is_accused_where_the_other_goes_on_as_before() -> None:
    fleet = two(ended(1))
    run, live = fleet.run_evidence, fleet.live
    assert run is not None
    assert live is not None
    [hit] = check("LIV007", replace(fleet, run_evidence=replace(run, turns={0: True}))).hits
    assert (hit.culprits.ranks, hit.confidence) == ((1,), Confidence.LIKELY)
    assert "either" not in fill(load()["LIV007"].message, hit.values)
    [node] = live.statuses.values()
    there = {0: (replace(node, time_s=NOW - 20.0, ranks=(node.ranks[0], behind(1))),)}
    for history in (there, {}):
        [hit] = check("LIV007", replace(fleet, live=replace(live, history=history))).hits
        assert (hit.culprits.ranks, hit.confidence) == ((1,), Confidence.LIKELY)


def test_of_two_the_one_whose_end_nobody_saw_may_have_died() -> None:
    [hit] = check("LIV007", two(ended(1, exit_code=None))).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((1,), FaultClass.DEAD)


def test_of_two_whose_calls_differed_before_nobody_knows_who_made_one_too_many() -> None:
    pair: dict[str, Any] = {"members": (0, 1)}
    ranks = (
        waiting(0, groups=(mark(64, **pair),)), ended(1, groups=(mark(63, pending=False, **pair),)),
        *(waiting(r, groups=(), phase="computing") for r in (2, 3)),
    )  # fmt: skip
    [hit] = ask("LIV007", *ranks).hits
    assert hit.culprits.ranks == (1,)
    calls = {r: Operation(seq=40, name="") for r in (0, 1)}
    differing = Mismatch(group="0", source=Recorder.FLIGHT, kind="dtype", seq=40, by_rank=calls)
    [hit] = ask("LIV007", *ranks, mismatches=(differing,)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((), Confidence.POSSIBLE)


def test_ranks_of_a_job_that_ends_leave_one_after_the_other() -> None:
    just = [waiting(r, groups=(mark(64, waiting_s=0.2, moved_s=NOW - 0.2),)) for r in (0, 2, 3)]
    assert ask("LIV007", *just, ended(1)).state == "clear"


def test_a_rank_in_its_last_steps_has_left_as_well() -> None:
    [hit] = ask("LIV007", behind(2), stacks=(stack(2, "exit"),)).hits
    assert hit.culprits.ranks == (2,)


def test_peers_that_died_of_the_lost_connection_are_victims() -> None:
    deaths = tuple(
        Death(
            kind="exception",
            origin=Origin(source="out.log"),
            rank=r,
            is_collective_error=True,
            time_s=NOW - 9,
            text="RuntimeError: Connection closed by peer",
        )
        for r in (0, 2, 3)
    )
    dead = [ended(r, exit_code=1) for r in (0, 2, 3)]
    [hit] = ask("LIV007", ended(1), *dead, deaths=deaths).hits
    assert hit.culprits.ranks == (1,)


def test_who_ends_since_it_lost_another_rank_has_not_left() -> None:
    """Two of four end after an error, in JAX's shutdown; the fourth still waits and is no odd one."""
    lost = tuple(
        Death(kind="exception", origin=Origin(source="out.log"), rank=r, is_collective_error=True, text="reset by peer")
        for r in (1, 3)
    )
    ending = (behind(1), behind(3), ended(2, None, "SIGABRT"))
    stacks = (stack(1, "exit"), stack(3, "exit"))
    assert ask("LIV007", *ending, stacks=stacks, deaths=lost).state == "clear"


def test_a_killed_rank_is_another_finding() -> None:
    assert ask("LIV007", ended(1, None, "SIGTERM")).state == "clear"


def test_a_rank_that_died_is_no_rank_that_left() -> None:
    assert ask("LIV007", ended(3, exit_code=1)).state == "clear"


def test_a_living_rank_without_its_groups_has_destroyed_them() -> None:
    gone = behind(2, groups=(), phase="computing", cpu_share=0.9)
    fleet = job(gone, stacks=(stack(2, "cpu_work"),))
    assert fleet.run_evidence is not None
    [told] = fleet.run_evidence.progress
    positions = {**told.positions, 2: Position(enqueued=63, completed=63)}
    after = replace(fleet.run_evidence, progress=(replace(told, positions=positions, absent={}),))
    [hit] = check("LIV007", replace(fleet, run_evidence=after)).hits
    assert hit.culprits.ranks == (2,)
    for back_s, state in ((20.0, "hit"), (2.0, "clear")):  # on a busy machine the beacon shows a group late
        last = Operation(seq=63, name="all_reduce", created_s=NOW - back_s)
        positions[2] = Position(enqueued=63, completed=63, last=last)
        now = replace(fleet.run_evidence, progress=(replace(told, positions=positions, absent={}),))
        assert check("LIV007", replace(fleet, run_evidence=now)).state == state


def test_of_two_the_call_that_only_the_other_made_is_shown_and_who_left_is_not_accused() -> None:
    """Seen: rank 1 of two logged a metric that rank 0 did not; rank 0, first at its end, was accused."""
    call = Operation(seq=40, name="all_reduce", num_elements=10)
    for odd in ((), (0,)):
        fleet = two(ended(1))
        assert fleet.run_evidence is not None
        pair = PairSurplus(group="0", ahead=0, behind=1, seq=40, operation=call, odd=odd)
        known = replace(fleet.run_evidence, surplus=pair, turns={0: True, 1: True})
        [hit] = check("LIV007", replace(fleet, run_evidence=known)).hits
        assert (hit.culprits.ranks, hit.confidence) == (odd, Confidence.LIKELY)
        said = fill(load()["LIV007"].message, hit.values)
        assert "only rank 0 (gpu0, pid 100) made call #40, all_reduce [10]" in said
        assert ("either rank 1" in said) == (not odd)
        other = replace(known, surplus=replace(pair, ahead=1, behind=0))
        [hit] = check("LIV007", replace(fleet, run_evidence=other)).hits
        assert "#40" not in fill(load()["LIV007"].message, hit.values)


def test_a_call_that_may_have_been_made_twice_is_no_fact() -> None:
    """Seen: rank 0 had skipped the work of one batch, and rank 1 left one early: rank 0 was accused."""
    fleet = two(ended(1))
    assert fleet.run_evidence is not None
    pair = PairSurplus(group="0", ahead=0, behind=1, seq=26, step_s=0.002, usual_step_s=0.0506)
    known = replace(fleet.run_evidence, surplus=pair, turns={0: True, 1: True})
    [hit] = check("LIV007", replace(fleet, run_evidence=known)).hits
    said = fill(load()["LIV007"].message, hit.values)
    assert hit.culprits.ranks == ()
    assert "rank 0 (gpu0, pid 100) may have made call #26 twice: it came 2.0 ms after" in said
    assert "only rank 0" not in said


def test_of_two_the_lines_of_the_one_that_waits_are_waited_for() -> None:
    """Rings have no lines; a dump, which has, is asked for in the second question."""
    for back_s, state in ((1.0, "clear"), (3.0, "hit")):
        assert check("LIV007", two(ended(1), live={"since_s": NOW - back_s})).state == state
