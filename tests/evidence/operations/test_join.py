"""Communicators joined over processes, operations counted and compared."""

from msgspec.structs import replace

from allready.evidence.operations import join_operations
from allready.evidence.reading import OpStream
from allready.judging.mismatch import evidence_of
from allready.model import CommRecord, GroupProgress, ProcessRecord
from tests.cases import cases
from tests.evidence.operations.streams import AG, AR, SMALL, process, recorded, shape, stream, whole, whole_job
from tests.judging.joined import Joined, joined_operations


def enqueued(group: GroupProgress) -> dict[int, int]:
    return {r: p.enqueued for r, p in group.positions.items()}


def join(name: str) -> Joined:
    return joined_operations(*recorded(name))


def test_the_recorded_400_iterations_are_counted_on_every_rank() -> None:
    found = join("many_iters_coll")
    (group,) = found.progress
    assert group.members == (0, 1, 2, 3)
    assert group.complete
    # 400 of the loop, 40 of every tenth iteration, and the barrier before the end.
    assert all(dict(p.counts) == {"all_reduce": 440 + 1, "all_gather": 400} for p in group.positions.values())
    assert found.mismatches == ()


def test_the_recorded_smaller_tensor_is_found_with_its_rank() -> None:
    found = join("size_mismatch")
    (mismatch,) = found.mismatches
    assert (mismatch.kind, mismatch.odd, mismatch.shift, mismatch.seq) == ("size", (3,), None, 64)
    assert mismatch.by_rank[3].num_elements == 524288
    assert mismatch.by_rank[0].num_elements == 1048576
    assert mismatch.by_rank[0].size_bytes == 4 << 20
    assert mismatch.missing == ()


def test_the_recorded_extra_operation_is_a_shift_of_one_rank() -> None:
    (mismatch,) = join("eval_branch").mismatches
    assert (mismatch.odd, mismatch.shift, mismatch.seq) == ((0,), 1, 64)


def test_the_recorded_rank_that_is_behind_is_no_mismatch() -> None:
    found = join("dataloader_stall")
    assert found.mismatches == ()
    (group,) = found.progress
    assert enqueued(group) == {0: 65, 1: 65, 2: 63, 3: 65}
    assert not group.complete
    assert group.positions[2].last is not None
    assert group.positions[2].last.name == "all_reduce"


def test_recorded_splits_are_joined_by_parent_count_and_colour_in_global_ranks() -> None:
    found = join("v2_lock")
    assert [g.members for g in found.progress] == [(0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3)]
    assert [enqueued(g) for g in found.progress[1:]] == [{0: 26, 1: 26}, {2: 26, 3: 25}, {0: 26, 2: 25}, {1: 26, 3: 25}]
    assert found.mismatches == ()
    assert all(g.complete for g in join("v2_ok").progress)


def test_a_rank_without_a_log_is_absent() -> None:
    streams, processes = whole_job([[AR] * 3] * 4)
    found = joined_operations(streams[:3], processes[:3])
    assert found.progress[0].absent == {3: "no log"}


def test_a_process_that_logs_no_operations_at_all_is_unknown_but_one_that_logs_others_made_none() -> None:
    other = CommRecord(comm="0x2", rank=0, nranks=2, comm_id="0xd", init_completed=True)
    streams, processes = whole_job([[AR] * 3] * 4)
    processes[2] = process(2, whole(2), other)
    found = joined_operations([streams[0], streams[1], stream([AG], 2, comm="0x2")], processes)
    group = found.progress[0]
    assert group.absent == {3: "no line"}
    assert group.positions[2].enqueued == 0


def test_communicators_of_which_none_is_the_whole_job_accuse_nobody() -> None:
    streams, processes = [], []
    for rank in range(4):
        comm = CommRecord(comm="0x1", rank=rank % 2, nranks=2, comm_id=f"0x{rank // 2}", init_completed=True)
        streams.append(stream([AR] * (5 + rank), rank, nranks=2))
        processes.append(process(rank, comm))
    found = joined_operations(streams, processes)
    assert found.progress == ()
    named = [replace(p, rank=r) for r, p in enumerate(processes)]
    assert [g.members for g in joined_operations(streams, named).progress] == [(0, 1), (2, 3)]


