"""The agreement under every order of arrivals, deadlines and deaths, for two to four ranks, and random ones beyond."""

import pickle
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.judging.overdue import late, missed
from allready.model import Begun, CallArguments, CallPosition, FailureCause, MemberState, Misfit
from allready.runtime import comparing
from allready.runtime import messages as m
from allready.runtime.agreement import AWAY_S, MAX_BEGUN_PER_RANK, Agreement, Phase
from allready.runtime.comparing import MAX_MISFITS, OpenCall, calls_of, misfits_of
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


def running(num_ranks: int, *, epochs: int = 0, **faults: Any) -> Job:
    """A job whose group is formed."""
    job = Job(num_ranks, **faults)
    job.epochs = epochs  # what follows the first failure is tried with fewer ranks
    for number in range(num_ranks):
        job._step(number)
    while any(job.up) or any(job.down):
        for action, number in job.choices():
            if action in {"hub_reads", "rank_reads"}:
                job.do(action, number)
                break
    assert all(r.at == "idle" for r in job.ranks)
    for rank in job.ranks:
        rank.member.world.voted = rank.member.world.passed = 0
    job.hub._passed[()] = 0
    job.hub._silence_s = None
    return job


@cases(
    "num_ranks, faults, is_prompt",
    [
        (2, {"deaths": 1, "fails": 1}, False),
        (2, {"deaths": 0, "stops": 1, "fails": 1}, False),
        (3, {"deaths": 1, "fails": 0}, False),
        (3, {"deaths": 1, "fails": 2}, True),
        (3, {"deaths": 1, "stops": 1, "fails": 1}, True),
        (4, {"deaths": 1, "fails": 1}, True),
        (2, {"deaths": 0, "fails": 1, "joins": 1, "late_s": 0.2, "beats": True, "epochs": 1}, True),
        (3, {"deaths": 1, "fails": 1, "late_s": 0.2}, True),
        (3, {"deaths": 1, "fails": 1, "groups": ((0, 1),)}, True),
        (4, {"deaths": 0, "fails": 2, "groups": ((0, 1), (2, 3))}, True),
        (2, {"deaths": 1, "fails": 0, "plans": ((1, 1), (1, 2))}, False),
        (2, {"deaths": 0, "fails": 1, "plans": ((1, 1, 1), (1, 1, 2)), "root": 0}, False),
        (2, {"deaths": 0, "stops": 1, "fails": 1, "plans": ((1, 2, 1), (1, 1, 2))}, True),
        (3, {"deaths": 1, "fails": 1, "plans": ((1, 1), (1, 1), (1, 2))}, True),
        (3, {"deaths": 0, "fails": 1, "plans": ((1, 2), (1, 2), (1, 2))}, True),
        (4, {"deaths": 0, "fails": 1, "plans": ((1, 1), (1, 2)), "groups": ((0, 1), (2, 3))}, True),
        (4, {"deaths": 1, "fails": 0, "plans": ((1, 1), (1, 2), (1, 1), (1, 1))}, True),
    ],
    parts=8,
)
@pytest.mark.thorough
def test_no_order_of_events_parts_the_ranks_or_leaves_one_waiting(
    num_ranks: int, faults: dict[str, Any], is_prompt: bool
) -> None:
    assert explore(running(num_ranks, **faults), is_prompt=is_prompt) > 100


@cases(
    "num_ranks, faults",
    [
        (4, {"deaths": 0, "stops": 1, "fails": 1}),
        (2, {"deaths": 0, "stops": 1, "fails": 1, "beats": True, "epochs": 1}),
        (2, {"deaths": 0, "stops": 1, "fails": 1, "joins": 1, "beats": True, "epochs": 1}),
        (4, {"deaths": 1, "fails": 1, "groups": ((0, 2), (1, 3))}),
        (3, {"deaths": 0, "stops": 1, "fails": 1, "plans": ((1, 1, 1), (1, 2, 1), (1, 1, 1)), "root": 0}),
    ],
)
@pytest.mark.slow
def test_nor_with_more_ranks(num_ranks: int, faults: dict[str, Any]) -> None:
    """Each fault and form of a group of these is also among the rows above, with fewer ranks or faults."""
    assert explore(running(num_ranks, **faults), is_prompt=True) > 1000


@pytest.mark.slow
def test_nor_when_two_calls_fail() -> None:
    assert explore(running(2, deaths=0, fails=2)) > 1000


@given(st.data())
@settings(max_examples=60)
@pytest.mark.thorough
def test_random_orders_with_late_messages_and_several_epochs(data: st.DataObject) -> None:
    num_ranks = data.draw(st.integers(2, 6))
    late_s = data.draw(st.sampled_from([None, 0.0, 0.2]))
    beats = data.draw(st.booleans())
    usual = data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=4))
    odd = [*usual[:-1], data.draw(st.integers(1, 2))]
    job = Job(
        num_ranks,
        deaths=2,
        stops=2,
        fails=4,
        joins=3,
        beats=beats,
        min_ranks=data.draw(st.integers(1, 2)),
        late_s=late_s,
        plans=(tuple(odd), *[tuple(usual)] * (num_ranks - 1)),
        root=data.draw(st.sampled_from([None, 0, 1])),
    )
    job.epochs = 3
    for _ in range(400):
        choices = job.choices()
        if not choices:
            job.check_end()
            return
        job.do(*data.draw(st.sampled_from(choices)))
        job.check()


