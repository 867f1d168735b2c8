"""The judge's memory of operations: lateness, rhythm, and what differs between ranks."""

import random
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import structs

from allready.live.digests import with_root
from allready.live.monitor.pace import PaceBook
from allready.model import GroupMark, NodeStatus, PaceSample, RankStatus
from tests.cases import cases

BEGIN = 1_000.0
PERIOD = 0.1
SAME = 77


def word(
    node: int,
    created: Mapping[int, Sequence[float]],
    *,
    first: int = 10,
    digests: Mapping[int, Sequence[int]] | None = None,
    members: tuple[int, ...] = (0, 1, 2, 3),
    group: str = "0",
    generation: int = 0,
    **changes: Any,
) -> NodeStatus:
    """What one node tells: `created` by rank, numbered from `first` on."""
    known: dict[str, Any] = {
        "node_rank": node,
        "time_s": max(times[-1] for times in created.values()),
        "ranks": tuple(
            RankStatus(rank=r, groups=(GroupMark(group=group, label="default_pg", members=members),)) for r in created
        ),
        "pace": tuple(
            PaceSample(
                rank=r,
                group=group,
                generation=generation,
                seqs=tuple(range(first, first + len(times))),
                created_s=tuple(times),
                digests=tuple((digests or {}).get(r, (SAME,) * len(times))),
                size_bytes=(64,) * len(times),
            )
            for r, times in created.items()
        ),
    }
    return NodeStatus(**(known | changes))


def times(late_s: float = 0.0, num: int = 40, begin: float = BEGIN, period: float = PERIOD) -> list[float]:
    return [begin + period * i + late_s for i in range(num)]


def book(*words: NodeStatus) -> PaceBook:
    made = PaceBook()
    for one in words:
        made.add(one)
    return made


def nodes(late: Mapping[int, float], **changes: Any) -> list[NodeStatus]:
    """One rank per node, each late by so much in every operation."""
    return [word(r, {r: times(s)}, **changes) for r, s in late.items()]


def test_tells_who_is_late_by_how_much_and_for_what_share_of_the_time() -> None:
    [lag] = book(*nodes({0: 0.0, 1: 0.001, 2: 0.04, 3: 0.0})).lags()
    assert lag.median_late_s[2] == pytest.approx(0.04)
    assert lag.waited_share[2] == pytest.approx(0.4, abs=0.03)
    assert (lag.last_share[2], lag.waited_share[0]) == (1.0, 0.0)
    assert lag.median_period_s == pytest.approx(PERIOD, rel=0.1)
    assert lag.num_waits == {0: 0, 1: 0, 2: lag.num_operations, 3: 0}


def test_what_a_rank_did_as_another_process_is_forgotten() -> None:
    """The others' groups of that time are over, or count their operations anew: none of it can be compared."""

    def told(pid: int, digest: int, **changes: Any) -> NodeStatus:
        marks = (GroupMark(group="0", label="default_pg", members=(0, 1)),)
        first = word(0, {0: times()}, digests={0: (digest,) * 40}, **changes)
        return structs.replace(first, ranks=(RankStatus(rank=0, pid=pid, groups=marks),))

    other = word(1, {1: times()}, members=(0, 1))
    assert len(book(told(7, 99), other).mismatches()) == 1
    assert book(told(7, 99), other, told(8, SAME, group="2")).mismatches() == ()


def test_two_long_waits_are_left_out_and_six_are_not() -> None:
    def stalls(num: int) -> list[float]:
        return [t + (0.09 if i in {5 * k + 3 for k in range(num)} else 0.0) for i, t in enumerate(times())]

    for num, is_counted in ((2, False), (6, True)):
        words = [word(r, {r: stalls(num) if r == 1 else times()}) for r in range(4)]
        [lag] = book(*words).lags()
        assert (lag.waited_share[1] > 0.05) is is_counted


