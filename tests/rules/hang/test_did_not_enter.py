import pytest

from allready.judging.stated import doing_words
from allready.model import PROCESSES, Confidence, Event, FaultClass, Role
from tests.cases import cases
from tests.rules.runs import ask, at, death, event, group, one_missing, process, stack


@cases("source", ["flight recorder", "watchdog", "ras", "coll log"])
def test_names_the_rank_that_did_not_enter_from_every_kind_of_evidence(source: str) -> None:
    [hit] = ask("HNG001", progress=(one_missing(2, source),)).hits
    assert hit.culprits.ranks == (2,)
    assert hit.fault_class is FaultClass.CPU_STUCK


@cases(
    ("activity", "fault_class"),
    [
        ("lock", FaultClass.CPU_STUCK), ("data_loading", FaultClass.CPU_STUCK), ("tokenize", FaultClass.CPU_BUSY),
        ("import_or_compile", FaultClass.CPU_BUSY), ("exit", FaultClass.DESYNC_FLOW),
    ],
)  # fmt: skip
def test_its_stack_says_why(activity: str, fault_class: FaultClass) -> None:
    [hit] = ask("HNG001", progress=(one_missing(2),), stacks=(stack(2, activity),)).hits
    assert hit.fault_class is fault_class
    assert (str(hit.values["site"]), hit.values["doing"]) == ("train.py:12 step", doing_words(activity))
    assert len(hit.values[PROCESSES]) == 1  # type: ignore[arg-type]


def test_of_several_it_is_told_what_all_did_and_where() -> None:
    missing = group({r: at(63) if r > 3 else at(65, 64) for r in range(6)}, members=tuple(range(6)))
    for other, shown in (("lock", True), ("io", False)):
        [hit] = ask("HNG001", progress=(missing,), stacks=(stack(4, "lock"), stack(5, other))).hits
        assert hit.culprits.ranks == (4, 5)
        assert (hit.values["doing"] == doing_words("lock")) is shown


def test_follows_the_waits_through_two_groups_to_the_one_who_waits_for_nobody() -> None:
    tp = group({2: at(26, 26), 3: at(25)}, group="2", label="TP", members=(2, 3))
    dp = group({0: at(26, 26), 2: at(25)}, group="3", label="DP", members=(0, 2))
    other = group({1: at(26, 26), 3: at(25)}, group="4", label="DP", members=(1, 3))
    [hit] = ask("HNG001", progress=(dp, tp, other)).hits
    assert hit.culprits.ranks == (3,)


def test_a_snapshot_of_moving_ranks_is_only_possible() -> None:
    [hit] = ask(
        "HNG001", progress=(group({r: at(63 if r == 2 else 64) for r in range(4)}, "ras", complete=False),)
    ).hits
    assert hit.confidence is Confidence.POSSIBLE


def test_one_rank_ahead_of_all_others_is_not_waiting_for_them_all() -> None:
    counts = group({r: at(66 if r == 0 else 65) for r in range(4)}, "ras")
    assert ask("HNG001", progress=(counts,)).state == "clear"


def test_a_death_explains_it() -> None:
    assert ask("HNG001", progress=(one_missing(2),), deaths=(death(2),)).state == "clear"


def test_a_run_that_ended_well_hung_nowhere() -> None:
    assert ask("HNG001", progress=(one_missing(2, "coll log"),), ended_well=frozenset(range(4))).state == "clear"


def test_the_hang_began_one_time_out_before_the_watchdog_spoke() -> None:
    spoken = event("torch.watchdog_timeout", 0, time_s=1612.0, values={"ran_ms": "600000"})
    [hit] = ask("HNG001", progress=(one_missing(2),), events=(spoken,)).hits
    assert hit.fault_time == "1970-01-01T00:16:52.000"


def test_ranks_whose_logs_were_not_given_are_not_missing() -> None:
    one = group({0: at(64)}, "coll log", absent={1: "no log", 2: "no log", 3: "no log"}, complete=False)
    assert ask("HNG001", progress=(one,)).state == "clear"
    assert ask("HNG002", progress=(one,)).state == "clear"


def test_a_rank_behind_in_the_records_of_a_moving_job_is_only_possible() -> None:
    [hit] = ask("HNG001", progress=(one_missing(2),)).hits
    assert hit.confidence is Confidence.POSSIBLE
    [hit] = ask("HNG001", progress=(one_missing(2),), events=(event("torch.watchdog_timeout", 0),)).hits
    assert hit.confidence is Confidence.LIKELY


def test_who_got_to_the_end_was_let_through_by_everybody() -> None:
    """A log that ends early beside ranks that say goodbye is only cut short."""
    assert ask("HNG001", progress=(one_missing(2, "coll log"),), ended_well=frozenset({0, 1})).state == "clear"


