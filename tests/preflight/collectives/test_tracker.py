"""A tracker and the judge of its record: made-up progress, made-up time."""

from typing import Any

import pytest
from msgspec.structs import replace

from allready.judging.stages import Ending, judge
from allready.model import NcclChoice, Phrase, SweepPosition
from allready.preflight.collectives.spec import STAGES, RunSpec
from allready.preflight.collectives.tracker import StageTracker
from allready.preflight.collectives.wire import Progress, RankEvent
from tests.cases import cases

GLOO = STAGES["gloo"]
BARRIER, SMALL, SWEEP = GLOO.index("gloo_barrier"), GLOO.index("gloo_small"), GLOO.index("sweep")
RESET = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:40001"


class Play:
    """A tracker of 2 nodes x 2 ranks and its clock."""

    def __init__(self, **changes: Any) -> None:
        self.spec = RunSpec(backend="gloo", nproc={0: 2, 1: 2}, master_addr="10.0.0.1", stages=GLOO, **changes)
        self.now = 100.0
        self.tracker = StageTracker(self.spec, self.now)

    def event(self, rank: int, event: str, **fields: Any) -> "Play":
        self.tracker.feed(Progress(run="r", events=(RankEvent(rank=rank, event=event, **fields),)), self.now)
        return self

    def at(self, rank: int, size_bytes: int, entered: int, done: int) -> "Play":
        position = SweepPosition(rank=rank, stage=SWEEP, size_bytes=size_bytes, entered=entered, done=done)
        self.tracker.feed(Progress(run="r", positions=(position,)), self.now)
        return self

    def through(self, rank: int, stage: int) -> "Play":
        """`rank` finished everything up to `stage`."""
        for name in GLOO[: stage + 1]:
            self.event(rank, "entered", stage=name).event(rank, "finished", stage=name)
        return self

    def enter(self, stage: int, *ranks: int) -> "Play":
        """These ranks are in `stage`."""
        for rank in ranks:
            self.through(rank, stage - 1).event(rank, "entered", stage=GLOO[stage])
        return self

    def after(self, seconds: float) -> Ending | None:
        self.now += seconds
        ending = self.tracker.tick(self.now)
        return None if ending is None else judge(self.tracker.record, ending)

    def victims(self, ending: Ending) -> tuple[int, ...]:
        return tuple(r.rank for r in self.tracker.record.failed if r.rank not in ending.culprits)

    def ends_after(self, seconds: float) -> Ending:
        ending = self.after(seconds)
        assert ending is not None
        return ending


def test_is_done_when_all_ranks_said_so() -> None:
    play = Play()
    for rank in range(4):
        play.through(rank, SWEEP)
        assert play.after(0.1) is None
    for rank in range(4):
        play.event(rank, "done")
    assert play.ends_after(0) == Ending(outcome="done")


def test_a_stage_has_its_own_clock_from_when_all_are_through_the_one_before() -> None:
    play = Play()
    play.enter(0, 0, 1, 2, 3)
    assert play.after(119.0) is None
    play.enter(BARRIER, 0, 1, 2, 3)
    assert play.after(29.0) is None
    assert play.ends_after(2.0).stage == BARRIER


def test_nobody_is_blamed_when_all_entered_and_none_came_through() -> None:
    ending = Play().enter(BARRIER, 0, 1, 2, 3).ends_after(31)
    assert (ending.outcome, ending.culprits, ending.entered) == ("hung", (), (0, 1, 2, 3))


def test_the_rank_that_did_not_enter_is_blamed_at_the_deadline() -> None:
    play = Play().enter(SMALL, 0, 1, 3).through(2, BARRIER)
    assert play.after(19.9) is None
    ending = play.ends_after(0.2)
    assert (ending.outcome, ending.stage, ending.culprits, ending.entered) == ("hung", SMALL, (2,), (0, 1, 3))