def formed(num_ranks: int, *, answer_s: float = 1.0) -> Agreement:
    """An agreement whose first epoch runs."""
    hub = Agreement(range(num_ranks), answer_s=answer_s)
    for rank in range(num_ranks):
        hub.take(rank, m.Ready(epoch=0, timeout_s=5.0, min_ranks=num_ranks), 0.0)
    assert hub.phase is Phase.RUNNING
    return hub


def beat(hub: Agreement, ranks: Iterable[int], now_s: float) -> list[tuple[int, m.ToRank]]:
    """These give a sign of life."""
    return [sent for rank in ranks for sent in hub.take(rank, m.Heartbeat(), now_s)]


def decided(out: list[tuple[int, m.ToRank]]) -> m.Failed | None:
    return next((message for _, message in out if isinstance(message, m.Failed)), None)


def position(entered: int, completed: int) -> m.FrozenPosition:
    return m.FrozenPosition(epoch=1, call=CallPosition(entered=entered, completed=completed))


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
    inside = m.SubgroupPosition(group=(0, 2), call=call)
    hub.take(0, m.FrozenPosition(epoch=1, call=CallPosition(entered=4, completed=4), subgroups=(inside,)), 1.0)
    hub.take(1, position(4, 4), 1.0)
    failed = decided(hub.take(2, position(4, 4), 1.0))
    assert failed is not None
    assert [r.call for r in failed.failure.ranks] == [call, None, CallPosition()]
    assert {v.group: v.first_void for v in failed.failure.voids} == {(): 5, (0, 2): 1}
    assert failed.failure.first_void == 1


def test_a_silent_rank_is_waited_for_no_longer_than_the_limit() -> None:
    hub = formed(3)
    for rank in (0, 1, 2):
        hub.take(rank, m.Heartbeat(), 10.0)
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
    hub.take(0, m.Heartbeat(), 10.0)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
    hub.take(0, position(1, 0), 10.0)
    assert hub.wake_s() == 10.1


def test_who_comes_too_late_is_excluded_and_no_more_counted() -> None:
    hub = formed(3)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
    for rank in (0, 1):
        hub.take(rank, position(1, 0), 10.0)
    hub.tick(11.0)
    beat(hub, (0, 1), 20.0)
    hub.take(0, m.Ready(epoch=1, timeout_s=5.0, min_ranks=1), 20.0)
    out = hub.take(1, m.Ready(epoch=1, timeout_s=5.0, min_ranks=1), 20.0)
    assert (2, m.Excluded(epoch=2)) in out
    assert hub.take(2, m.Ready(epoch=1, timeout_s=5.0, min_ranks=1), 20.5) == [(2, m.Excluded(epoch=2))]
    assert (hub.members, hub.phase) == ((0, 1), Phase.RUNNING)
    assert hub.lost(2, 20.5) == []
    assert hub.phase is Phase.RUNNING


def with_one_behind(**ready: Any) -> tuple[Agreement, list[tuple[int, m.ToRank]]]:
    """Ranks 0 and 1 waited for rank 2, which lives, until the deadline, and have come; what the last `Ready` led to."""
    hub = formed(3, answer_s=100.0)
    waiting = m.FrozenPosition(epoch=1, call=CallPosition(entered=1, completed=0, waited_s=5.0))
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
    hub.take(0, waiting, 10.0)
    hub.take(1, waiting, 10.0)
    hub.take(2, position(0, 0), 10.0)
    assert hub.phase is Phase.GATHERING
    hub.take(0, m.Ready(epoch=1, timeout_s=60.0, **{"min_ranks": 1, "late_s": 0.2, **ready}), 10.0)
    return hub, hub.take(1, m.Ready(epoch=1, timeout_s=60.0, min_ranks=1, late_s=0.2), 10.0)


def test_a_rank_that_lives_and_came_too_late_is_waited_for_no_longer_than_all_agree_to() -> None:
    hub, out = with_one_behind()
    assert (out, hub.wake_s(), hub.tick(10.1)) == ([], 10.2, [])
    assert (2, m.Excluded(epoch=2)) in hub.tick(10.2)
    assert hub.members == (0, 1)