def test_old_logs_without_a_communicator_id_are_joined_by_the_order_of_creation() -> None:
    streams, processes = [], []
    for rank in range(2):
        comms = [CommRecord(comm=f"0x{i}", rank=rank, nranks=2, init_completed=True) for i in (1, 2)]
        processes.append(process(rank, *comms))
        streams += [stream([AR] * 3, rank, comm="0x1"), stream([AG] * (4 + rank), rank, comm="0x2")]
    found = joined_operations(streams, processes)
    assert [enqueued(g) for g in found.progress] == [{0: 3, 1: 3}, {0: 4, 1: 5}]


def test_logs_without_init_lines_are_joined_where_ranks_are_known_otherwise() -> None:
    streams = [stream([AR] * (3 + r), r, nranks=2) for r in range(2)]
    known = [ProcessRecord(host="host", pid=100 + r, rank=r) for r in range(2)]
    (group,) = joined_operations(streams, known).progress
    assert enqueued(group) == {0: 3, 1: 4}
    unknown = joined_operations(streams, [])
    assert unknown.progress == ()


def test_two_copies_of_one_log_count_once() -> None:
    streams, processes = whole_job([[AR] * 3, [AR] * 3])
    copy = stream([AR] * 2, 0, nranks=2)
    copy.origin = replace(copy.origin, source="copy.log")
    (group,) = joined_operations([copy, *streams], processes).progress
    assert enqueued(group) == {0: 3, 1: 3}


def test_hosts_with_equal_names_and_pids_are_told_apart_by_file() -> None:
    streams = [stream([AR] * (3 + r), r, nranks=2) for r in range(2)]
    processes = [process(r, whole(r, nranks=2)) for r in range(2)]
    for item in streams:
        item.origin = replace(item.origin, pid=100)
    processes = [replace(p, pid=100) for p in processes]
    (group,) = joined_operations(streams, processes).progress
    assert enqueued(group) == {0: 3, 1: 4}


def test_a_pointer_that_was_used_twice_is_joined_only_with_the_same_history() -> None:
    first = CommRecord(comm="0x1", rank=0, nranks=2, comm_id="0xa", destroyed=True)
    second = replace(first, comm_id="0xb", destroyed=False)
    streams = [stream([AR] * 4, r, nranks=2) for r in range(2)]
    processes = [process(r, replace(first, rank=r), replace(second, rank=r)) for r in range(2)]
    (group,) = joined_operations(streams, processes).progress
    assert group.group == "0xa then 0xb"
    assert enqueued(group) == {0: 4, 1: 4}


def test_a_rank_that_was_cut_off_is_missing_where_the_others_part() -> None:
    usual = [AR, AG, AR, AG]
    streams, processes = whole_job([usual, usual, [AR, AG, SMALL, AG], [AR], usual])
    (mismatch,) = joined_operations(streams, processes).mismatches
    assert (mismatch.odd, mismatch.missing, mismatch.seq) == ((2,), (3,), 3)
    assert set(mismatch.by_rank) == {0, 1, 2, 4}


def test_a_rank_that_was_cut_off_may_have_agreed_with_the_odd_one() -> None:
    streams, processes = whole_job([[AR, AG, AR, AG], [AR, AG, AR, AG], [AR, AG, SMALL, AG], [AR]])
    (mismatch,) = joined_operations(streams, processes).mismatches
    assert (mismatch.odd, mismatch.missing, mismatch.seq) == ((), (3,), 3)


def test_blames_nobody_on_a_tie() -> None:
    streams, processes = whole_job([[AR], [AR], [SMALL], [SMALL]])
    (mismatch,) = joined_operations(streams, processes).mismatches
    assert mismatch.odd == ()