def test_a_job_that_was_ended_from_outside_ends_at_different_operations() -> None:
    ended = event("launcher.slurm_time_limit")
    assert ask("HNG001", progress=(one_missing(2, "coll log"),), events=(ended,)).state == "clear"
    hung = (ended, event("torch.watchdog_timeout", 0))
    assert ask("HNG001", progress=(one_missing(2, "coll log"),), events=hung).state == "hit"


def test_as_many_behind_as_ahead_accuses_nobody() -> None:
    counts = group({r: at(64 if r < 2 else 63) for r in range(4)}, "coll log", complete=False)
    assert ask("HNG001", progress=(counts,)).state == "clear"


TOLD_TO_STOP = event("elastic.death_signal")


def test_operations_of_ranks_that_were_told_to_stop_differ_without_a_hang() -> None:
    assert ask("HNG001", progress=(one_missing(2, "coll log"),), events=(TOLD_TO_STOP,)).state == "clear"


@pytest.mark.parametrize(("late", "is_hang"), [("sleep", True), ("exit", True), ("in_collective", False)])
def test_stacks_show_that_they_had_stood_still_before(late: str, is_hang: bool) -> None:
    stacks = tuple(stack(r, late if r == 2 else "in_collective", pid=r) for r in range(4))
    outcome = ask("HNG001", progress=(one_missing(2, "coll log"),), events=(TOLD_TO_STOP,), stacks=stacks)
    assert bool(outcome.hits) is is_hang
    some = ask("HNG001", progress=(one_missing(2, "coll log"),), events=(TOLD_TO_STOP,), stacks=stacks[2:])
    assert not some.hits


LATE = one_missing(2, "coll log")
GAVE_UP = event("torch.watchdog_timeout", 0, role=Role.RECORD, time_s=1010.0)


def closed(time_s: float | None) -> Event:
    return event("nccl.peer_closed", 0, role=Role.CASCADE, time_s=time_s)


@pytest.mark.parametrize(
    ("time_s", "fault_class"), [(1003.0, FaultClass.DEAD), (1019.0, FaultClass.CPU_STUCK), (None, FaultClass.CPU_STUCK)]
)
def test_a_connection_that_was_closed_when_others_had_given_up_is_no_death(
    time_s: float | None, fault_class: FaultClass
) -> None:
    [hit] = ask("HNG001", progress=(LATE,), events=(GAVE_UP, closed(time_s))).hits
    assert hit.fault_class is fault_class


@pytest.mark.parametrize(("time_s", "is_soon"), [(1002.0, True), (1030.0, False), (None, False)])
def test_library_logs_alone_cannot_tell_a_death_from_an_end_by_hand(time_s: float | None, is_soon: bool) -> None:
    last = process(2, last_time_s=1000.0)
    [hit] = ask("HNG001", progress=(LATE,), events=(closed(time_s),), processes=(last,)).hits
    assert hit.fault_class is FaultClass.DEAD
    assert hit.confidence is (Confidence.LIKELY if is_soon else Confidence.POSSIBLE)


def test_who_ended_in_order_with_fewer_operations_left_the_others_waiting() -> None:
    well = frozenset({2})
    [hit] = ask("HNG001", progress=(LATE,), events=(closed(None),), ended_well=well).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((2,), FaultClass.DESYNC_FLOW)
    assert hit.values[PROCESSES] == ()  # no command for a process that is gone
    assert not ask("HNG001", progress=(LATE,), ended_well=well).hits  # no rank lost any rank: a log that is cut short
    assert not ask("HNG001", progress=(LATE,), events=(closed(None),), ended_well=frozenset({0})).hits


@pytest.mark.parametrize(("told_s", "is_hang"), [(1040.0, True), (1006.0, False)])
def test_stacks_of_a_job_that_logged_operations_to_the_end_are_of_another_moment(told_s: float, is_hang: bool) -> None:
    stacks = tuple(stack(r, "sleep" if r == 2 else "in_collective", pid=r) for r in range(4))
    told = event("elastic.death_signal", time_s=told_s)
    last = process(0, last_time_s=1000.0, last_line_class="operation")
    outcome = ask("HNG001", progress=(LATE,), events=(told,), stacks=stacks, processes=(last,))
    assert bool(outcome.hits) is is_hang


def test_an_error_that_was_outlived_is_shown_with_the_call_that_was_left_out() -> None:
    caught = event("cuda.out_of_memory", 2, "skipped a batch: CUDA out of memory", Role.HARMLESS)
    others = event("cuda.out_of_memory", 1, "of another rank", Role.HARMLESS)
    events = (closed(None), caught, others)
    [hit] = ask("HNG001", progress=(LATE,), events=events, ended_well=frozenset({2})).hits
    assert [e.text for e in hit.evidence if "went on" in e.text] == [
        "rank 2 logged this and went on: skipped a batch: CUDA out of memory"
    ]