def test_two_ranks_that_differ_hear_so_before_the_third_has_come() -> None:
    """They must not begin what they call meanwhile."""
    hub = formed(3)
    hub.take(0, m.Vote(epoch=1, number=0), 1.0)
    calls = [CallArguments(operation="all_reduce", num_elements=n) for n in (4, 8, 4)]
    asks = [m.Compare(epoch=1, number=1, called=called) for called in calls]
    assert kinds(hub.take(0, asks[0], 1.0)) == {(1, "CallQuery"), (2, "CallQuery")}
    assert kinds(hub.take(1, asks[1], 1.0)) == {(0, "Differ"), (1, "Differ")}
    assert kinds(hub.take(2, asks[2], 1.0)) == {(0, "Freeze"), (1, "Freeze"), (2, "Freeze")}


NUM_MANY = 40
_PLAIN = CallArguments(operation="all_reduce", num_elements=4)
_EVEN = CallArguments(operation="all_to_all", sends=(1,), receives=(1,))
_ROWS = CallArguments(operation="all_to_all", sends=(1,) * NUM_MANY, receives=(1,) * NUM_MANY)


def num_function_calls(do: Callable[[], object]) -> int:
    """How many functions are called and generators resumed meanwhile, in Python and in C."""
    events: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        do()
    finally:
        sys.setprofile(before)
    return sum(event in {"call", "c_call"} for event in events)


@cases(("call", "is_first_odd"), [(_PLAIN, False), (_PLAIN, True), (_EVEN, False), (_EVEN, True), (_ROWS, True)])
def test_what_a_rank_says_costs_the_hub_no_more_where_many_have_spoken(call: CallArguments, is_first_odd: bool) -> None:
    hub, work = formed(NUM_MANY), []
    for rank in range(NUM_MANY - 1):
        called = replace(call, dtype="float16" if rank == 0 and is_first_odd else "float32")
        message = m.Compare(epoch=1, number=1, called=called)
        work.append(num_function_calls(partial(hub.take, rank, message, 1.0)))
    assert len({*work[2:]}) == 1, work


def test_rows_of_splits_are_compared_once_for_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, pairs = formed(NUM_MANY), []
    pair = comparing._pair

    def counted(one: Any, other: Any, places: Any) -> tuple[int, int]:
        pairs.append((one[0], other[0]))
        return pair(one, other, places)

    monkeypatch.setattr(comparing, "_pair", counted)
    for rank in range(NUM_MANY):
        out = hub.take(rank, m.Compare(epoch=1, number=1, called=_ROWS), 1.0)
    assert {type(message) for _, message in out} == {m.Fits}
    assert len({*pairs}) == NUM_MANY**2
    assert len(pairs) == NUM_MANY**2 + NUM_MANY  # a rank's own part twice


def test_each_rank_hears_once_that_calls_differ() -> None:
    hub, heard = formed(NUM_MANY), []
    for rank in range(NUM_MANY):
        out = hub.take(rank, compared(8 if rank == 2 else 4), 1.0)
        heard += [r for r, message in out if isinstance(message, m.Differ)]
    assert sorted(heard) == list(range(NUM_MANY - 1))  # the last one is frozen instead
    assert hub.phase is Phase.FREEZING


_SIZES = st.integers(1, 2)
_PARTS = st.one_of(st.tuples(_SIZES), st.tuples(_SIZES, _SIZES, _SIZES))
_EVENLY = _SIZES.map(lambda size: ((size,), (size,)))
_SPLITS = st.one_of(st.just(((), ())), _EVENLY, _EVENLY, st.tuples(_PARTS, _PARTS))
_SAID = st.one_of(
    st.none(),
    st.builds(
        lambda dtype, splits: CallArguments(operation="all_to_all", dtype=dtype, sends=splits[0], receives=splits[1]),
        st.sampled_from(["float32", "float32", "float32", "float16"]),
        _SPLITS,
    ),
)


@settings(max_examples=1000)
@given(
    st.permutations(range(3)),
    st.lists(_SAID, min_size=3, max_size=3),
    st.sampled_from([None, "float32", "float16"]),
    st.integers(0, 2),
)
@example([0, 1, 2], [_EVEN, _EVEN, replace(_EVEN, sends=(1, 2, 1))], None, 0)  # misfits only with the second
def test_calls_differ_as_soon_as_two_of_all_that_was_said_do_not_fit(
    order: list[int], said: list[CallArguments | None], expected: str | None, knows: int
) -> None:
    """One by one, in any order, as all at once."""
    call = OpenCall((0, 1, 2))
    usual = None if expected is None else CallArguments(operation="all_to_all", dtype=expected)
    for rank in order:
        message = m.Compare(epoch=1, number=1, called=said[rank], expected=usual if rank == knows else None)
        before = call.differs
        unaware = call.add(rank, message)
        known = calls_of(call.said)
        is_alike = len({called.shared for called in known.values()}) < 2
        assert call.differs is (not is_alike or bool(misfits_of(known, (0, 1, 2))))
        assert unaware == (() if not call.differs else (rank,) if before else tuple(call.said))
        assert call.add(rank, message) == ()


def here(*counts: tuple[str, int], ranks: m.Ranks = (0, 1, 2)) -> tuple[m.BegunHere, ...]:
    return tuple(m.BegunHere(group=group, ranks=ranks, count=count) for group, count in counts)


