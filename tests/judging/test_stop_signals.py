"""Whom a signal from outside reached, and who was left out."""

from typing import Any

from allready.judging.stop_signals import DIES_WITHIN_S, StopSignal, stop_signal
from allready.model import NodeStatus, ProcessState, RankStatus
from tests.cases import cases

AT = 100.0


def killed(rank: int, *, signal: str | None = "SIGTERM", after_s: float = 0.0, **changes: Any) -> RankStatus:
    return RankStatus(rank=rank, process_state=ProcessState.KILLED, signal=signal, ended_s=AT + after_s, **changes)


def lives(rank: int, *outlives: str) -> RankStatus:
    return RankStatus(rank=rank, process_state=ProcessState.RUNNING, outlives=outlives)


def node(*ranks: RankStatus, number: int = 0, after_s: float = 2 * DIES_WITHIN_S, ahead_s: float = 0.0) -> NodeStatus:
    return NodeStatus(node_rank=number, time_s=AT + after_s + ahead_s, clock_offset_s=ahead_s, ranks=ranks)


def found(*ranks: RankStatus, **changes: Any) -> StopSignal:
    made = stop_signal([node(*ranks, **changes)])
    assert made is not None
    return made


def test_a_signal_that_ended_all_ranks_was_meant_for_the_job() -> None:
    one = found(killed(0, after_s=0.2), killed(1))
    assert (one.signal, one.ranks, one.first_s, one.is_for_the_job) == ("SIGTERM", (0, 1), AT, True)


def test_who_handles_it_may_have_got_it_and_who_does_not_was_left_out() -> None:
    assert found(killed(0), lives(1, "SIGTERM", "SIGINT")).is_for_the_job
    one = found(killed(0), lives(1, "SIGINT"), lives(2, "SIGTERM"))
    assert (one.spared, one.is_for_the_job) == ((1,), False)


def test_it_is_too_early_to_tell_right_after_the_first_end() -> None:
    one = found(killed(0), lives(1), after_s=DIES_WITHIN_S / 2)
    assert (one.unsure, one.spared, one.is_for_the_job) == (True, (), False)


def test_who_is_gone_and_nobody_knows_how_yet_is_waited_for() -> None:
    one = found(killed(0), RankStatus(rank=1, process_state=ProcessState.ZOMBIE))
    assert (one.unsure, one.is_for_the_job) == (True, False)


def test_times_are_those_of_node_0() -> None:
    late = node(killed(2, after_s=50.0), number=1, ahead_s=50.0)
    one = stop_signal([node(killed(0, after_s=0.1)), late])
    assert one is not None
    assert (one.node, one.first_s, one.ranks) == (1, AT, (0, 2))


@cases("code, name", [(143, "SIGTERM"), (130, "SIGINT"), (129, "SIGHUP")])
def test_an_exit_code_as_a_shell_gives_it_names_the_signal(code: int, name: str) -> None:
    one = found(RankStatus(rank=0, process_state=ProcessState.EXITED, exit_code=code, ended_s=AT), lives(1, name))
    assert (one.signal, one.is_for_the_job) == (name, True)


def test_nothing_is_found_where_another_end_came_first() -> None:
    failed = RankStatus(rank=0, process_state=ProcessState.EXITED, exit_code=1, ended_s=AT - 1)
    assert stop_signal([node(failed, killed(1))]) is None
    assert stop_signal([node(killed(0, signal="SIGKILL"), killed(1, after_s=1.0))]) is None
    assert stop_signal([node(lives(0), lives(1))]) is None


def test_ranks_that_had_ended_well_before_are_no_matter() -> None:
    done = RankStatus(rank=0, process_state=ProcessState.EXITED, exit_code=0, ended_s=AT - 1)
    assert found(done, killed(1)).is_for_the_job
    after = RankStatus(rank=0, process_state=ProcessState.EXITED, exit_code=0, ended_s=AT + 1)
    assert found(after, killed(1)).spared == (0,)


def test_who_was_seen_in_its_handler_was_ended_by_that_signal_whatever_its_exit_code() -> None:
    for code in (0, 1, 75):
        saved = RankStatus(rank=0, process_state=ProcessState.EXITED, exit_code=code, ended_s=AT, handling="SIGTERM")
        one = found(saved, lives(1, "SIGTERM"))
        assert (one.signal, one.ranks, one.is_for_the_job) == ("SIGTERM", (0,), True)


def test_who_leaves_out_of_its_handler_got_it_though_python_has_taken_the_handlers_back() -> None:
    first = RankStatus(rank=1, process_state=ProcessState.EXITED, exit_code=143, ended_s=AT, handling="SIGTERM")
    leaves = RankStatus(rank=0, process_state=ProcessState.RUNNING, phase="ending", handling="SIGTERM")
    assert found(first, leaves).is_for_the_job
    gone = RankStatus(rank=0, process_state=ProcessState.ZOMBIE, handling="SIGTERM")
    assert found(first, gone).is_for_the_job
    other = RankStatus(rank=0, process_state=ProcessState.RUNNING, phase="ending", handling="SIGINT")
    assert found(first, other).spared == (0,)