def test_a_minority_stuck_where_most_passed_is_blamed_and_a_half_is_not() -> None:
    one = Play().enter(SMALL, 0, 1, 2).enter(BARRIER, 3)
    assert one.ends_after(31).culprits == (3,)
    two = Play().enter(SMALL, 0, 1).enter(BARRIER, 2, 3)
    assert two.ends_after(31).culprits == ()


def test_in_a_stage_where_no_rank_needs_another_each_late_one_is_blamed() -> None:
    assert Play().enter(0, 0, 1, 2, 3).ends_after(121).culprits == (0, 1, 2, 3)


def test_deadlines_can_be_set() -> None:
    play = Play(stage_deadline_s={"import": 5.0})
    assert play.after(4.9) is None
    assert play.tracker.deadline_s(play.ends_after(0.2)) == 5.0


def test_a_stopped_rank_is_blamed_after_two_seconds_and_a_brief_stop_is_nothing() -> None:
    play = Play().enter(SMALL, 0, 1, 2, 3).event(1, "stopped")
    assert play.after(1.9) is None
    play.event(1, "continued")
    assert play.after(5.0) is None
    play.event(1, "stopped")
    ending = play.ends_after(2.1)
    assert (ending.outcome, ending.culprits, ending.detail) == ("hung", (1,), Phrase("stopped"))


def test_a_stopped_rank_that_is_through_is_not_blamed() -> None:
    play = Play().through(1, SWEEP).event(1, "done").event(1, "stopped").enter(SWEEP, 0, 2, 3)
    assert play.after(10.0) is None


def test_a_dead_rank_is_blamed_and_not_those_that_heard_it_die_first() -> None:
    play = Play().enter(SMALL, 0, 1, 2, 3)
    play.event(0, "error", stage="gloo_small", text=RESET)
    assert play.after(1.0) is None  # the cause may still be on its way
    play.event(3, "gone", signal="SIGKILL")
    assert play.after(0.2) is None
    ending = play.ends_after(0.2)
    assert (ending.outcome, ending.stage, ending.culprits, play.victims(ending)) == ("failed", SMALL, (3,), (0,))


@cases(
    ("words", "is_victim"),
    [
        ("RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 1800000 ms", True),
        ("RuntimeError: words that a later torch will have", True),
        ("torch.distributed.DistBackendError: NCCL error", True),
        ("ValueError: a mistake of its own", False),
    ],
)
def test_a_librarys_error_beside_a_killed_rank_is_its_consequence(words: str, *, is_victim: bool) -> None:
    play = Play().enter(SMALL, 0, 1, 2, 3).event(0, "error", text=words).event(2, "gone", signal="SIGKILL")
    ending = play.ends_after(1)
    assert ending.culprits == ((2,) if is_victim else (0, 2))


def test_nobody_is_blamed_when_every_failure_speaks_of_another() -> None:
    play = Play().enter(SMALL, 0, 1, 2, 3)
    play.event(0, "error", text=RESET).event(2, "error", text=RESET.replace("closed", "reset"))
    ending = play.ends_after(3)
    assert (ending.outcome, ending.culprits, set(play.victims(ending))) == ("failed", (), {0, 2})


def test_who_waited_in_vain_is_a_victim_of_one_with_an_error_of_its_own() -> None:
    play = Play().enter(SMALL, 0, 1, 2, 3)
    play.event(0, "error", age_s=0.2, text="RuntimeError: Timed out waiting 20000ms for recv operation to complete")
    ending = play.event(2, "error", text="ValueError: a mistake").ends_after(0.4)
    assert (ending.culprits, play.victims(ending)) == ((2,), (0,))


def test_who_cannot_reach_a_store_that_is_there_fails_by_itself_whatever_the_words() -> None:
    words = "the store of rank 0 cannot be reached at 10.0.0.1:40000: Connection timed out"
    play = Play().enter(GLOO.index("store"), 0, 1, 2, 3).event(2, "error", text=words, is_store_unreachable=True)
    assert play.ends_after(0.4).culprits == (2,)