def test_parts_of_a_split_that_have_one_name_are_groups_of_their_own() -> None:
    """Rank 1 waits for rank 0 in its pair; the other pair is at work, and has begun fewer of its own operations."""
    hub = formed(4)
    pairs = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    for rank, count, is_inside in ((0, 99, False), (1, 100, True), (2, 49, False), (3, 50, False)):
        plain = m.Plain(begun=here(("1", count), ranks=pairs[rank]), still_s=6.0 if rank < 2 else 0.1)
        hub.take(1, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
        out = hub.take(rank, replace(position(4, 4), plain=replace(plain, is_inside=is_inside)), 10.0)
    failed = decided(out)
    assert failed is not None
    failure = failed.failure
    assert failure.begun == (Begun(group="1", counts={0: 99, 1: 100}), Begun(group="1", counts={2: 49, 3: 50}))
    assert [r.rank for r in late(failure)] == [0]
    missing = missed(failure)
    assert missing is not None
    assert (missing.begun, missing.number, missing.waiting) == (failure.begun[0], 100, (1,))


def test_a_rank_is_missed_in_the_last_of_many_groups_in_which_ranks_differ() -> None:
    """Of a mesh of several dimensions all ranks together have hundreds of groups; a record has room for 32 a rank."""
    hub = formed(3)
    names = [str(n) for n in range(MAX_BEGUN_PER_RANK)]
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
    for rank in range(3):
        counts = [(name, 10 + 10 * (rank == 2)) for name in names[:-1]] + [(names[-1], 50 - (rank == 2))]
        plain = m.Plain(begun=here(*counts, ("one too many", rank)), still_s=6.0, is_inside=rank != 2)
        out = hub.take(rank, replace(position(4, 4), plain=plain), 10.0)
    failed = decided(out)
    assert failed is not None
    assert [one.group for one in failed.failure.begun] == names
    assert [r.rank for r in late(failed.failure)] == [2]


def missed_plainly(still_s: float, begun: int, late_s: float | None) -> Agreement:
    """Ranks 0 and 1 were inside of a plain collective that rank 2 has not begun, until torch gave an error."""
    hub = formed(3, answer_s=100.0)
    inside = m.Plain(begun=here(("0", 7), ("1", 3)), still_s=still_s, is_inside=True)
    out_of_it = m.Plain(begun=here(("0", begun), ("2", 9)), still_s=60.0)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.BACKEND), 10.0)
    for rank, plain in enumerate((inside, inside, out_of_it)):
        hub.take(rank, replace(position(4, 4), plain=plain), 10.0)
    for rank in (0, 1):
        hub.take(rank, m.Ready(epoch=1, timeout_s=60.0, min_ranks=1, late_s=late_s), 10.0)
    return hub


@cases(
    ("still_s", "begun", "late_s", "wake_s"),
    [
        (5.0, 6, 0.2, 10.2),  # missed, and it may join again
        (5.0, 6, None, 20.0),
        (12.0, 6, None, 22.0),
        (5.0, 7, 0.2, 20.0),  # it has begun as many, so it may be inside of something that does not end
        (5.0, 7, None, 70.0),
        (0.5, 6, 0.2, 70.0),  # too soon for a deadline
    ],
)
def test_so_is_one_that_was_missed_in_a_plain_collective(
    still_s: float, begun: int, late_s: float | None, wake_s: float
) -> None:
    hub = missed_plainly(still_s, begun, late_s)
    assert hub.wake_s() == wake_s
    assert (2, m.Excluded(epoch=2)) in hub.tick(wake_s)


def test_a_rank_that_comes_in_time_after_all_is_a_member() -> None:
    hub, _ = with_one_behind()
    hub.take(2, m.Ready(epoch=1, timeout_s=60.0, min_ranks=1, late_s=0.2), 10.1)
    assert (hub.epoch, hub.members) == (2, (0, 1, 2))


def test_without_a_wish_a_late_rank_is_waited_for_as_long_once_more() -> None:
    hub, out = with_one_behind(late_s=None)
    assert (out, hub.wake_s(), hub.tick(19.9)) == ([], 20.0, [])
    assert (2, m.Excluded(epoch=2)) in hub.tick(20.0)


@cases("ready", [{"late_s": 60.0}, {"min_ranks": 3}])
def test_a_late_rank_is_waited_for_where_one_rank_wants_that_or_needs_it(ready: dict[str, Any]) -> None:
    hub, out = with_one_behind(**ready)
    assert (out, hub.wake_s(), hub.tick(69.9)) == ([], 70.0, [])
    assert hub.phase is Phase.GATHERING


