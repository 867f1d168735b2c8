"""The agreement under every order of arrivals, deadlines and deaths, for two to four ranks, and random ones beyond."""

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.model import CallPosition, FailureCause, MemberState
from allready.runtime import messages as m
from allready.runtime.agreement import Agreement, Phase
from tests.cases import cases
from tests.runtime.model import Job


def explore(job: Job, *, is_prompt: bool = False, limit: int = 100_000) -> int:
    """Every reachable state; how many there are.  `is_prompt`: messages take no time, only ranks do."""
    seen = {job.key()}
    stack = [job]
    while stack:
        state = stack.pop()
        choices = state.choices()
        if not choices:
            state.check_end()
        frozen = pickle.dumps(state, pickle.HIGHEST_PROTOCOL)
        for action, number in choices:
            new: Job = pickle.loads(frozen)
            new.do(action, number)
            new.read_up()
            if is_prompt:
                new.read_down()
            new.check()
            key = new.key()
            if key not in seen:
                seen.add(key)
                stack.append(new)
        assert len(seen) < limit
    return len(seen)


def running(num_ranks: int, **faults: Any) -> Job:
    """A job whose group is formed."""
    job = Job(num_ranks, **faults)
    job.epochs = 0  # what follows the first failure is tried with fewer ranks
    for number in range(num_ranks):
        job._step(number)
    while any(job.up) or any(job.down):
        for action, number in job.choices():
            if action in {"hub_reads", "rank_reads"}:
                job.do(action, number)
                break
    assert all(r.at == "idle" for r in job.ranks)
    return job


@cases(
    "num_ranks, faults, is_prompt",
    [
        (2, {"deaths": 1, "fails": 1}, False),
        (2, {"deaths": 0, "fails": 2}, False),
        (2, {"deaths": 0, "stops": 1, "fails": 1}, False),
        (3, {"deaths": 1, "fails": 0}, False),
        (3, {"deaths": 1, "fails": 2}, True),
        (3, {"deaths": 1, "stops": 1, "fails": 1}, True),
        (4, {"deaths": 1, "fails": 1}, True),
        (4, {"deaths": 0, "stops": 1, "fails": 1}, True),
        (3, {"deaths": 1, "fails": 1, "groups": ((0, 1),)}, True),
        (4, {"deaths": 0, "fails": 2, "groups": ((0, 1), (2, 3))}, True),
        (4, {"deaths": 1, "fails": 1, "groups": ((0, 2), (1, 3))}, True),
    ],
    parts=8,
)
@pytest.mark.thorough
def test_no_order_of_events_parts_the_ranks_or_leaves_one_waiting(
    num_ranks: int, faults: dict[str, Any], is_prompt: bool
) -> None:
    assert explore(running(num_ranks, **faults), is_prompt=is_prompt) > 100


@given(st.data())
@settings(max_examples=60)
@pytest.mark.thorough
def test_random_orders_with_late_messages_and_several_epochs(data: st.DataObject) -> None:
    num_ranks = data.draw(st.integers(2, 6))
    job = Job(num_ranks, deaths=2, stops=2, fails=4, min_ranks=data.draw(st.integers(1, 2)))
    job.epochs = 3
    for _ in range(400):
        choices = job.choices()
        if not choices:
            job.check_end()
            return
        job.do(*data.draw(st.sampled_from(choices)))
        job.check()


def formed(num_ranks: int) -> Agreement:
    """An agreement whose first epoch runs."""
    hub = Agreement(range(num_ranks), answer_s=1.0)
    for rank in range(num_ranks):
        hub.take(rank, m.Ready(epoch=0, timeout_s=5.0, min_ranks=num_ranks), 0.0)
    assert hub.phase is Phase.RUNNING
    return hub


def decided(out: list[tuple[int, m.ToRank]]) -> m.Failed | None:
    return next((message for _, message in out if isinstance(message, m.Failed)), None)


def position(entered: int, completed: int) -> m.Position:
    return m.Position(epoch=1, call=CallPosition(entered=entered, completed=completed))


