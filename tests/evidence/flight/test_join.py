"""All ranks together: positions, who waits for whom, where ranks differ.  Truth of recordings: their truth.json."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from allready.evidence.flight.reader import read_dump
from allready.evidence.reading import FlightDump
from allready.model.fill import in_english
from tests.cases import cases
from tests.evidence.flight.dialect import torch_pickle
from tests.evidence.flight.make import BEGIN_NS, dump, entry, joined, joined_recording, loaded, recorded
from tests.judging.joined import joined_dumps

pytestmark = pytest.mark.thorough

LOOP = [("nccl:all_reduce", 1 << 20, 33), ("nccl:_all_gather_base", 1 << 18, 34)]


def ops(
    number: int,
    *,
    pending: int = 0,
    extra: Mapping[int, tuple[str, int, int]] | None = None,
    skip: Sequence[int] = (),
    **more: Any,
) -> list[dict[str, Any]]:
    """`number` operations of a loop of two, the last `pending` not completed; extra or left-out ones shift it."""
    calls: list[tuple[str, int, int]] = []
    for i in range(1, number + 1):
        if extra and i in extra:
            calls.append(extra[i])
        if i not in skip:
            calls.append(LOOP[(i - 1) % 2])
    return [
        entry(seq, name, size=size, line=line, state="scheduled" if seq > len(calls) - pending else "completed", **more)
        for seq, (name, size, line) in enumerate(calls, 1)
    ]


# -- recordings


@cases(
    ("scenario", "roots"),
    [("dataloader_stall", (2,)), ("sigstop", (1,)), ("sigkill", (2, 3)), ("exception", (2, 3)), ("link_down", (2, 3)),
     ("v2_lock", (3,)), ("eval_branch", ())],
)  # fmt: skip
def test_recorded_hangs_lead_to_who_is_missing(scenario: str, roots: tuple[int, ...]) -> None:
    # Where both ranks of a node left no dump, dumps alone cannot tell which of them it was.
    found = joined_recording(scenario)
    assert found.roots == roots
    assert found.cycle == ()
    assert found.notes == ()


def test_a_rank_that_did_not_enter_is_behind_and_not_stuck() -> None:
    found = joined_recording("dataloader_stall")
    (group,) = found.progress
    assert {r: (p.enqueued, p.completed) for r, p in group.positions.items()} == {
        0: (65, 63),
        1: (65, 63),
        2: (63, 63),
        3: (65, 63),
    }
    assert group.positions[2].stuck is None
    stuck = group.positions[0].stuck
    assert stuck is not None
    assert (stuck.seq, stuck.name, stuck.num_elements, stuck.state) == (64, "all_reduce", 1 << 20, "scheduled")
    assert stuck.timeout_s == 12.0
    assert found.waits == [(0, "0", (2,)), (1, "0", (2,)), (3, "0", (2,))]
    assert group.positions[0].counts == {"all_gather": 31, "all_reduce": 34}


def test_a_missing_dump_is_told_as_such() -> None:
    (group,) = joined_recording("sigstop").progress
    assert (group.members, group.absent) == ((0, 1, 2, 3), {1: "no dump"})


def test_the_chain_through_groups_ends_at_the_rank_that_waits_for_nobody() -> None:
    found = joined_recording("v2_lock")
    assert {g.group: (g.label, g.members) for g in found.progress} == {
        "0": ("default_pg", (0, 1, 2, 3)),
        "1": ("TP", (0, 1)),
        "2": ("TP", (2, 3)),
        "3": ("DP", (0, 2)),
        "4": ("DP", (1, 3)),
    }
    assert found.waits == [(0, "3", (2,)), (1, "4", (3,)), (2, "2", (3,))]
    assert found.mismatches == []


def test_the_watchdogs_late_count_does_not_hide_what_was_completed() -> None:
    (group,) = joined_recording("sigkill").progress  # rank 0's status says 6
    assert group.positions[0].completed == 63


def test_a_recorded_extra_operation_is_a_shift() -> None:
    (found,) = joined_recording("eval_branch").mismatches
    assert (found.group, found.seq, found.kind, found.odd, found.shift) == ("0", 64, "size", (0,), 1)
    assert found.by_rank[0].num_elements == 4
    assert found.by_rank[1].num_elements == 1 << 20


@cases("scenario", ["dataloader_stall", "exception", "link_down", "sigkill", "sigstop", "v2_lock"])
def test_recordings_without_a_mismatch_have_none_and_nobody_is_slow(scenario: str) -> None:
    found = joined_recording(scenario)
    assert found.mismatches == []
    assert all(max(lag.last_share.values()) < 0.5 for lag in found.lags)


def test_a_recorded_dump_that_is_cut_still_tells_how_far_its_rank_came() -> None:
    files = recorded("dataloader_stall")
    files["fr_0"] = files["fr_0"][:3000]
    found = joined_dumps([d for n, data in files.items() for d in read_dump(data, n, name_hint=n).dumps])
    (group,) = found.progress
    assert group.positions[0].enqueued == 65
    assert group.positions[0].stuck is None
    assert found.roots == (2,)


def test_a_dump_that_is_cut_before_its_status_tells_nothing() -> None:
    files = recorded("dataloader_stall")
    files["fr_0"] = files["fr_0"][:200]
    found = joined_dumps([d for n, data in files.items() for d in read_dump(data, n, name_hint=n).dumps])
    assert found.progress[0].absent == {0: "truncated dump"}


# -- who waits for whom


def test_nobody_waits_in_a_run_without_anything_pending() -> None:
    found = joined({r: dump(ops(20)) for r in range(4)})
    assert (found.waits, found.roots, found.cycle, found.mismatches) == ([], (), (), [])


def test_a_hang_with_all_ranks_inside_has_no_root() -> None:
    found = joined({r: dump(ops(20, pending=1)) for r in range(4)})
    assert (found.waits, found.roots) == ([], ())
    assert all(p.stuck is not None for p in found.progress[0].positions.values())


def test_a_known_straggler_is_named_before_a_rank_without_a_dump() -> None:
    found = joined({0: dump(ops(20, pending=1)), 1: dump(ops(20, pending=1)), 2: dump(ops(19))})
    assert (found.roots, found.snapshot.unseen) == ((2, 3), (3,))
    assert found.progress[0].absent == {3: "no dump"}


def test_a_rank_that_never_used_a_group_is_at_its_beginning() -> None:
    groups = {("0", "default_pg"): (0, 1), ("1", "EP"): (0, 1)}
    inside = [*ops(4), entry(1, group=("1", "EP"), state="scheduled")]
    only_world = {("0", "default_pg"): (0, 1)}
    found = joined({0: dump(inside, groups=groups), 1: dump(ops(4), groups=only_world)})
    assert found.roots == (1,)
    assert found.progress[1].positions[1].enqueued == 0


def test_a_ring_that_was_overwritten_does_not_prove_that_a_group_was_never_used() -> None:
    groups = {("0", "default_pg"): (0, 1), ("1", "EP"): (0, 1)}
    inside = [*ops(4), entry(1, group=("1", "EP"), state="scheduled")]
    overwritten = dump(ops(4), groups={("0", "default_pg"): (0, 1)})
    for e in overwritten["entries"]:
        e["record_id"] += 5000
    found = joined({0: dump(inside, groups=groups), 1: overwritten})
    assert found.progress[1].absent == {1: "no entry in its dump"}


def test_groups_taken_in_different_order_make_a_circle() -> None:
    groups = {("0", "default_pg"): (0, 1, 2), ("1", "A"): (0, 1), ("2", "B"): (1, 2), ("3", "C"): (0, 2)}

    def stuck_in(name: str, label: str, *mine: tuple[str, str]) -> dict[str, Any]:
        own = {k: v for k, v in groups.items() if k in mine or k[0] == "0"}
        done = [entry(1, group=g) for g in mine]
        return dump([*done, entry(2, group=(name, label), state="scheduled", at_s=1)], groups=own)

    found = joined(
        {
            0: stuck_in("1", "A", ("1", "A"), ("3", "C")),
            1: stuck_in("2", "B", ("1", "A"), ("2", "B")),
            2: stuck_in("3", "C", ("2", "B"), ("3", "C")),
        }
    )
    assert found.roots == ()
    assert found.cycle == (0, 1, 2)


def test_the_same_name_with_other_members_is_another_group() -> None:
    found = joined(
        {
            0: dump(ops(5, group=("1", "TP")), groups={("1", "TP"): (0, 1)}),
            1: dump(ops(5, group=("1", "TP")), groups={("1", "TP"): (0, 1)}),
            2: dump(ops(9, group=("1", "TP")), groups={("1", "TP"): (2, 3)}),
            3: dump(ops(8, group=("1", "TP")), groups={("1", "TP"): (2, 3)}),
        }
    )
    assert [(g.group, g.members) for g in found.progress] == [("1 [0,1]", (0, 1)), ("1 [2,3]", (2, 3))]


def test_two_dumps_of_a_rank_count_once_and_that_is_said() -> None:
    old, new = loaded(dump(ops(5)), "fr_0"), loaded(dump(ops(9)), "fr_0")
    old.origin = type(old.origin)(source="old/fr_0", rank=0)
    for order in itertools.permutations([old, new]):
        found = joined_dumps([*order, loaded(dump(ops(9)), "fr_1")])
        assert found.progress[0].positions[0].enqueued == 9
        assert tuple(map(in_english, found.notes)) == (
            "old/fr_0: an older dump of rank 0, not compared with the others",
        )


def test_a_dump_of_an_earlier_run_is_not_compared() -> None:
    times = ("time_created_ns", "time_discovered_completed_ns")
    stale = dump([{**e, **{t: e[t] - 86_400 * 10**9 for t in times}} for e in ops(5)])
    late = dump(ops(100, pending=1))
    found = joined({0: late, 1: late, 2: stale, 3: late})
    assert found.progress[0].absent == {2: "no dump"}
    assert "another run" in in_english(found.notes[0])


def test_a_dump_of_no_known_rank_is_left_out_and_that_is_said() -> None:
    found = joined_dumps([loaded(dump(ops(5)), "fr_0"), loaded(dump(ops(5)), "dump.pkl")])
    assert set(found.progress[0].positions) == {0}
    assert "belongs to no known rank" in in_english(found.notes[0])


def test_a_dump_of_active_operations_only_is_completed_by_its_status() -> None:
    status = {"0": {"last_enqueued_collective": 19, "last_started_collective": -1, "last_completed_collective": 19}}
    waiting = dump(ops(20, pending=1)[-1:], pg_status=status)
    waiting["entries"][0]["record_id"] = 19
    found = joined({0: waiting, 1: waiting, 2: dump([], pg_status=status), 3: waiting})
    assert found.roots == (2,)


def test_an_operation_given_up_by_the_watchdog_is_marked() -> None:
    late = ops(20, pending=1)
    late[-1]["retired"] = True
    found = joined({0: dump(late), 1: dump(ops(20, pending=1)), 2: dump(ops(19)), 3: dump(ops(19))})
    assert [p.error for p in found.progress[0].positions.values()] == ["timed out", None, None, None]


# -- where ranks differ


def test_other_arguments_in_the_same_call_are_no_shift() -> None:
    other = ops(12)
    other[6] |= {"input_sizes": [[1 << 19]], "output_sizes": [[1 << 19]]}
    found = joined({r: dump(other if r == 3 else ops(12)) for r in range(4)})
    (mismatch,) = found.mismatches
    assert (mismatch.seq, mismatch.kind, mismatch.odd, mismatch.shift) == (7, "size", (3,), None)


def test_another_dtype_is_told_as_dtype() -> None:
    other = ops(12)
    other[4] |= {"input_dtypes": ["BFloat16"], "output_dtypes": ["BFloat16"]}
    (mismatch,) = joined({r: dump(other if r == 1 else ops(12)) for r in range(4)}).mismatches
    assert (mismatch.kind, mismatch.odd) == ("dtype", (1,))
    assert {o.dtype for o in mismatch.by_rank.values()} == {"float32", "bfloat16"}


@cases(
    ("line", "dtype", "size", "following", "is_same_call"),
    [
        (99, "Int", 1024, 3, True),  # a branch of its own: the same call with another type
        (99, "Int", 1024, 0, True),
        (99, "Float", 4, 3, True),  # all agree again behind it
        (99, "Float", 4, 0, False),  # it hangs there: a call more of another size looks like this, too
        (34, "Int", 1024, 0, False),  # the others make this call as well, at another time
    ],
)
def test_other_arguments_at_a_line_of_its_own_are_the_same_call(
    line: int, dtype: str, size: int, following: int, is_same_call: bool
) -> None:
    def calls(*, odd: bool) -> list[dict[str, Any]]:
        entries = [entry(seq, line=34 if seq % 2 else 33) for seq in range(1, 13 + following)]
        entries[11] = entry(12, line=line, dtype=dtype, size=size, state="scheduled") if odd else entries[11]
        return entries

    (mismatch,) = joined({r: dump(calls(odd=r == 3)) for r in range(4)}).mismatches
    assert (mismatch.seq, mismatch.odd, mismatch.shift) == (12, (3,), None)
    assert mismatch.is_same_call is is_same_call


@cases(("following", "is_same_call"), [(1, True), (0, False)])
def test_of_two_ranks_none_is_odd_and_the_call_may_still_be_the_same(following: int, is_same_call: bool) -> None:
    def calls(rank: int) -> dict[str, Any]:
        other = [entry(12, line=90 + rank, size=1024 // (1 + rank), state="scheduled")]
        return dump([*map(entry, range(1, 12)), *other, *map(entry, range(13, 13 + following))], members=(0, 1))

    (mismatch,) = joined({r: calls(r) for r in range(2)}).mismatches
    assert (mismatch.seq, mismatch.kind, mismatch.odd) == (12, "size", ())
    assert mismatch.is_same_call is is_same_call


@cases("group", [("0", "default_pg"), ("1", "TP")])
@cases("caller", [0, 1, 2, 3, None])
def test_a_line_is_a_ranks_own_where_no_rank_calls_it_in_any_group(group: tuple[str, str], caller: int | None) -> None:
    def calls(rank: int) -> list[dict[str, Any]]:
        mine = [entry(seq) for seq in range(1, 12)]
        mine.append(entry(12, line=99, dtype="Int", state="scheduled") if rank == 3 else entry(12, state="scheduled"))
        other = entry(1, group=group) if group[0] == "1" else mine.pop(4)
        mine.insert(4, {**other, **({"frames": entry(1, line=99)["frames"]} if rank == caller else {})})
        return mine

    groups = {("0", "default_pg"): (0, 1, 2, 3), ("1", "TP"): (0, 1, 2, 3)}
    found = joined({r: dump(calls(r), groups=groups) for r in range(4)}).mismatches
    (mismatch,) = [m for m in found if m.label == "default_pg"]
    assert (mismatch.seq, mismatch.kind, mismatch.odd) == (12, "dtype", (3,))
    assert mismatch.is_same_call is (caller in {3, None})


def test_two_ranks_that_are_odd_alike_share_their_own_line() -> None:
    def calls(*, odd: bool) -> list[dict[str, Any]]:
        last = entry(12, line=99, dtype="Int", state="scheduled") if odd else entry(12, state="scheduled")
        return [*(entry(seq) for seq in range(1, 12)), last]

    members = tuple(range(5))
    (mismatch,) = joined({r: dump(calls(odd=r in {1, 3}), members=members) for r in members}).mismatches
    assert (mismatch.odd, mismatch.is_same_call) == ((1, 3), True)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_operations_more_are_counted(number: int) -> None:
    extra = [entry(0, "nccl:broadcast", size=4, line=90) for _ in range(number)]
    odd = [*ops(10), *extra, *ops(20)[10:]]
    odd = [{**e, "collective_seq_id": i} for i, e in enumerate(odd, 1)]
    (mismatch,) = joined({r: dump(odd if r == 2 else ops(20)) for r in range(4)}).mismatches
    assert (mismatch.seq, mismatch.kind, mismatch.odd, mismatch.shift) == (11, "name", (2,), number)


def test_an_operation_less_is_negative() -> None:
    odd = [{**e, "collective_seq_id": i} for i, e in enumerate(ops(20, skip=[11]), 1)]
    found = joined({r: dump(odd if r == 2 else ops(20)) for r in range(4)})
    (mismatch,) = found.mismatches
    assert (mismatch.seq, mismatch.odd, mismatch.shift) == (11, (2,), -1)


def test_on_a_tie_they_are_odd_who_broke_the_loop_with_another_call_of_it() -> None:
    odd = [{**e, "collective_seq_id": i} for i, e in enumerate(ops(20, skip=[11]), 1)]
    for many in ((0,), (0, 1), (1,), (1, 3)):
        ranks = range(2 * len(many))
        found = joined({r: dump(odd if r in many else ops(20), members=ranks) for r in ranks})
        (mismatch,) = found.mismatches
        assert (mismatch.odd, mismatch.shift, mismatch.out_of_turn) == (many, -1, many)


def test_the_first_call_out_of_turn_tells_it_before_any_other_can_follow() -> None:
    odd = [{**e, "collective_seq_id": i} for i, e in enumerate(ops(20, skip=[11]), 1)]
    found = joined({0: dump(ops(20)[:11], members=range(2)), 1: dump(odd[:11], members=range(2))})
    (mismatch,) = found.mismatches
    assert (mismatch.seq, mismatch.odd, mismatch.out_of_turn) == (11, (1,), (1,))


@cases("seen", ["new", "once"])
def test_on_a_tie_nobody_is_odd_for_a_call_that_is_none_of_the_loop(seen: str) -> None:
    """The other may have missed an evaluation that comes now and then."""
    plain, odd = ops(20), ops(20)
    odd[14] = plain[14] | {"profiling_name": "nccl:barrier", "input_sizes": [], "output_sizes": []}
    if seen == "once":
        plain[9] = odd[9] = odd[14] | {"collective_seq_id": 10}
    found = joined({0: dump(plain, members=range(2)), 1: dump(odd, members=range(2))})
    (mismatch,) = found.mismatches
    assert (mismatch.seq, mismatch.odd, mismatch.out_of_turn) == (15, (), ())


def test_only_ranks_that_still_have_the_operation_are_compared() -> None:
    odd = ops(40)
    odd[9] |= {"input_sizes": [[7]]}
    overwritten = ops(40)[20:]
    ranks = (0, 1, 2, 3, 4)
    rings = {0: odd, 1: ops(40), 2: overwritten, 3: ops(40), 4: ops(40)}
    (mismatch,) = joined({r: dump(rings[r], members=ranks) for r in ranks}).mismatches
    assert (mismatch.seq, mismatch.odd, set(mismatch.by_rank)) == (10, (0,), {0, 1, 3, 4})
    found = joined({0: dump(odd), 1: dump(ops(40)), 2: dump(overwritten), 3: dump(ops(40))})
    assert found.mismatches[0].odd == ()  # two of four: the one that forgot it may have done what rank 0 did
    found = joined({0: dump(odd), 1: dump(overwritten), 2: dump(overwritten), 3: dump(overwritten)})
    assert found.mismatches == []


def test_who_did_not_come_so_far_is_listed() -> None:
    odd = ops(20)
    odd[9] |= {"input_sizes": [[7]]}
    found = joined({0: dump(odd), 1: dump(ops(20)), 2: dump(ops(20)), 3: dump(ops(5))})
    assert found.mismatches[0].missing == (3,)


def test_shapes_may_differ_when_the_numbers_of_elements_agree() -> None:
    found = joined({r: dump([entry(1, size=[[4, 6]] if r else [[24]])]) for r in range(4)})
    assert found.mismatches == []


def test_roots_of_gather_and_scatter_have_sizes_of_their_own() -> None:
    def made(rank: int) -> dict[str, Any]:
        root = rank == 1
        return dump(
            [
                entry(1, "nccl:gather", size=8, out=[[8]] * 4 if root else []),
                entry(2, "nccl:scatter", size=[[8]] * 4 if root else [], out=8),
                entry(3, "nccl:_broadcast_oop", size=8 if root else 9, out=8),
                entry(4, "nccl:_reduce_oop", size=8, out=8 if root else 0),
            ]
        )

    assert joined({r: made(r) for r in range(4)}).mismatches == []


@pytest.mark.parametrize("name", ["nccl:_reduce_scatter_base", "nccl:_all_gather_base"])
def test_inputs_of_gathering_and_scattering_reductions_must_agree(name: str) -> None:
    found = joined({r: dump([entry(1, name, size=64 if r == 2 else 128, out=32)]) for r in range(4)})
    assert (found.mismatches[0].kind, found.mismatches[0].odd) == ("size", (2,))


def test_uneven_exchanges_are_legal_when_their_sums_agree() -> None:
    parts = [(10, 4), (4, 6), (8, 8), (2, 6)]
    made = {r: dump([entry(1, "nccl:all_to_all", size=i, out=o)]) for r, (i, o) in enumerate(parts)}
    assert joined(made).mismatches == []
    made[3] = dump([entry(1, "nccl:all_to_all", size=3, out=6)])
    (mismatch,) = joined(made).mismatches
    assert (mismatch.kind, mismatch.odd, len(mismatch.by_rank)) == ("size", (), 4)
    del made[0]  # not all members' sizes are known
    assert joined(made).mismatches == []


def test_exchanges_of_old_formats_are_not_judged() -> None:
    parts = [(10, 4), (4, 6), (8, 8), (3, 6)]
    made = {r: dump([entry(1, "nccl:all_to_all", size=i, out=o)], version="2.3") for r, (i, o) in enumerate(parts)}
    assert joined(made).mismatches == []


def test_a_shift_that_fits_in_size_is_seen_by_its_call_sites() -> None:
    lines = [10, 20, 30]
    usual = [entry(i, line=lines[i % 3]) for i in range(1, 31)]
    more = [*usual[:12], entry(0, line=99), *usual[12:]]
    odd = [
        entry(i, line=e["frames"][1]["line"], state="scheduled" if i == 31 else "completed")
        for i, e in enumerate(more, 1)
    ]
    (mismatch,) = joined({r: dump(odd if r == 0 else usual) for r in range(4)}).mismatches
    assert (mismatch.seq, mismatch.odd, mismatch.shift) == (13, (0,), 1)


def test_ranks_may_have_call_sites_of_their_own() -> None:
    usual = [entry(i, line=20) for i in range(1, 31)]
    main = [entry(i, line=10 if i % 10 == 0 else 20) for i in range(1, 31)]
    late = [*usual[:-1], {**usual[-1], "state": "scheduled"}]
    found = joined({0: dump(main), 1: dump(late), 2: dump(usual), 3: dump(usual[:-1])})
    assert found.mismatches == []


def test_sizes_that_never_repeat_are_compared_all_the_same() -> None:
    def made(rank: int) -> dict[str, Any]:
        return dump([entry(i, size=i if (rank, i) != (2, 700) else 1) for i in range(1, 1500)])

    (mismatch,) = joined({r: made(r) for r in range(4)}).mismatches
    assert (mismatch.seq, mismatch.odd) == (700, (2,))


def test_coalesced_operations_are_one_and_end_with_their_last_entry() -> None:
    def made(*sizes: int, done: bool) -> dict[str, Any]:
        parts = [entry(1, "nccl:_all_gather_base", size=s, state="scheduled", op_id=i) for i, s in enumerate(sizes)]
        end = entry(1, "nccl:coalesced", size=[], state="completed" if done else "scheduled")
        return dump([*parts, end, entry(2, state="completed" if done else "scheduled")])

    found = joined({r: made(8, 16, done=True) for r in range(4)})
    assert found.mismatches == []
    assert all(p.stuck is None and p.completed == 2 for p in found.progress[0].positions.values())
    found = joined({r: made(8, 16, done=False) for r in range(4)})
    stuck = found.progress[0].positions[0].stuck
    assert stuck is not None
    assert (stuck.seq, stuck.name, stuck.num_elements, stuck.sizes) == (1, "all_gather", 24, ((8,), (16,)))
    found = joined({r: made(*((8, 16) if r else (16, 8)), done=True) for r in range(4)})
    assert (found.mismatches[0].seq, found.mismatches[0].odd) == (1, (0,))


# -- sends and receives


def test_a_receive_without_its_send_waits_for_the_sender() -> None:
    found = joined(
        {
            0: dump([entry(i, "nccl:send 0->1") for i in (1, 2)]),
            1: dump([*(entry(i, "nccl:recv 1<-0") for i in (1, 2)), entry(3, "nccl:recv 1<-0", state="scheduled")]),
        }
    )
    (pair,) = found.progress
    assert (pair.group, pair.members) == ("0 send 0->1", (0, 1))
    assert {r: (p.enqueued, p.completed) for r, p in pair.positions.items()} == {0: (2, 2), 1: (3, 2)}
    assert (found.waits, found.roots) == ([(1, "0 send 0->1", (0,))], (0,))


def test_a_pipeline_leads_to_the_stage_that_stopped() -> None:
    def stage(rank: int, *, done: int, waits_for: int | None) -> dict[str, Any]:
        entries = []
        for i in range(1, done + 1):
            entries += [entry(i, f"nccl:recv {rank}<-{rank - 1}")] if rank else []
            entries += [entry(i, f"nccl:send {rank}->{rank + 1}")] if rank < 3 else []
        if waits_for is not None:
            entries.append(entry(done + 1, f"nccl:recv {rank}<-{waits_for}", state="started"))
        return dump(entries)

    found = joined(
        {
            0: stage(0, done=5, waits_for=None),
            1: stage(1, done=5, waits_for=0),
            2: stage(2, done=5, waits_for=1),
            3: stage(3, done=5, waits_for=2),
        }
    )
    assert found.roots == (0,)


def test_rings_that_were_overwritten_are_compared_by_what_is_pending() -> None:
    sender = dump([entry(i, "nccl:send 0->1") for i in range(101, 110)])
    receiver = dump(
        [*(entry(i, "nccl:recv 1<-0") for i in range(95, 110)), entry(110, "nccl:recv 1<-0", state="scheduled")]
    )
    for made in (sender, receiver):
        for e in made["entries"]:
            e["record_id"] += 700
    assert joined({0: sender, 1: receiver}).roots == (0,)


def test_both_ends_inside_wait_for_nobody() -> None:
    found = joined(
        {
            0: dump([entry(1, "nccl:send 0->1", state="scheduled")]),
            1: dump([entry(1, "nccl:recv 1<-0", state="scheduled")]),
        }
    )
    assert (found.waits, found.roots) == ([], ())


def test_a_circle_of_sends_is_a_circle() -> None:
    found = joined(
        {r: dump([entry(1, f"nccl:send {r}->{(r + 1) % 3}", state="scheduled")], members=range(3)) for r in range(3)}
    )
    assert found.cycle == (0, 1, 2)
    assert found.roots == ()


def test_a_send_of_another_size_is_a_mismatch() -> None:
    sender = [entry(1, "nccl:send 0->1", size=8), entry(2, "nccl:send 0->1", size=16)]
    receiver = [entry(i, "nccl:recv 1<-0", size=[], out=8) for i in (1, 2)]
    found = joined({0: dump(sender), 1: dump(receiver)})
    (mismatch,) = found.mismatches
    assert (mismatch.kind, mismatch.seq, mismatch.odd) == ("size", 2, ())
    assert {r: (o.name, o.num_elements, o.root) for r, o in mismatch.by_rank.items()} == {
        0: ("send", 16, 1),
        1: ("recv", 8, 0),
    }


def test_batches_of_sends_and_receives_end_with_their_last_entry() -> None:
    def batch(number: int, *, left: int, rank: int, right: int, done: bool, is_p2p: bool) -> list[dict[str, Any]]:
        end = entry(
            0, "nccl:coalesced", size=[], p2p_seq_id=number, is_p2p=is_p2p, state="completed" if done else "scheduled"
        )
        return [
            entry(number, f"nccl:send {rank}->{right}", state="scheduled"),
            entry(number, f"nccl:recv {rank}<-{left}", state="scheduled"),
            end,
        ]

    for is_p2p in (True, False):  # older versions called the end a collective

        def ring(rank: int, *done: bool, is_p2p: bool = is_p2p) -> dict[str, Any]:
            around = {"left": (rank - 1) % 3, "rank": rank, "right": (rank + 1) % 3}
            return dump(
                [e for i, d in enumerate(done, 1) for e in batch(i, done=d, is_p2p=is_p2p, **around)], members=range(3)
            )

        assert joined({r: ring(r, True, True) for r in range(3)}).progress == []
        found = joined({0: ring(0, True, False), 1: ring(1, True), 2: ring(2, True, False)})
        assert found.roots == (1,)


def test_numbers_of_old_formats_are_not_compared_where_sends_take_some() -> None:
    def made(rank: int) -> dict[str, Any]:
        first = [entry(1, "nccl:send 0->1")] if rank == 0 else []
        entries = [*first, entry(2 if first else 1), entry(3 if first else 2, "nccl:broadcast")]
        for e in entries:
            e["seq_id"] = max(e.pop("collective_seq_id"), e.pop("p2p_seq_id"))
        return dump(entries, version="1.2")

    assert joined({r: made(r) for r in range(4)}).mismatches == []


# -- groups that tell no members


def gloo(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """As Gloo records: no times, no states, no members."""
    blank = [
        {
            **e,
            "profiling_name": e["profiling_name"].replace("nccl", "gloo"),
            "state": "scheduled",
            "time_discovered_completed_ns": None,
            "retired": e["state"] == "completed",
        }
        for e in entries
    ]
    return dump(blank, comm_lib_version="") | {"pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}}


def test_gloo_is_followed_by_what_was_retired() -> None:
    found = joined({r: gloo(ops(20, pending=1) if r != 2 else ops(19)) for r in range(4)})
    (group,) = found.progress
    assert {r: (p.enqueued, p.completed) for r, p in group.positions.items()} == {
        0: (20, 19),
        1: (20, 19),
        2: (19, 19),
        3: (20, 19),
    }
    assert found.roots == (2,)


def test_gloo_retires_what_failed_and_is_not_believed() -> None:
    found = joined({r: gloo(ops(20 if r != 2 else 19)) for r in range(4)})
    stuck = found.progress[0].positions[0].stuck
    assert stuck is not None
    assert (stuck.seq, stuck.state) == (20, "scheduled")
    assert found.roots == (2,)


@cases(("after_s", "reaches"), [(0.012, 60), (0.5, 11), (-1.0, 11), (None, 11)])
def test_a_ring_that_was_read_while_its_rank_went_on_does_not_say_where_that_came_to_stand(
    after_s: float | None, reaches: int
) -> None:
    """The last ring of a rank that was killed, up to eight seconds old; one that was read while it stood tells more."""
    old = gloo(ops(11))
    if after_s is not None:
        old["taken_ns"] = BEGIN_NS + round((0.11 + after_s) * 1e9)
    (group,) = joined({0: gloo(ops(60)), 1: old, 2: gloo(ops(60))}).progress
    assert {group.positions[rank].completed for rank in (0, 2)} == {reaches}
    assert group.absent == ({1: "outdated dump"} if reaches == 60 else {})


def test_the_size_of_a_gloo_group_follows_from_its_gathers() -> None:
    made = {
        r: gloo([entry(1, "gloo:all_gather", size=8, out=[[4, 8]]), entry(2, state="scheduled")]) for r in (0, 1, 3)
    }
    (group,) = joined(made).progress
    assert (group.size, group.members, group.absent) == (4, (0, 1, 2, 3), {2: "no dump"})


def test_a_gap_between_ranks_of_the_world_is_a_missing_dump() -> None:
    (group,) = joined({r: gloo(ops(3, pending=1)[2:]) for r in (0, 3)}).progress
    assert (group.size, group.members) == (0, ())
    assert group.absent == {1: "no dump", 2: "no dump"}


def test_a_number_in_a_name_that_is_no_rank_makes_no_million_missing_ranks() -> None:
    (group,) = joined({9_999_999: gloo(ops(3, pending=1)[2:])}).progress
    assert group.absent == {}


def test_a_dump_without_members_joins_the_group_that_others_describe() -> None:
    silent = dump(ops(19))
    del silent["pg_config"]
    found = joined({0: dump(ops(20, pending=1)), 1: dump(ops(20, pending=1)), 2: silent, 3: dump(ops(20, pending=1))})
    assert len(found.progress) == 1
    assert found.roots == (2,)


def test_many_ranks_with_rings_that_begin_anywhere_are_compared_quickly() -> None:
    template = ops(300, pending=10)
    dumps: list[FlightDump] = []
    for rank in range(120):
        made = dump(template[rank:] if rank != 77 else template[:290], members=range(120))
        dumps += read_dump(torch_pickle(made), f"fr_{rank}", name_hint=f"fr_{rank}").dumps
    found = joined_dumps(dumps)
    assert found.mismatches == []
    assert found.progress[0].positions[77].enqueued == 290


def test_a_dump_from_before_an_operation_that_others_completed_shows_no_rank_behind() -> None:
    dumps = {0: dump(ops(40, pending=2)), 1: dump(ops(40, pending=2)), 2: dump(ops(30)), 3: dump(ops(38))}
    (group,) = joined(dumps).progress
    assert group.absent == {2: "outdated dump"}
    assert sorted(group.positions) == [0, 1, 3]
    assert joined(dumps).roots == (2, 3)


def test_a_broadcast_that_others_completed_does_not_make_a_dump_outdated() -> None:
    def broadcasts(number: int, pending: int = 0) -> list[dict[str, Any]]:
        made = ops(number, pending=pending)
        return [*made[:20], *({**e, "profiling_name": "nccl:broadcast"} for e in made[20:])]

    ahead = {r: dump(broadcasts(40, 2)) for r in (0, 1, 3)}
    found = joined({**ahead, 2: dump(broadcasts(30))})
    assert 2 in found.progress[0].positions
    assert found.roots == (2,)


@cases(("backend", "nodes", "is_told"), [
    ("nccl2", {0: 0, 1: 0}, True),
    ("nccl2", {0: 0, 1: 1}, False),  # its recorder notes ends when it is called again: no measure of the clocks
    ("nccl2", {}, False),
])  # fmt: skip
def test_ranks_of_one_node_have_one_clock(backend: str, nodes: dict[int, int], is_told: bool) -> None:
    """Rank 1 comes 0.2 s late to each; both note the end when they call the next one."""

    def calls(rank: int) -> dict[str, Any]:
        starts = [0.3 * seq + 0.2 * rank for seq in range(1, 41)]
        entries = [
            entry(seq, f"{backend}:all_reduce", at_s=starts[seq - 1], done_s=starts[seq - 1] + 0.3)
            for seq in range(1, 41)
        ]
        return dump(entries, members=(0, 1))

    lags = joined({r: calls(r) for r in range(2)}, nodes).lags
    assert [max(lag.last_share, key=lambda r: lag.last_share[r]) for lag in lags] == ([1] if is_told else [])