def excluded(num_ranks: int) -> Agreement:
    """An agreement that went on without its last rank, in a second epoch whose group is formed."""
    hub = formed(num_ranks)
    others = range(num_ranks - 1)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
    for rank in others:
        hub.take(rank, position(1, 0), 10.0)
    hub.tick(11.0)
    beat(hub, others, 20.0)
    for rank in others:
        hub.take(rank, m.Ready(epoch=1, timeout_s=5.0, min_ranks=1, step=7), 20.0)
    for rank in others:
        hub.take(rank, m.Vote(epoch=2, number=0), 20.0)
    assert (hub.phase, hub.members) == (Phase.RUNNING, tuple(others))
    return hub


def kinds(out: list[tuple[int, m.ToRank]]) -> set[tuple[int, str]]:
    return {(rank, type(message).__name__) for rank, message in out}


def gathered(hub: Agreement, now_s: float, **more: Any) -> list[m.Formed]:
    """Once it is frozen: all members answer and are ready."""
    for rank in hub.members:
        hub.take(rank, m.FrozenPosition(epoch=hub.epoch, call=CallPosition()), now_s)
    out = []
    epoch = hub.epoch
    for rank in hub.members:
        out += hub.take(rank, m.Ready(epoch=epoch, timeout_s=5.0, min_ranks=1, step=7, **more), now_s)
    return [message for _, message in out if isinstance(message, m.Formed)]


def test_who_joins_comes_in_at_the_next_agreed_point_and_never_as_the_furthest() -> None:
    hub = excluded(3)
    assert kinds(hub.take(2, m.Join(timeout_s=60.0, step=9), 21.0)) == {(2, "JoinNoted")}
    assert hub.take(0, m.Vote(epoch=2, number=1), 21.1) == []
    out = hub.take(1, m.Vote(epoch=2, number=1), 21.1)
    assert [type(message).__name__ for rank, message in out if rank == 0] == ["Passed", "Freeze"]
    found = gathered(hub, 21.2)
    assert {(f.members, f.joined, f.steps) for f in found} == {((0, 1, 2), (2,), (7, 7, 7))}
    assert len(found) == 3


def test_without_agreed_points_the_members_are_interrupted_but_not_where_a_door_is_shut() -> None:
    hub = excluded(3)
    hub.take(2, m.Join(timeout_s=60.0), 21.0)
    assert hub.tick(21.2) == []
    assert kinds(hub.take(0, m.Door(epoch=2, is_open=False), 21.2)) == {(0, "Knock"), (1, "Knock")}
    assert hub.wake_s() == 81.0
    assert hub.tick(30.0) == []
    assert kinds(hub.take(0, m.Door(epoch=2, is_open=True), 30.0)) == {(0, "Freeze"), (1, "Freeze")}
    assert gathered(hub, 30.1, admits=False)[0].members == (0, 1)  # an evaluation goes on with whom it has
    hub.take(0, m.Vote(epoch=3, number=0), 30.2)
    assert kinds(hub.take(1, m.Vote(epoch=3, number=0), 30.2)) == {
        (0, "Passed"), (1, "Passed"), (0, "Freeze"), (1, "Freeze"),
    }  # fmt: skip


def test_who_is_not_taken_in_is_told_so_when_its_time_is_over_or_nobody_is_left() -> None:
    hub = excluded(3)
    hub.take(0, m.Door(epoch=2, is_open=False), 21.0)
    hub.take(2, m.Join(timeout_s=3.0), 21.0)
    assert hub.tick(24.0) == [(2, m.Excluded(epoch=2))]
    hub.take(2, m.Join(timeout_s=3.0), 25.0)
    hub.take(0, m.Leave(), 25.0)
    assert (2, m.Excluded(epoch=2, is_over=True)) in hub.take(1, m.Leave(), 25.0)


def test_a_job_is_over_once_its_ranks_have_ended_and_one_of_them_as_planned() -> None:
    for end, is_over in ((m.Leave(), True), (None, False)):
        hub = excluded(3)
        hub.lost(0, 21.0)
        hub.tick(22.0)
        _ = hub.take(1, end, 23.0) if end is not None else hub.lost(1, 23.0)
        assert (2, m.Excluded(epoch=2, is_over=is_over)) in hub.take(2, m.Join(timeout_s=3.0), 25.0)


def test_a_process_in_the_place_of_one_that_is_gone_may_join() -> None:
    hub = formed(3)
    hub.lost(2, 1.0)
    assert not hub.may_return(2)  # the others still count on it
    for rank in (0, 1):
        hub.take(rank, position(1, 0), 1.0)
    for rank in (0, 1):
        hub.take(rank, m.Ready(epoch=1, timeout_s=5.0, min_ranks=1), 1.0)
    assert hub.may_return(2)
    assert not hub.may_return(1)
    hub.returned(2)
    beat(hub, (0, 1), 1.5)
    hub.take(2, m.Join(timeout_s=9.0, anew=True), 2.0)
    hub.take(0, m.Vote(epoch=2, number=0), 2.0)
    hub.take(1, m.Vote(epoch=2, number=0), 2.0)
    assert kinds(hub.tick(2.3)) == {(0, "Freeze"), (1, "Freeze")}
    assert [(f.members, f.anew) for f in gathered(hub, 2.4)] == [((0, 1, 2), True)] * 3