def test_a_stopped_rank_explains_what_the_others_complain_of() -> None:
    play = Play().enter(SMALL, 0, 1, 2, 3).event(0, "error", text=RESET).event(1, "stopped")
    ending = play.ends_after(2.6)
    assert (ending.culprits, play.victims(ending)) == ((1,), (0,))


def test_several_causes_come_in_the_order_of_their_time() -> None:
    play = Play().enter(SMALL, 0, 1, 2, 3)
    play.event(2, "error", age_s=0.1, text="ValueError: late")
    play.event(1, "error", age_s=0.4, text="ValueError: early")
    assert play.ends_after(0.4).culprits == (1, 2)


def test_ranks_that_lost_the_store_are_victims_of_rank_0() -> None:
    lost = {"text": "no way to it", "is_store_unreachable": True}
    play = Play().enter(GLOO.index("store"), 0, 1, 2, 3)
    play.event(1, "error", **lost).event(0, "gone", signal="SIGSEGV").event(2, "error", **lost)
    ending = play.ends_after(1)
    assert (ending.culprits, set(play.victims(ending))) == ((0,), {1, 2})
    play = Play().enter(GLOO.index("store"), 0, 1, 2, 3).event(2, "error", **lost)
    assert play.ends_after(1).culprits == (2,)


def test_a_rank_that_dies_early_is_named_while_others_still_import() -> None:
    play = Play().enter(0, 0, 1, 2).enter(3, 3).event(3, "error", text="ConnectionError: no route")
    ending = play.ends_after(0.4)
    assert (ending.stage, ending.culprits, ending.entered) == (3, (3,), (3,))


def test_ranks_of_a_lost_node_are_blamed_and_later_words_of_it_are_not_heard() -> None:
    play = Play().enter(SMALL, 0, 1, 2, 3)
    play.tracker.lose(1, "timed out", play.now)
    play.event(2, "done")
    ending = play.ends_after(0.4)
    assert (ending.outcome, ending.culprits, ending.detail) == ("failed", (2, 3), "timed out")


SIZE = 2**20


@cases(
    ("positions", "iteration", "entered", "culprits"),
    [
        # All wait in operation 5, rank 2 is still at the end of 4.
        ({0: (5, 4), 1: (5, 4), 2: (4, 4), 3: (5, 4)}, 5, (0, 1, 3), (2,)),
        # All are in operation 5.
        ({0: (5, 4), 1: (5, 4), 2: (5, 4), 3: (5, 4)}, 5, (0, 1, 2, 3), ()),
        # Enqueued far ahead, as with NCCL: operation 8 is the first that is not complete.
        ({0: (24, 7), 1: (24, 7), 2: (7, 7), 3: (24, 7)}, 8, (0, 1, 3), (2,)),
        # Rank 2 hangs in operation 4, which the others left.
        ({0: (5, 4), 1: (5, 4), 2: (4, 3), 3: (5, 4)}, 4, (0, 1, 2, 3), (2,)),
    ],
)
def test_the_sweep_names_the_operation_and_who_did_not_come(
    positions: dict[int, tuple[int, int]], iteration: int, entered: tuple[int, ...], culprits: tuple[int, ...]
) -> None:
    play = Play().enter(SWEEP, 0, 1, 2, 3)
    for rank, (last, done) in positions.items():
        play.at(rank, SIZE, last, done)
    assert play.after(20.0) is None
    ending = play.ends_after(0.1)
    assert (ending.size_bytes, ending.iteration) == (SIZE, iteration)
    assert (ending.entered, ending.culprits) == (entered, culprits)
    assert play.tracker.deadline_s(ending) == pytest.approx(20.0 + SIZE / 50e6)


def test_a_rank_at_the_next_size_has_done_all_of_the_one_before() -> None:
    play = Play().enter(SWEEP, 0, 1, 2, 3)
    for rank in (0, 1, 3):
        play.at(rank, 2 * SIZE, 0, -1)
    ending = play.at(2, SIZE, 25, 25).ends_after(21)
    assert (ending.size_bytes, ending.iteration, ending.entered, ending.culprits) == (2 * SIZE, 0, (0, 1, 3), (2,))


