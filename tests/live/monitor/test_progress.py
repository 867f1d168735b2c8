"""Positions from the newest words, completed by rings."""

import json
from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from allready.evidence.flight.reader import read_dump
from allready.evidence.reading import FlightDump
from allready.live.monitor.progress import progress_of, shifts_of
from allready.model import Absence, GroupMark, NodeStatus, ProcessState, RankStatus
from tests.judging.joined import joined_dumps
from tests.live.monitor.made import entry

NOW = 1_790_000_100.0


def dump(
    rank: int, *entries: object, groups: Mapping[tuple[str, str], tuple[int, ...]] = MappingProxyType({})
) -> FlightDump:
    config = {name: {"name": name, "desc": label, "ranks": str(list(m))} for (name, label), m in groups.items()}
    text = json.dumps({"version": "2.10", "entries": entries, "pg_config": config, "pg_status": {}})
    [found] = read_dump(text.encode(), "ring.json", name_hint=f"rank{rank}").dumps
    return found


def words(*marks: GroupMark | None) -> dict[int, NodeStatus]:
    ranks = tuple(RankStatus(rank=r, groups=(m,) if m is not None else ()) for r, m in enumerate(marks))
    return {0: NodeStatus(node_rank=0, time_s=NOW, ranks=ranks)}


def mark(enqueued: int, completed: int, members: tuple[int, ...] = (0, 1), group: str = "0") -> GroupMark:
    waits = enqueued > completed
    return GroupMark(
        group=group,
        label="default_pg" if group == "0" else "",
        members=members,
        enqueued=enqueued,
        completed=completed,
        waiting_s=2.0 if waits else None,
        moved_s=NOW - 2,
    )


def test_marks_are_newer_than_rings_and_rings_know_names() -> None:
    rings = [dump(r, entry(1, NOW - 9), entry(2, NOW - 8, "broadcast", done=False)) for r in (0, 1)]
    [group] = progress_of(words(mark(2, 1), mark(3, 2)), joined_dumps(rings).progress, world_size=2)
    assert {r: (p.enqueued, p.completed) for r, p in group.positions.items()} == {0: (2, 1), 1: (3, 2)}
    stuck = group.positions[0].stuck
    assert stuck is not None
    assert (stuck.seq, stuck.name) == (2, "broadcast")
    unknown = group.positions[1].stuck
    assert unknown is not None
    assert (unknown.seq, unknown.name) == (3, "")


def test_a_member_without_any_group_has_not_joined_and_one_with_others_has_not_used_this_one() -> None:
    other = GroupMark(group="1", members=(1,), enqueued=4, completed=4)
    found = {g.group: g for g in progress_of(words(mark(2, 1, (0, 1, 2)), other, None), (), world_size=3)}
    assert found["0"].absent == {2: Absence.NOT_JOINED}
    assert found["0"].positions[1].enqueued == 0


def test_the_last_word_of_a_rank_that_ends_stays() -> None:
    [group] = progress_of(words(mark(2, 1), None), (), world_size=2, last_marks={1: (mark(1, 1),)})
    assert group.positions[1].enqueued == 1


def test_what_a_rank_was_in_before_its_beacon_went_is_not_where_it_is() -> None:
    [status] = words(mark(2, 1), None).values()
    ranks = tuple(replace(one, has_lost_beacon=one.rank == 1) for one in status.ranks)
    [group] = progress_of({0: replace(status, ranks=ranks)}, (), world_size=2, last_marks={1: (mark(2, 1),)})
    assert (list(group.positions), group.absent) == ([0], {1: Absence.NO_DATA})


def test_members_of_the_world_are_known_without_being_told() -> None:
    [group] = progress_of(words(mark(2, 1, ())), (), world_size=3)
    assert group.members == (0, 1, 2)


def test_with_sends_only_rings_number_collectives() -> None:
    ahead = dict(entry(2, NOW - 8), op_id=9)
    rings = [dump(0, entry(1, NOW - 9), ahead), dump(1, entry(1, NOW - 9))]
    shifts = {0: shifts_of(json.dumps({"entries": [ahead]}, separators=(",", ":"), sort_keys=True))}
    assert shifts == {0: {"0": 7}}
    [group] = progress_of(words(mark(9, 9), mark(1, 1)), joined_dumps(rings).progress, world_size=2, shifts=shifts)
    assert {r: p.enqueued for r, p in group.positions.items()} == {0: 2, 1: 1}


def test_a_ring_without_sends_has_no_shift() -> None:
    text = json.dumps({"entries": [entry(1, NOW), entry(2, NOW)]}, separators=(",", ":"), sort_keys=True)
    assert shifts_of(text) == {"0": 0}
    assert shifts_of("garbage") == {}