@cases(("made_by_members", "made_by_joiner", "anew"), [(1, 1, False), (2, 1, True)])
def test_groups_that_were_not_made_together_are_made_anew(
    made_by_members: int, made_by_joiner: int, anew: bool
) -> None:
    """A rank slept while the others made theirs again, or formed the old ones again: torch's do not find each other."""
    hub = formed(3)
    hub.lost(2, 1.0)
    gathered(hub, 1.0, made=1)
    hub.returned(2)
    hub.take(2, m.Join(timeout_s=9.0, made=made_by_joiner), 2.0)
    for rank in (0, 1):
        hub.take(rank, m.Vote(epoch=2, number=0), 2.0)
    hub.tick(2.3)
    found = gathered(hub, 2.4, made=made_by_members)
    assert [(f.members, f.anew) for f in found] == [((0, 1, 2), anew)] * 3


def frozen_and_decided(num_ranks: int) -> Agreement:
    """An agreement whose members have all answered, and gather."""
    hub = formed(num_ranks)
    hub.take(0, m.Fail(epoch=1, cause=FailureCause.DEADLINE), 10.0)
    for rank in range(num_ranks):
        hub.take(rank, position(1, 0), 10.0)
    assert hub.phase is Phase.GATHERING
    return hub


READY = m.Ready(epoch=1, timeout_s=60.0, min_ranks=1)


def test_a_rank_that_stops_after_it_has_answered_is_not_waited_for() -> None:
    hub = frozen_and_decided(3)
    for rank in (0, 1):
        hub.take(rank, READY, 10.5)
    assert hub.wake_s() == 11.5  # by then those that wait have given signs of life
    assert kinds(beat(hub, (0, 1), 11.4)) == set()
    beat(hub, (0, 1), 10.0 + AWAY_S - 0.1)
    assert hub.wake_s() == 10.0 + AWAY_S
    assert (2, m.Excluded(epoch=2)) in hub.tick(10.0 + AWAY_S)
    assert hub.members == (0, 1)


def test_one_whose_script_holds_pythons_lock_before_it_comes_is_waited_for() -> None:
    """It saves its state, for example: `pickle` gives no other thread a turn."""
    hub = frozen_and_decided(3)
    for rank in (0, 1):
        hub.take(rank, READY, 10.0)
    for now_s in (10.9, 11.8, 12.7):
        assert beat(hub, (0, 1), now_s) == []
    assert kinds(hub.take(2, READY, 13.0)) == {(0, "Formed"), (1, "Formed"), (2, "Formed")}


def test_once_it_has_come_it_is_not() -> None:
    hub = frozen_and_decided(3)
    hub.take(0, READY, 10.0)
    beat(hub, (0,), 10.9)  # of the others nothing is expected before 15.0
    hub.take(2, READY, 11.0)
    beat(hub, (0,), 11.8)
    hub.tick(11.9)
    assert hub.wake_s() == 12.0
    beat(hub, (0, 1), 12.0)
    assert kinds(hub.take(1, READY, 12.1)) == {(0, "Formed"), (1, "Formed"), (2, "Excluded")}


def test_nor_is_one_that_has_come_and_stops_before_the_others() -> None:
    hub = frozen_and_decided(3)
    hub.take(2, READY, 10.0)
    hub.take(0, READY, 10.5)
    beat(hub, (0, 1), 10.9)
    beat(hub, (0, 1), 11.5)
    assert kinds(hub.take(1, READY, 11.5)) == {(0, "Formed"), (1, "Formed"), (2, "Excluded")}


@cases("message", [m.Heartbeat(), READY])
def test_it_is_where_it_speaks_in_time_or_is_needed(message: m.FromRank) -> None:
    hub = frozen_and_decided(3)
    hub.take(2, READY, 10.0)
    beat(hub, (0, 1), 11.5)
    for rank in (0, 1):
        assert hub.take(rank, replace(READY, min_ranks=3), 11.5) == []  # too few without it
    assert kinds(hub.take(2, message, 12.0)) == {(0, "Formed"), (1, "Formed"), (2, "Formed")}


def test_a_member_that_stops_while_the_group_forms_again_ends_that() -> None:
    hub = frozen_and_decided(3)
    for rank in (0, 1, 2):
        hub.take(rank, READY, 10.0)
    assert (hub.epoch, hub.phase) == (2, Phase.RUNNING)
    hub.take(0, m.Vote(epoch=2, number=0), 10.5)
    beat(hub, (0, 1), 10.9)
    assert hub.wake_s() == 11.0
    assert kinds(hub.tick(11.0)) == {(0, "Freeze"), (1, "Freeze"), (2, "Freeze")}
    for rank in (0, 1):
        hub.take(rank, m.FrozenPosition(epoch=2, call=CallPosition()), 11.0)
    failed = decided(hub.tick(11.1))
    assert failed is not None
    assert [r.state for r in failed.failure.ranks] == ["answered", "answered", "silent"]
    hub.take(0, replace(READY, epoch=2), 11.1)
    assert kinds(hub.take(1, replace(READY, epoch=2), 11.1)) == {(0, "Formed"), (1, "Formed"), (2, "Excluded")}