@cases(
    ("kind", "other"),
    [
        ("name", shape("all_gather")), ("size", shape("all_reduce", 5)),
        ("dtype", shape("all_reduce", dtype="bfloat16")),
        ("root", shape("all_reduce", root=1)), ("redop", shape("all_reduce", redop="max")),
    ],
)  # fmt: skip
def test_what_differs_is_named(kind: str, other: object) -> None:
    streams, processes = whole_job([[AG, AR], [AG, AR], [AG, other]])  # type: ignore[list-item]
    (mismatch,) = joined_operations(streams, processes).mismatches
    assert (mismatch.kind, mismatch.seq, mismatch.odd) == (kind, 2, (2,))


LOOP = [AR, AG] * 300


@cases(
    ("odd", "shift"),
    [
        ([*LOOP[:100], SMALL, *LOOP[100:]], 1),
        ([*LOOP[:100], SMALL, SMALL, AG, *LOOP[100:]], 3),
        ([*LOOP[:100], *LOOP[101:]], -1),
        ([*LOOP[:100], SMALL, *LOOP[101:]], None),
        ([*LOOP[:100], *([SMALL, AG] * 250)], None),
    ],
    ids=["one more", "three more", "one less", "other arguments once", "other arguments from there on"],
)
def test_a_shift_is_told_from_other_arguments(odd: list[object], shift: int | None) -> None:
    streams, processes = whole_job([LOOP, LOOP, odd])  # type: ignore[list-item]
    (mismatch,) = joined_operations(streams, processes).mismatches
    assert (mismatch.shift, mismatch.odd, mismatch.seq) == (shift, (2,), 101)


def test_equal_operations_in_a_row_are_a_shift_only_if_the_totals_say_so() -> None:
    same = [AR] * 50
    longer = [*same[:10], SMALL, *same[10:]]
    instead = [*same[:10], SMALL, *same[11:]]
    (more,) = joined_operations(*whole_job([same, same, longer], destroyed=True)).mismatches
    (other,) = joined_operations(*whole_job([same, same, instead], destroyed=True)).mismatches
    (unknown,) = joined_operations(*whole_job([same, same, longer])).mismatches
    assert (more.shift, other.shift, unknown.shift) == (1, None, None)


def test_long_streams_in_blocks_of_any_size_are_compared_to_the_last_operation() -> None:
    operations = [AR, AG, SMALL] * 7000
    odd = [*operations[:-1], AR]
    streams = [stream(operations, 0, block=65_536), stream(operations, 1, block=999), stream(odd, 2, block=4096)]
    processes = [process(r, whole(r, nranks=3)) for r in range(3)]
    (mismatch,) = joined_operations(streams, processes).mismatches
    assert (mismatch.seq, mismatch.odd) == (21_000, (2,))


def test_shapes_without_arguments_are_compared_by_name_only() -> None:
    blurred = shape("all_reduce", -1, dtype="", redop="", root=-1)
    assert joined_operations(*whole_job([[AR, SMALL], [AR, blurred]])).mismatches == ()
    (mismatch,) = joined_operations(*whole_job([[AR, SMALL], [blurred, AG]])).mismatches
    assert mismatch.kind == "name"


def send(peer: int, count: int = 8) -> object:
    return shape("send", count, root=peer)


def recv(peer: int, count: int = 8) -> object:
    return shape("recv", count, root=peer)


def test_sends_and_receives_are_matched_by_pair_and_not_by_position() -> None:
    pipeline = [[send(1)] * 5, [recv(0), send(2)] * 5, [recv(1)] * 5]
    found = joined_operations(*whole_job(pipeline))  # type: ignore[arg-type]
    assert found.mismatches == ()
    assert found.progress == ()


def test_a_send_of_another_size_than_its_receive_is_found() -> None:
    sequences = [[AR, send(1), send(1, 9), AR], [AR, recv(0), recv(0, 7), AR]]
    found = joined_operations(*whole_job(sequences))  # type: ignore[arg-type]
    (mismatch,) = found.mismatches
    assert (mismatch.kind, mismatch.seq, mismatch.missing) == ("size", 2, ())
    assert {r: o.num_elements for r, o in mismatch.by_rank.items()} == {0: 9, 1: 7}
    assert enqueued(found.progress[0]) == {0: 2, 1: 2}
    assert found.progress[0].positions[0].counts["send"] == 2