def test_what_a_silent_rank_was_in_when_it_spoke_last_is_over_if_others_got_through() -> None:
    for silent in (
        RankStatus(rank=0, process_state=ProcessState.SLEEPING, heartbeat_age_s=9.0, groups=(mark(5, 4),)),
        RankStatus(rank=0, process_state=ProcessState.STOPPED, heartbeat_age_s=0.1, groups=(mark(5, 4),)),
    ):
        other = RankStatus(rank=1, process_state=ProcessState.SLEEPING, heartbeat_age_s=0.1, groups=(mark(9, 8),))
        statuses = {0: NodeStatus(node_rank=0, time_s=NOW, ranks=(silent, other))}
        [group] = progress_of(statuses, (), world_size=2)
        assert group.positions[0].stuck is None
        alive = RankStatus(rank=0, process_state=ProcessState.SLEEPING, heartbeat_age_s=0.1, groups=(mark(5, 4),))
        statuses = {0: NodeStatus(node_rank=0, time_s=NOW, ranks=(alive, other))}
        [group] = progress_of(statuses, (), world_size=2)
        assert group.positions[0].stuck is not None, "it may be in a broadcast that the root has left"


def test_a_ring_that_is_newer_than_the_last_word_of_its_rank_counts() -> None:
    rings = [dump(0, *(entry(n, NOW - 9 + n) for n in range(1, 6))), dump(1, *(entry(n, NOW - 9 + n) for n in (1, 2)))]
    [group] = progress_of(words(mark(3, 3), mark(2, 2)), joined_dumps(rings).progress, world_size=2)
    assert [group.positions[r].enqueued for r in (0, 1)] == [5, 2]


def test_a_rank_that_was_through_before_its_first_word_is_where_its_ring_says() -> None:
    rings = [dump(0, entry(1, NOW - 9), entry(2, NOW - 8, done=False)), dump(1, entry(1, NOW - 9))]
    [group] = progress_of(words(mark(2, 1), None), joined_dumps(rings).progress, world_size=2)
    assert group.positions[1].enqueued == 1
    assert not group.absent


def test_of_ranks_that_ended_before_their_first_word_the_rings_say_where_they_were() -> None:
    rings = [dump(0, entry(1, NOW - 9), entry(2, NOW - 8, done=False)), dump(1, entry(1, NOW - 9))]
    ended = tuple(RankStatus(rank=r, process_state=ProcessState.EXITED) for r in (0, 1))
    statuses = {0: NodeStatus(node_rank=0, time_s=NOW, ranks=ended)}
    [group] = progress_of(statuses, joined_dumps(rings).progress, world_size=2)
    assert {r: group.positions[r].enqueued for r in (0, 1)} == {0: 2, 1: 1}


def test_rings_alone_say_nothing_of_ranks_that_live() -> None:
    rings = [dump(r, entry(1, NOW - 9), entry(2, NOW - 8, done=False)) for r in (0, 1)]
    assert progress_of(words(None, None), joined_dumps(rings).progress, world_size=2) == ()


def test_a_groups_name_may_read_like_a_title_of_two_ranks_or_of_members() -> None:
    """Names are the user's: only rings of a group of the very name belong to what the marks tell of it."""
    for name in ("pp send buffers", "dp [inner]"):
        groups = {(name, ""): (0, 1)}
        rings = [dump(r, dict(entry(1, NOW - 9, done=False), process_group=(name, "")), groups=groups) for r in (0, 1)]
        [group] = progress_of(words(*[mark(1, 0, group=name)] * 2), joined_dumps(rings).progress, world_size=2)
        stuck = group.positions[0].stuck
        assert (group.name, stuck is not None and stuck.name) == (name, "all_reduce")


def test_two_groups_of_one_name_find_their_rings_by_it_and_by_their_members() -> None:
    rings = []
    for rank, members in ((0, (0, 1)), (1, (0, 1)), (2, (2, 3)), (3, (2, 3))):
        operation = entry(1, NOW - 9, "broadcast" if rank < 2 else "all_gather", done=False)
        rings.append(dump(rank, dict(operation, process_group=("dp", "")), groups={("dp", ""): members}))
    joined = joined_dumps(rings).progress
    assert {(g.group, g.name) for g in joined} == {("dp [0,1]", "dp"), ("dp [2,3]", "dp")}
    marks = [mark(1, 0, members, "dp") for members in ((0, 1), (0, 1), (2, 3), (2, 3))]
    found = {g.members: g for g in progress_of(words(*marks), joined, world_size=4)}
    calls = {m: stuck.name for m, g in found.items() if (stuck := g.positions[m[0]].stuck) is not None}
    assert calls == {(0, 1): "broadcast", (2, 3): "all_gather"}