def test_one_that_has_joined_may_load_what_it_needs_meanwhile() -> None:
    hub = excluded(3)
    hub.take(2, m.Join(timeout_s=9.0), 21.0)
    hub.take(0, m.Fail(epoch=2, cause=FailureCause.RAISED), 21.0)
    for rank in (0, 1):
        hub.take(rank, m.FrozenPosition(epoch=2, call=CallPosition()), 21.0)
    for rank in (0, 1):
        hub.take(rank, replace(READY, epoch=2), 21.0)
    assert (hub.epoch, hub.members) == (3, (0, 1, 2))
    for now_s in (21.9, 22.8):
        assert kinds(beat(hub, (0, 1), now_s)) == set()
    beat(hub, (1,), 23.7)
    assert kinds(hub.tick(23.9)) == {(0, "Freeze"), (1, "Freeze"), (2, "Freeze")}  # rank 0 has stopped


def test_nor_may_one_that_has_joined_once_its_time_is_over() -> None:
    hub = excluded(3)
    hub.take(2, m.Join(timeout_s=1.5), 21.0)
    hub.take(0, m.Fail(epoch=2, cause=FailureCause.RAISED), 21.0)
    for rank in (0, 1):
        hub.take(rank, m.FrozenPosition(epoch=2, call=CallPosition()), 21.0)
    for rank in (0, 1):
        hub.take(rank, replace(READY, epoch=2), 21.0)
    for now_s in (21.9, 22.4):
        assert kinds(beat(hub, (0, 1), now_s)) == set()
    assert kinds(hub.tick(22.5)) == {(0, "Freeze"), (1, "Freeze"), (2, "Freeze")}


def test_at_the_first_time_one_that_stops_ends_it_once_the_start_has_taken_too_long() -> None:
    """Not before: a process that loads what it needs gives no sign of life."""
    hub = Agreement(range(2), answer_s=1.0)
    hub.take(0, m.Ready(epoch=0, timeout_s=5.0, min_ranks=2), 0.0)
    hub.take(1, m.Ready(epoch=0, timeout_s=5.0, min_ranks=2), 1.5)
    hub.take(0, m.Vote(epoch=1, number=0), 1.6)
    assert kinds(beat(hub, (0,), 4.9)) == set()
    assert hub.wake_s() == 5.0
    assert kinds(hub.tick(5.0)) == {(0, "Freeze"), (1, "Freeze")}
    failed = decided(hub.take(0, position(0, 0), 5.1))
    assert failed is not None
    assert [r.state for r in failed.failure.ranks] == ["answered", "silent"]


def test_nor_does_one_that_lives() -> None:
    hub = Agreement(range(2), answer_s=1.0)
    for rank in range(2):
        hub.take(rank, m.Ready(epoch=0, timeout_s=5.0, min_ranks=2), 0.0)
    for number in range(20):
        assert kinds(beat(hub, (0, 1), 0.5 * number)) == set()


def test_once_the_group_is_formed_a_rank_may_be_silent_until_another_one_waits_for_it() -> None:
    hub = Agreement(range(2), answer_s=1.0)
    for rank in (0, 1):
        hub.take(rank, m.Ready(epoch=0, timeout_s=5.0, min_ranks=2), 0.0)
    for rank in (0, 1):
        hub.take(rank, m.Vote(epoch=1, number=0), 0.0)
    beat(hub, (0,), 15.0)
    assert (hub.phase, hub.wake_s()) == (Phase.RUNNING, None)
    hub = frozen_and_decided(2)
    for rank in (0, 1):
        hub.take(rank, READY, 10.0)
    for rank in (0, 1):
        hub.take(rank, m.Vote(epoch=2, number=0), 10.0)
    beat(hub, (0,), 15.0)
    assert (hub.phase, hub.wake_s()) == (Phase.RUNNING, None)


def test_a_group_that_is_too_small_is_refused_at_once() -> None:
    """For lack of the rank that is gone, and not of the one that comes a moment later."""
    hub = formed(3)
    hub.lost(1, 1.0)
    for rank in (0, 2):
        hub.take(rank, position(1, 0), 1.0)
    for rank in (0, 2):
        [(asked, refused)] = hub.take(rank, m.Ready(epoch=1, timeout_s=50.0, min_ranks=3), 1.0)
        assert isinstance(refused, m.Refused)
        assert (asked, refused.missing, refused.min_ranks) == (rank, (1,), 3)
        assert [r.state for r in refused.failure.ranks] == ["answered", "died", "answered"]


