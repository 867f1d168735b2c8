"""What is worth a closer look, by statuses alone."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.live.monitor.suspicion import Suspicion, suspect
from allready.live.waits import FLOOR_S, STATUS_EVERY_S, waits_s
from allready.model import GroupMark, NodeStatus, ProcessState
from tests.rules.live.made import NODES, NOW, behind, ended, mark, waiting


def look(*ranks: Any, heard: Mapping[int, float] | None = None, **changes: Any) -> Suspicion | None:
    known = {r: behind(r, groups=(mark(63, pending=False, moved_s=NOW),)) for r in NODES} | {r.rank: r for r in ranks}
    statuses = {
        n: NodeStatus(node_rank=n, time_s=NOW, ranks=tuple(known[r] for r in NODES if NODES[r] == n)) for n in (0, 1)
    }
    return suspect(statuses, heard if heard is not None else {0: 0.0, 1: 0.0}, (), **changes)


def kind(found: Suspicion | None) -> str:
    return found.kind if found is not None else ""


def test_nobody_waits() -> None:
    assert look() is None


def test_a_wait_of_a_second_without_progress_is_one() -> None:
    waits = [waiting(r, num_operations=500, groups=(mark(64, waiting_s=1.2, moved_s=NOW - 1.2),)) for r in (0, 1, 3)]
    late = behind(2, groups=(mark(63, pending=False, moved_s=NOW - 1.3),))
    assert kind(look(*waits, replace(late, num_operations=500))) == "waiting"
    short = [replace(w, groups=(mark(64, waiting_s=0.6, moved_s=NOW - 0.6),)) for w in waits]
    assert look(*short, replace(late, num_operations=500)) is None


def test_a_short_wait_in_an_older_word_is_none() -> None:
    """Agents tell once a second: a loop that reduces in every step is often seen waiting, and moves on unseen."""
    waits = [waiting(r, num_operations=500, groups=(mark(64, waiting_s=0.2, moved_s=NOW - 0.2),)) for r in NODES]
    assert look(*waits, heard={0: STATUS_EVERY_S, 1: STATUS_EVERY_S}) is None
    assert kind(look(*waits, heard={0: STATUS_EVERY_S + FLOOR_S, 1: STATUS_EVERY_S + FLOOR_S})) == "waiting"


def test_who_waits_for_long_is_told_by_its_agent() -> None:
    ranks = (
        waiting(0, groups=(mark(64, waiting_s=1.2, moved_s=NOW - 1.5),)),
        waiting(1, groups=(mark(64, waiting_s=0.3, moved_s=NOW - 0.4), mark(7, pending=False))),
        behind(2, groups=(mark(63, pending=False, moved_s=NOW - 9.0),)),
        ended(3, 1),
    )
    assert waits_s(NodeStatus(node_rank=0, time_s=NOW, ranks=ranks)) == {0: 1.2, 1: 0.3, 2: 0.0}


def test_first_steps_are_given_more_time() -> None:
    waits = [waiting(r, num_operations=3, groups=(mark(3, waiting_s=1.5, moved_s=NOW - 1.5),)) for r in (0, 1, 3)]
    late = behind(2, num_operations=2, groups=(mark(2, pending=False, moved_s=NOW - 1.6),))
    assert look(*waits, late) is None


def test_a_job_of_slow_rhythm_is_given_more_time() -> None:
    waits = [
        waiting(r, num_operations=500, period_s=2.0, groups=(mark(64, waiting_s=3.0, moved_s=NOW - 3.0),))
        for r in (0, 1, 3)
    ]
    late = behind(2, num_operations=500, groups=(mark(63, pending=False, moved_s=NOW - 3.0),))
    assert look(*waits, late) is None
    assert kind(look(*(replace(w, period_s=0.1) for w in waits), late)) == "waiting"
    assert look(*(replace(w, period_s=0.1) for w in waits), late, rhythm_s=lambda _: 2.0) is None


def test_a_group_in_which_somebody_moves_is_none() -> None:
    waits = [waiting(r, num_operations=500, groups=(mark(64, waiting_s=5.0),)) for r in (0, 1, 3)]
    moving = behind(2, num_operations=500, groups=(mark(60, pending=False, moved_s=NOW - 0.1),))
    assert look(*waits, moving) is None


def test_ends_and_stops_are_at_once() -> None:
    assert kind(look(ended(2, 1))) == "ended"
    assert kind(look(ended(2, None, "SIGKILL"))) == "ended"
    assert kind(look(behind(2, process_state=ProcessState.STOPPED))) == "halted"


def test_an_orderly_end_is_one_only_where_others_wait() -> None:
    assert look(ended(2)) is None
    waits = waiting(0, groups=(mark(64, waiting_s=0.6, moved_s=NOW - 0.6),))
    assert kind(look(ended(2), waits)) == "left"


def test_a_node_that_is_silent_is_one() -> None:
    assert kind(look(heard={0: 0.1, 1: 3.0})) == "silent"


def test_other_digests_are_one() -> None:
    assert kind(look(has_other_digests=True)) == "digests"


def test_a_beacon_without_a_turn_is_one_unless_libraries_load() -> None:
    assert kind(look(behind(2, heartbeat_age_s=2.0, groups=()))) == "gil"
    assert look(behind(2, heartbeat_age_s=2.0, phase="importing", groups=())) is None


def test_some_that_joined_and_some_that_did_not_are_one() -> None:
    joining = [waiting(r, groups=(), num_operations=0, phase="joining") for r in (0, 1, 3)]
    other = behind(2, groups=(), num_operations=0, phase="computing")
    assert kind(look(*joining, other)) == "joining"
    just = [replace(j, site_since_s=NOW - 1) for j in joining]
    assert look(*just, other) is None


def test_standing_in_a_call_that_no_recorder_shows_is_one() -> None:
    still = GroupMark(group="0", enqueued=63, completed=63, moved_s=NOW - 9)
    assert kind(look(behind(2, phase="communicating", groups=(still,), site_since_s=NOW - 9))) == "place"
    moving = replace(still, moved_s=NOW - 0.1)
    assert look(behind(2, phase="communicating", groups=(moving,), site_since_s=NOW - 9)) is None