def test_operations_that_overlap_in_time_count_once() -> None:
    """Five buckets are launched at once; a rank that is late by half a turn is late in all five."""
    bursts = [BEGIN + PERIOD * (i // 5) + 0.001 * (i % 5) for i in range(60)]
    words = [word(r, {r: [t + (0.05 if r == 3 else 0.0) for t in bursts]}) for r in range(4)]
    [lag] = book(*words).lags()
    assert 0.4 < lag.waited_share[3] < 0.6


def paced(works_s: Mapping[int, float], *, beside: bool, num: int = 60) -> dict[int, list[float]]:
    """When ranks enter operations that run beside their computation, or that they wait for, each with uneven work."""
    chance = random.Random(3)
    entered = {r: [BEGIN] for r in works_s}
    entered[max(works_s)] = [BEGIN + 0.07]  # came later to the first one
    for _ in range(1, num):
        complete = max(times[-1] for times in entered.values())
        for rank, times in entered.items():
            works_s_now = works_s[rank] * chance.uniform(0.9, 1.1)
            times.append(max(times[-1] + works_s_now, complete) if beside else complete + works_s_now)
    return entered


@cases(
    ("works_s", "beside", "waits"),
    [
        ({0: 0.1, 1: 0.1, 2: 0.1}, True, False),  # stays behind by 70 ms, and none waits
        ({0: 0.1, 1: 0.1, 2: 0.17}, True, True),
        ({0: 0.1, 1: 0.1, 2: 0.17}, False, True),
        ({0: 0.002, 1: 0.002, 2: 0.1}, False, True),
    ],
)
def test_who_only_stays_behind_is_not_waited_for(works_s: Mapping[int, float], beside: bool, waits: bool) -> None:
    entered = paced(works_s, beside=beside)
    [lag] = book(*(word(r, {r: times}, members=(0, 1, 2)) for r, times in entered.items())).lags()
    assert lag.waited_share[2] > 0.2
    assert (2 not in lag.runs_behind) is waits


@cases("seed", [1, 2, 3, 4, 5, 6])
def test_a_steady_slow_rank_is_waited_for_from_the_first_operations_on(seed: int) -> None:
    """What all wait for, the network, varies more than the work of any."""
    chance = random.Random(seed)
    entered: dict[int, list[float]] = {0: [BEGIN], 1: [BEGIN], 2: [BEGIN]}
    for _ in range(12):
        complete = max(times[-1] for times in entered.values()) + 0.02 + chance.uniform(0, 0.005)
        for rank, times in entered.items():
            times.append(complete + (0.2 if rank == 2 else 0.1) * chance.uniform(0.9999, 1.0001))
    [lag] = book(*(word(r, {r: times}, members=(0, 1, 2)) for r, times in entered.items())).lags()
    assert lag.waited_share[2] > 0.2
    assert lag.runs_behind == frozenset()


def test_a_known_offset_of_a_clock_is_taken_out() -> None:
    skewed = word(2, {2: times(5.0)}, clock_offset_s=5.0, clock_uncertainty_s=0.001)
    [lag] = book(*nodes({0: 0.0, 1: 0.0, 3: 0.0}), skewed).lags()
    assert lag.median_late_s[2] == pytest.approx(0.0, abs=0.003)
    assert lag.noise_s >= 0.001


def test_lateness_that_cannot_be_is_a_wrong_clock_and_not_told() -> None:
    assert book(*nodes({0: 0.0, 1: 0.0, 2: 5.0, 3: 0.0})).lags() == ()


def test_a_clock_that_was_set_makes_the_older_times_useless() -> None:
    made = book(*nodes({0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}))
    made.add(word(2, {2: times(5.0, begin=BEGIN + 4.0, num=5)}, first=50, clock_offset_s=5.0))
    assert made.lags() == ()
    for r in (0, 1, 3):
        made.add(word(r, {r: times(begin=BEGIN + 4.0)}, first=50))
    made.add(word(2, {2: times(5.0, begin=BEGIN + 4.5, num=35)}, first=55, clock_offset_s=5.0))
    [lag] = made.lags()
    assert lag.median_late_s[2] == pytest.approx(0.0, abs=0.001)


def test_nothing_is_told_before_all_members_told_enough() -> None:
    assert book(*nodes({0: 0.0, 1: 0.04, 2: 0.0})).lags() == ()
    assert book(*(word(r, {r: times(num=9)}) for r in range(4))).lags() == ()


def test_operations_that_a_rank_missed_to_tell_are_left_out() -> None:
    holes = word(1, {1: times(num=15)})
    rest = word(1, {1: times(begin=BEGIN + 2.5, num=15)}, first=35)
    [lag] = book(*nodes({0: 0.0, 2: 0.0, 3: 0.0}), holes, rest).lags()
    assert (lag.num_operations, lag.waited_share[1]) == (30, 0.0)


def test_only_the_last_seconds_are_asked() -> None:
    words = [word(r, {r: [*times(0.05 if r == 1 else 0.0, 100), *times(begin=BEGIN + 10, num=80)]}) for r in range(4)]
    [lag] = book(*words).lags(recent_s=6.0)
    assert lag.waited_share[1] == 0.0


def test_another_attempt_begins_a_new_book_and_the_past_is_not_heard() -> None:
    made = book(*nodes({0: 0.0, 1: 0.04, 2: 0.0, 3: 0.0}))
    made.add(word(0, {0: times()}, attempt=1))
    assert made.lags() == ()
    made.add(word(1, {1: times()}, attempt=0))
    assert made.rhythms()["0"].longest_gap_s == pytest.approx(PERIOD)


def test_rhythm_tells_usual_and_longest_gaps() -> None:
    gap = [*times(num=20), *times(begin=BEGIN + 6.0, num=20)]
    [rhythm] = book(word(0, {0: gap}, members=())).rhythms().values()
    assert rhythm.longest_gap_s == pytest.approx(4.1)


def test_names_the_odd_rank_at_the_first_operation_that_differs() -> None:
    odd = [SAME] * 7 + [99, 98] + [SAME] * 31
    words = [word(r, {r: times()}, digests={r: odd} if r == 2 else None) for r in range(4)]
    [found] = book(*words).mismatches()
    assert (found.seq, found.odd, found.missing, found.group) == (17, (2,), (), "0")
    assert {o.size_bytes for o in found.by_rank.values()} == {64}


def test_a_digest_tells_another_operation_from_other_arguments() -> None:
    usual, call, other = ((place << 24) + n for place, n in ((2, 5), (1, 5), (2, 6)))
    for odd, kind, names in ((call, "name", {"all_reduce", "all_gather"}), (other, "dtype", {"all_reduce"})):
        words = [word(r, {r: times()}, digests={r: [odd if r == 2 else usual] * 40}) for r in range(4)]
        [found] = book(*words).mismatches()
        assert (found.kind, {o.name for o in found.by_rank.values()}, found.is_by_digest) == (kind, names, True)


def test_blames_nobody_on_a_tie_or_before_a_majority_is_known() -> None:
    odd = [99] * 40
    tie = [word(r, {r: times()}, digests={r: odd} if r > 1 else None) for r in range(4)]
    assert [m.odd for m in book(*tie).mismatches()] == [()]
    [early] = book(*tie[1:3]).mismatches()
    assert (early.odd, early.missing) == ((), (0, 3))


def test_operations_of_unknown_parts_are_not_compared() -> None:
    words = [word(r, {r: times()}, digests={r: [0] * 40} if r == 2 else None) for r in range(4)]
    assert book(*words).mismatches() == ()


def test_what_was_found_stays_when_the_window_moves_on() -> None:
    words = [word(r, {r: times()}, digests={r: [99] * 40} if r == 2 else None) for r in range(4)]
    made = book(*words)
    [found] = made.mismatches()
    for r in range(4):
        made.add(word(r, {r: times(begin=BEGIN + 100)}, first=900))
    assert made.mismatches() == (found,)


def test_two_recorders_that_share_a_group_are_not_taken_for_one() -> None:
    """A group with a backend for CPUs and one for GPUs: each counts its own operations."""
    seqs = tuple(n for i in range(20) for n in (100 + i, i))
    digests = [tuple(range(1 + r, 41 + r)) for r in range(2)]
    samples = [
        NodeStatus(
            node_rank=r,
            time_s=BEGIN + 4,
            ranks=(RankStatus(rank=r, groups=(GroupMark(group="0", members=(0, 1)),)),),
            pace=(PaceSample(rank=r, group="0", seqs=seqs, created_s=tuple(times()), digests=digests[r]),),
        )
        for r in range(2)
    ]
    made = book(*samples)
    assert (made.lags(), made.mismatches()) == ((), ())


def test_a_group_that_is_made_again_begins_anew() -> None:
    made = book(*nodes({0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}))
    for r in range(4):
        made.add(word(r, {r: times(begin=BEGIN + 20)}, first=1, digests={r: [55] * 40}, generation=1))
    assert made.mismatches() == ()
    [lag] = made.lags()
    assert lag.num_operations == 40


def test_operations_before_and_after_a_group_was_formed_again_are_not_compared() -> None:
    """Rings are read at different moments: one rank tells of the new group while another still tells of the old one."""
    made = book(*nodes(dict.fromkeys(range(4), 0.0), digests=None))
    made.add(word(0, {0: times(begin=BEGIN + 20, num=90)}, first=1, digests={0: [55] * 90}, generation=1))
    for r in (1, 2, 3):
        made.add(word(r, {r: times(begin=BEGIN + 4, num=20)}, first=50))  # the last of the old one
    assert made.mismatches() == ()
    for r in (1, 2, 3):
        late = [66 if r == 2 else 55] * 90
        made.add(word(r, {r: times(begin=BEGIN + 20, num=90)}, first=1, digests={r: late}, generation=1))
    [found] = made.mismatches()
    assert (found.odd, found.seq) == ((2,), 1)


def test_numbers_that_begin_again_in_no_new_generation_are_of_another_recorder() -> None:
    made = book(*nodes(dict.fromkeys(range(4), 0.0)))
    for r in range(4):
        made.add(word(r, {r: times(begin=BEGIN + 20)}, first=1, digests={r: [55 + r] * 40}))
    assert (made.lags(), made.mismatches()) == ((), ())


def test_garbage_does_no_harm() -> None:
    bad = PaceSample(rank=0, group="0", seqs=(5, 5, 3, 9), created_s=(1.0,), digests=(-1, 2**80), size_bytes=(-5,))
    stranger = PaceSample(rank=9, group="0", seqs=(1,), created_s=(1.0,), digests=(3,))
    made = book(NodeStatus(node_rank=0, time_s=BEGIN, ranks=(RankStatus(rank=0),), pace=(bad, stranger)))
    assert (made.lags(), made.mismatches(), made.rhythms()) == ((), (), {})


@pytest.mark.thorough
def test_memory_is_bounded_however_long_it_runs() -> None:
    made = PaceBook()
    tracemalloc.start()
    for turn in range(60):
        begin, first = BEGIN + 2 * turn, 300 * turn
        made.add(word(0, {r: times(num=300, begin=begin, period=1 / 150) for r in range(8)}, first=first))
        if turn == 20:
            settled, _ = tracemalloc.get_traced_memory()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 1.2 * settled + 100_000


def rooted(roots: Mapping[int, Sequence[int | None]]) -> list[NodeStatus]:
    """One rank per node; the operations name these roots."""
    return [
        word(r, {r: times(num=len(named))}, digests={r: [with_root(SAME, root) for root in named]})
        for r, named in roots.items()
    ]


def test_who_names_another_root_than_most_is_odd() -> None:
    usual = [0] * 40
    roots = dict.fromkeys(range(4), usual) | {2: [*usual[:30], 3, *usual[31:]]}
    [found] = book(*rooted(roots)).mismatches()
    assert (found.seq, found.odd, found.missing) == (40, (2,), ())
    assert {r: o.root for r, o in found.by_rank.items()} == {0: 0, 1: 0, 2: 3, 3: 0}


def test_a_root_that_is_not_known_differs_from_none() -> None:
    usual: list[int | None] = [0] * 40
    unknown: dict[int, Sequence[int | None]] = {0: usual, 1: usual, 2: [None] * 40, 3: usual}
    assert book(*rooted(unknown)).mismatches() == ()
    other = [*usual[:30], 1, *usual[31:]]
    late: dict[int, Sequence[int | None]] = {2: [None] * 40, 0: usual, 1: usual, 3: other}  # 2 is the first to tell
    [found] = book(*rooted(late)).mismatches()
    assert (found.seq, found.odd, found.missing) == (40, (), (2,))
    assert {r: o.root for r, o in found.by_rank.items()} == {0: 0, 1: 0, 3: 1}


def test_another_call_is_told_as_such_whatever_its_root() -> None:
    words = rooted({r: [0] * 40 for r in range(3)})
    other = word(3, {3: times()}, digests={3: [with_root(SAME, 0)] * 30 + [with_root(5, 1)] + [with_root(SAME, 0)] * 9})
    [found] = book(*words, other).mismatches()
    assert (found.odd, found.kind) == ((3,), "dtype")
    calls = {r: o.redop for r, o in found.by_rank.items()}
    assert calls == {r: f"digest {5 if r == 3 else SAME:08x}" for r in range(4)}


def test_roots_that_take_turns_leave_the_rhythm() -> None:
    turning = {r: [i % 4 for i in range(40)] for r in range(4)}
    made = book(*rooted(turning))
    assert made.mismatches() == ()
    [lag] = made.lags()
    assert lag.median_period_s == pytest.approx(PERIOD, rel=0.1)
    assert made.rhythms()["0"].period_s == pytest.approx(PERIOD, rel=0.1)