def test_who_is_missing_at_the_end_of_the_time_is_told_by_what_is_known_of_it() -> None:
    """Rank 1 gives signs of life, rank 2 has stopped to, rank 3 never came."""
    hub = Agreement(range(4), answer_s=1.0)
    for rank in (0, 1, 2):
        hub.take(rank, m.Heartbeat(), 1.0)
    hub.take(0, m.Ready(epoch=0, timeout_s=5.0, min_ranks=4), 1.0)
    beat(hub, (0, 1), 5.9)
    [(_, refused)] = hub.tick(6.0)
    assert isinstance(refused, m.Refused)
    assert [r.state for r in refused.failure.ranks] == ["answered", "away", "silent", "absent"]


def compared(size: int | None, number: int = 1, **more: Any) -> m.Compare:
    called = None if size is None else CallArguments(operation="all_reduce", num_elements=size)
    return m.Compare(epoch=1, number=number, called=called, **more)


def test_calls_that_fit_begin_when_all_have_said_so_and_never_before_an_earlier_one() -> None:
    hub = formed(3)
    assert kinds(hub.take(0, compared(4), 1.0)) == {(1, "CallQuery"), (2, "CallQuery")}
    hub.take(0, compared(8, 2), 1.0)
    hub.take(1, compared(4), 1.0)
    hub.take(1, compared(8, 2), 1.0)
    assert hub.take(2, compared(8, 2), 1.0) == []  # its answer to the first question is still on its way
    out = hub.take(2, compared(4), 1.0)
    assert [(rank, message.number) for rank, message in out if isinstance(message, m.Fits)] == [
        (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2),
    ]  # fmt: skip


def test_calls_that_do_not_fit_are_one_failure_that_says_who_called_what() -> None:
    hub = formed(3)
    usual = CallArguments(operation="all_reduce", num_elements=4)
    hub.take(0, compared(8, expected=usual), 1.0)
    hub.take(1, compared(4), 1.0)
    assert kinds(hub.take(2, compared(None), 1.0)) == {(0, "Freeze"), (1, "Freeze"), (2, "Freeze")}
    for rank in (0, 1):
        hub.take(rank, position(1, 0), 1.0)
    failed = decided(hub.take(2, position(2, 1), 1.0))
    assert failed is not None
    failure = failed.failure
    assert (failure.cause, failure.number, failure.first_void) == (FailureCause.ARGUMENTS, 1, 1)
    assert [r.called and r.called.num_elements for r in failure.ranks] == [8, 4, 4]  # the last one has gone on since


def test_splits_fit_in_pairs() -> None:
    def splits(sends: tuple[int, ...], receives: tuple[int, ...]) -> m.Compare:
        called = CallArguments(operation="all_to_all", sends=sends, receives=receives)
        return m.Compare(epoch=1, number=1, called=called)

    hub = formed(2)
    hub.take(0, splits((1, 2), (1, 5)), 1.0)
    assert {type(message) for _, message in hub.take(1, splits((5, 0), (2, 0)), 1.0)} == {m.Fits}
    hub = formed(2)
    hub.take(0, splits((1, 2), (1, 5)), 1.0)
    hub.take(1, splits((4,), (2, 4)), 1.0)
    hub.take(0, position(1, 0), 1.0)
    failed = decided(hub.take(1, position(1, 0), 1.0))
    assert failed is not None
    assert failed.failure.misfits == (Misfit(sender=1, receiver=0, num_sent=4, num_expected=5),)


@given(st.integers(20, 40), st.sampled_from(["", "sends", "receives"]), st.sets(st.tuples(*[st.integers(0, 39)] * 2)))
def test_the_splits_that_are_shown_prove_no_more_than_all_of_them(
    size: int, all_of_5: str, wrong: set[tuple[int, int]]
) -> None:
    """Who has a part in all of them, and whether it sends in any: mostly one rank, with all, and some others."""
    row = range(size)
    pairs = {(s % size, r % size) for s, r in wrong} | {(7, 5)}
    pairs |= {(5, r) if all_of_5 == "sends" else (r, 5) for r in row if all_of_5 and r != 5}
    calls = {
        rank: CallArguments(
            operation="all_to_all", sends=tuple(4 + ((rank, r) in pairs) for r in row), receives=tuple(4 for _ in row)
        )
        for rank in row
    }
    shown = {(x.sender, x.receiver) for x in misfits_of(calls, tuple(row))}
    assert shown <= pairs
    assert len(shown) <= MAX_MISFITS
    common = frozenset.intersection(*map(frozenset, pairs))
    assert frozenset.intersection(*map(frozenset, shown)) == common
    for rank in common:
        assert any(s == rank for s, _ in shown) is any(s == rank for s, _ in pairs)


def test_who_leaves_before_it_has_said_what_it_calls_is_waited_for_no_more() -> None:
    hub = formed(2)
    hub.take(0, compared(4), 1.0)
    assert kinds(hub.take(1, m.Leave(), 1.0)) == {(0, "Freeze")}
    hub = formed(2)
    hub.take(1, m.Leave(), 1.0)
    assert kinds(hub.take(0, compared(4), 1.0)) == {(0, "Freeze")}
