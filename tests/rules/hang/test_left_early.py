from typing import Any

from allready.judging.engine import judge
from allready.model import Confidence, Event, FaultClass, Origin, Role
from allready.model.fill import in_english
from tests.rules.runs import ask, at, death, event, group, run_fleet


def left(rank: int, time_s: float = 100.0) -> Event:
    return event("torch.not_destroyed", rank, role=Role.TEARDOWN, time_s=time_s)


def waited(rank: int, time_s: float = 700.0, **values: Any) -> Event:
    known = {"op": "ALLREDUCE", "seq": "64", "group_rank": str(rank), "ran_ms": "600000"} | values
    return event("torch.watchdog_timeout", rank, time_s=time_s, values=known)


def test_who_left_and_who_waited_are_told_and_nobody_is_accused() -> None:
    [hit] = ask("HNG015", events=(left(0), waited(2), waited(3))).hits
    assert (hit.values["left"], in_english(hit.values["waiting"])) == ("rank 0 (node 0)", "2 ranks")
    assert (hit.values["operation"], hit.values["seq"]) == ("ALLREDUCE", "64")
    assert (hit.confidence, hit.culprits.ranks) == (Confidence.LIKELY, ())


def test_who_left_with_the_others_or_after_them_did_not_leave_early() -> None:
    assert ask("HNG015", events=(left(0, 699.5), waited(2))).state == "clear"
    assert ask("HNG015", events=(left(0, 705.0), waited(2))).state == "clear"
    assert ask("HNG015", events=(left(2), waited(2))).state == "clear"
    assert ask("HNG015", events=(left(0),)).state == "clear"


def test_a_time_that_nobody_told_proves_nothing() -> None:
    nameless = event("torch.not_destroyed", origin=Origin(source="out.log", line=1), time_s=100.0)
    assert ask("HNG015", events=(nameless, waited(2))).state == "clear"
    timeless = event("torch.not_destroyed", 0)
    assert ask("HNG015", events=(timeless, waited(2))).state == "clear"


def test_a_group_of_others_needs_nobody_who_left() -> None:
    assert ask("HNG015", events=(left(0), waited(2, group_rank="0"))).state == "clear"


def test_rank_0_of_a_smaller_group_has_the_same_number() -> None:
    stuck = {0: at(64, 64, gave_up=True)}
    events = (left(3), waited(0))
    of_all = group(stuck, "watchdog")
    smaller = group(stuck, "watchdog", group="3", label="tp", members=(), size=0)
    assert ask("HNG015", events=events, progress=(of_all,)).state == "hit"
    assert ask("HNG015", events=events, progress=(smaller,)).state == "clear"


def test_an_exception_says_why_it_left() -> None:
    assert ask("HNG015", events=(left(0), waited(2)), deaths=(death(0, time_s=99.0),)).state == "clear"


def test_it_is_told_before_the_wait_alone() -> None:
    found, _ = judge(run_fleet(events=(left(0), waited(2))))
    assert [f.code for f in found][:2] == ["HNG015", "TCH002"]
    assert found[0].fault_class is FaultClass.DESYNC_FLOW