def test_a_stopped_ranks_old_position_does_not_hide_what_the_others_completed() -> None:
    play = Play().enter(SWEEP, 0, 1, 2, 3)
    for rank in (0, 1, 3):
        play.at(rank, SIZE, 24, 11)
    ending = play.at(2, SIZE, 11, 4).event(2, "stopped").ends_after(2.1)
    assert (ending.iteration, ending.entered, ending.culprits) == (12, (0, 1, 3), (2,))


def test_any_movement_gives_an_operation_its_time_again() -> None:
    play = Play().enter(SWEEP, 0, 1, 2, 3)
    for iteration in range(10):
        for rank in range(4):
            play.at(rank, 4096, iteration, iteration - 1)
        assert play.after(15.0) is None
    assert play.after(6.0) is not None


def test_a_point_is_the_slowest_ranks_and_needs_every_rank() -> None:
    play = Play().enter(SWEEP, 0, 1, 2, 3)
    for rank, time_s in enumerate((0.001, 0.002, 0.0015)):
        play.event(rank, "point", stage="sweep", size_bytes=10**6, time_s=time_s, iterations=20)
    assert play.tracker.points() == ()
    [point] = play.event(3, "point", stage="sweep", size_bytes=10**6, time_s=0.001, iterations=20).tracker.points()
    assert (point.time_s, point.num_iterations, point.num_errors) == (0.002, 20, 0)
    assert point.algbw_gb_per_s == pytest.approx(0.5)
    assert point.busbw_gb_per_s == pytest.approx(0.75)


def with_operations(*stages: str) -> Play:
    """All ranks measured 1 MiB with each of these."""
    play = Play()
    play.spec = RunSpec(backend="nccl", nproc={0: 2, 1: 2}, master_addr="10.0.0.1", stages=("import", *stages))
    play.tracker = StageTracker(play.spec, play.now)
    for rank in range(4):
        for stage in stages:
            play.event(rank, "point", stage=stage, size_bytes=2**20, time_s=0.001, iterations=20)
    return play


def algorithms(play: Play, *choices: NcclChoice) -> list[str]:
    for choice in choices:
        play.event(0, "nccl", choice=choice)
    return [point.algorithm for point in play.tracker.points()]


def test_what_nccl_takes_belongs_to_the_size_of_a_part_or_of_all_by_its_version() -> None:
    old = NcclChoice(operation="AllGather", size_bytes=2**20, is_whole=True, algorithm="RING", protocol="LL")
    new = replace(old, size_bytes=2**18, is_whole=False, algorithm="PAT")
    assert algorithms(with_operations("all_gather"), old) == ["RING"]
    assert algorithms(with_operations("all_gather"), new) == ["PAT"]
    assert algorithms(with_operations("all_gather"), replace(old, size_bytes=2**18)) == [""]
    assert algorithms(with_operations("all_gather"), replace(new, size_bytes=2**20)) == [""]


def test_an_algorithm_without_an_operation_is_that_of_the_only_one() -> None:
    nameless = NcclChoice(operation="", size_bytes=2**20, is_whole=True, algorithm="TREE", protocol="LL")
    assert algorithms(with_operations("sweep"), nameless) == ["TREE"]
    assert algorithms(with_operations("sweep", "all_gather"), nameless) == ["", ""]


def test_errors_in_the_sweep_make_the_run_wrong_at_the_first_bad_size() -> None:
    play = Play()
    for rank in range(4):
        play.enter(SWEEP, rank)
        for size_bytes, num_errors in ((1024, 0), (2048, int(rank == 2)), (4096, 1)):
            play.event(
                rank,
                "point",
                stage="sweep",
                size_bytes=size_bytes,
                time_s=1e-3,
                iterations=5,
                num_errors=num_errors,
                text="x",
            )
        play.event(rank, "finished", stage="sweep").event(rank, "done")
    ending = play.ends_after(0)
    assert (ending.outcome, ending.size_bytes, ending.culprits) == ("wrong", 2048, (2,))