def test_a_deadline_that_falls_as_the_last_vote_arrives_changes_nothing() -> None:
    hub = formed(2)
    hub.take(0, m.Vote(epoch=1, number=0), 1.0)
    out = hub.take(1, m.Vote(epoch=1, number=0), 1.0)
    assert [type(message) for _, message in out] == [m.Passed, m.Passed]
    assert hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE, number=0), 1.0) == []
    assert hub.phase is Phase.RUNNING


def test_two_deadlines_at_different_moments_are_one_failure() -> None:
    hub = formed(2)
    first = hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 1.0)
    assert [type(message) for _, message in first] == [m.Freeze, m.Freeze]
    assert hub.take(1, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 1.0) == []
    assert hub.take(0, position(3, 2), 1.1) == []
    failed = decided(hub.take(1, position(3, 3), 1.1))
    assert failed is not None
    assert failed.failure.first_void == 3  # rank 1 may have returned from call 3, and learns it at its next
    assert hub.take(1, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 1.2) == []


def test_a_rank_that_has_not_called_in_a_subgroup_yet_is_counted_as_at_its_start() -> None:
    hub = formed(3)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE, group=(0, 2)), 1.0)
    call = CallPosition(entered=1, completed=1, operation="broadcast")
    inside = m.InGroup(group=(0, 2), call=call)
    hub.take(0, m.Position(epoch=1, call=CallPosition(entered=4, completed=4), subgroups=(inside,)), 1.0)
    hub.take(1, position(4, 4), 1.0)
    failed = decided(hub.take(2, position(4, 4), 1.0))
    assert failed is not None
    assert [r.call for r in failed.failure.ranks] == [call, None, CallPosition()]
    assert {v.group: v.first_void for v in failed.failure.voids} == {(): 5, (0, 2): 1}
    assert failed.failure.first_void == 1


def test_a_silent_rank_is_waited_for_no_longer_than_the_limit() -> None:
    hub = formed(3)
    for rank in (0, 1, 2):
        hub.take(rank, m.Beat(), 10.0)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.5)
    hub.take(0, position(1, 0), 10.5)
    hub.take(1, position(1, 0), 10.5)
    assert hub.wake_s() == 11.0
    assert decided(hub.tick(10.9)) is None
    failed = decided(hub.tick(11.0))
    assert failed is not None
    assert failed.failure.survivors == (0, 1)
    assert failed.failure.ranks[2].state is MemberState.SILENT


def test_a_rank_that_was_long_silent_costs_no_more_time() -> None:
    hub = formed(2)
    hub.take(0, m.Beat(), 10.0)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
    hub.take(0, position(1, 0), 10.0)
    assert hub.wake_s() == 10.1


def test_who_comes_too_late_is_excluded_and_no_more_counted() -> None:
    hub = formed(3)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
    for rank in (0, 1):
        hub.take(rank, position(1, 0), 10.0)
    hub.tick(20.0)
    hub.take(0, m.Ready(epoch=1, timeout_s=5.0, min_ranks=1), 20.0)
    out = hub.take(1, m.Ready(epoch=1, timeout_s=5.0, min_ranks=1), 20.0)
    assert (2, m.Excluded(epoch=2)) in out
    assert hub.take(2, m.Ready(epoch=1, timeout_s=5.0, min_ranks=1), 21.0) == [(2, m.Excluded(epoch=2))]
    assert (hub.members, hub.phase) == ((0, 1), Phase.RUNNING)
    assert hub.lost(2, 22.0) == []
    assert hub.phase is Phase.RUNNING


def test_a_group_that_is_too_small_is_refused_at_once() -> None:
    hub = formed(2)
    hub.lost(1, 1.0)
    hub.take(0, position(1, 0), 1.0)
    out = hub.take(0, m.Ready(epoch=1, timeout_s=50.0, min_ranks=2), 1.0)
    assert out == [(0, m.Refused(epoch=1, missing=(1,), min_ranks=2))]