def test_parts_of_an_exchange_that_do_not_fit_are_one_mismatch_of_its_splits() -> None:
    """Only in all_to_all ranks send to themselves."""
    sequences = [[send(0, 5), recv(0, 5), send(1, 5), recv(1, 3)], [send(0, 5), recv(0, 5), send(1, 3), recv(1, 4)]]
    (mismatch,) = joined_operations(*whole_job(sequences)).mismatches  # type: ignore[arg-type]
    assert mismatch.kind == "splits"
    assert [(m.sender, m.receiver, m.num_sent, m.num_expected) for m in mismatch.misfits] == [
        (1, 0, 5, 3),
        (1, 1, 3, 4),
    ]
    assert {r: (o.name, o.root) for r, o in mismatch.by_rank.items()} == {
        0: ("all_to_all", None),
        1: ("all_to_all", None),
    }


def test_a_receive_that_is_not_there_is_missing() -> None:
    found = joined_operations(*whole_job([[send(1)] * 3, [recv(0)] * 2]))  # type: ignore[list-item]
    (mismatch,) = found.mismatches
    assert (mismatch.kind, mismatch.seq, mismatch.missing) == ("peer", 3, (1,))


def test_peers_without_a_log_are_not_accused() -> None:
    streams, processes = whole_job([[send(1)] * 3, [recv(0)] * 2])  # type: ignore[list-item]
    assert joined_operations(streams[:1], processes[:1]).mismatches == ()


def test_the_iteration_of_a_mismatch_comes_from_its_rank_s_markers() -> None:
    marks = {i: 2 * i for i in range(50)}
    loop = [AR, AG] * 50
    streams = [
        stream(loop, 0, marks=marks, nranks=2),
        stream([*loop[:61], SMALL, *loop[62:]], 1, marks=marks, nranks=2),
    ]
    processes = [process(r, whole(r, nranks=2)) for r in range(2)]
    assert joined_operations(streams, processes).mismatches[0].iteration == 30
    for item in streams:
        item.marks = {i: n for i, n in marks.items() if i % 8 == 0}
    assert joined_operations(streams, processes).mismatches[0].iteration == 30
    for item in streams:
        item.marks = {0: 0, 8: 17}
    assert joined_operations(streams, processes).mismatches[0].iteration is None


def test_what_is_shown_of_a_rank_names_its_own_file_and_lines_only_where_they_are_known() -> None:
    calls = {0: [AR, AR, AG], 1: [AR, SMALL, AG]}
    streams = [replaced(stream(shapes, rank, nranks=2), rank) for rank, shapes in calls.items()]
    joined = joined_operations(streams, [process(rank, whole(rank, nranks=2)) for rank in calls])
    (mismatch,) = joined.mismatches
    assert {r: str(o) for r, o in mismatch.origins.items()} == {0: "rank0.log", 1: "rank1.log"}
    assert [e.source for e in evidence_of(mismatch)] == ["rank0.log", "rank1.log"]
    assert {r: str(p.origin) for r, p in joined.progress[0].positions.items()} == {0: "rank0.log:12", 1: "rank1.log:22"}


def replaced(one: OpStream, rank: int) -> OpStream:
    """With the lines of its first and last operation."""
    one.first_line, one.last_line = 10 * rank + 10, 10 * rank + 12
    return one


def test_a_communicator_larger_than_any_job_has_no_list_of_its_ranks() -> None:
    """As a damaged line says."""
    nranks = 10**9
    streams = [stream([AR], rank, nranks=nranks) for rank in range(2)]
    [progress] = join_operations(streams, [process(r, whole(r, nranks=nranks)) for r in range(2)]).progress
    assert (progress.members, progress.size, progress.absent, sorted(progress.positions)) == ((), nranks, {}, [0, 1])