def test_garbage_from_an_agent_is_passed_over() -> None:
    play = Play().event(99, "gone").event(0, "finished", stage="tea").event(0, "bang").at(99, 1, 1, 1)
    play.event(0, "finished", stage="sweep")  # out of order
    assert play.after(1.0) is None
    assert play.tracker.current == 0


def test_says_who_is_waited_for() -> None:
    play = Play().through(0, 0).through(1, 0).enter(0, 2, 3)
    play.now += 12
    waiting = play.tracker.waiting(play.now)
    assert waiting is not None
    assert (waiting.stage, waiting.ranks, waiting.num_finished, waiting.waited_s) == ("import", (2, 3), 2, 12)


def test_sizes_that_the_sweep_leaves_out_are_known_with_what_one_would_take() -> None:
    play = Play(min_bytes=1024, max_bytes=8192).enter(SWEEP, 0, 1, 2, 3)
    assert play.tracker.left() == ((), None)
    for rank in range(4):
        play.event(rank, "left", stage="sweep", size_bytes=4096, time_s=12.5)
    assert play.tracker.left() == ((4096, 8192), 12.5)


def test_a_stage_stands_still_only_where_ranks_need_each_other() -> None:
    play = Play().enter(0, 0, 1, 2, 3)
    play.now += 50
    assert play.tracker.still_s(play.now) == 0.0, "importing"
    play.enter(SWEEP, 0, 1, 2, 3).at(0, 1024, 0, -1)
    play.now += 4
    assert play.tracker.still_s(play.now) == 4.0
    play.at(1, 1024, 0, -1)
    assert play.tracker.still_s(play.now) == 0.0


def test_a_stage_can_be_broken_off_before_its_deadline() -> None:
    play = Play().enter(SWEEP, 0, 1, 2, 3)
    for rank in range(4):
        play.at(rank, 1024, 0, -1)
    ending = judge(play.tracker.record, play.tracker.break_off("data goes unacknowledged"))
    assert (ending.outcome, ending.stage, ending.entered, ending.culprits) == ("hung", SWEEP, (0, 1, 2, 3), ())
    assert (ending.size_bytes, ending.iteration, ending.detail) == (1024, 0, "data goes unacknowledged")


def test_a_benchmark_expects_each_size_to_be_about_as_fast_as_those_before() -> None:
    def hangs_after(*, is_bench: bool) -> float:
        play = Play(is_bench=is_bench, max_bytes=2**20)
        play.enter(SWEEP, 0, 1, 2, 3)
        for rank in range(4):
            play.event(rank, "point", stage="sweep", size_bytes=2**19, time_s=0.1, iterations=20)
            play.at(rank, 2**20, 0, -1)
        before = play.now
        while play.after(0.5) is None:
            assert play.now - before < 100
        return play.now - before

    assert hangs_after(is_bench=False) == pytest.approx(20.5, abs=1)
    assert hangs_after(is_bench=True) == pytest.approx(8 + 20 * 0.2, abs=1)


def test_a_pair_that_is_blocked_breaks_no_search_off_before_its_deadline() -> None:
    stages = ("import", "store", "pairs")
    spec = RunSpec(backend="gloo", nproc={0: 2, 1: 2}, master_addr="10.0.0.1", stages=stages, members=(0, 1, 2, 3))
    tracker, now = StageTracker(spec, 100.0), 100.0
    for rank in range(4):
        for stage in ("import", "store"):
            for event in ("entered", "finished"):
                tracker.feed(Progress(run="r", events=(RankEvent(rank=rank, event=event, stage=stage),)), now)
        tracker.feed(Progress(run="r", events=(RankEvent(rank=rank, event="entered", stage="pairs"),)), now)
    assert tracker.tick(now + 60) is None
    assert tracker.still_s(now + 60) == 0.0
    ending = tracker.tick(now + spec.whole_deadline_s("pairs") + 1)
    assert ending is not None
    assert ending.outcome == "hung"
