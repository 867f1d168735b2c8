import pytest
from msgspec.structs import replace

from allready.model import Confidence, FaultClass, Position
from allready.rules.hang.entered import completed_elsewhere
from tests.rules.desync.test_other_call import mismatch
from tests.rules.runs import ask, at, group, operation


def gave_up(enqueued: int, stuck: int, name: str = "reduce_scatter") -> Position:
    return replace(at(enqueued, stuck), stuck=operation(stuck, name), gave_up=True)


APART = {0: gave_up(68, 64), 1: gave_up(70, 67), 2: gave_up(70, 67), 3: gave_up(70, 67)}


def test_who_waits_where_others_came_out_is_out_of_step_with_them_and_nobody_is_accused() -> None:
    [hit] = ask("HNG012", progress=(group(APART, "watchdog"),)).hits
    assert hit.confidence is Confidence.LIKELY
    assert not hit.culprits
    assert (hit.values["who"], hit.values["seq"], hit.values["later"]) == ("rank 0 (node 0)", 64, 67)
    assert completed_elsewhere.fault_class is FaultClass.DESYNC_FLOW
    assert ask("HNG001", progress=(group(APART, "watchdog"),)).state == "clear"


@pytest.mark.parametrize("name", ["broadcast", "reduce", ""])
def test_from_operations_with_a_root_some_come_out_early(name: str) -> None:
    apart = {0: gave_up(68, 64, name), 1: gave_up(70, 67)}
    assert ask("HNG012", progress=(group(apart, "watchdog"),)).state == "clear"


def test_the_last_bytes_of_one_operation_may_be_lost() -> None:
    next_one = {0: gave_up(65, 64), 1: gave_up(66, 65)}
    assert ask("HNG012", progress=(group(next_one, "watchdog"),)).state == "clear"
    [hit] = ask("HNG009", progress=(group(next_one, "watchdog"),)).hits
    assert not hit.culprits


def test_a_rank_that_waited_itself_did_not_stay_away() -> None:
    """Three wait in 65, one in 64, and it says so: it is no rank that did not enter."""
    waiting = {r: gave_up(65, 65) for r in range(3)}
    told = group({**waiting, 3: gave_up(64, 64)}, "watchdog")
    silent = group({**waiting, 3: at(64, 64)}, "watchdog")
    assert ask("HNG001", progress=(told,)).state == "clear"
    assert ask("HNG001", progress=(silent,)).state == "hit"


def test_a_mismatch_that_is_seen_says_more() -> None:
    seen = mismatch((1,), operation(64, "broadcast"))
    assert ask("HNG012", progress=(group(APART, "watchdog"),), mismatches=(seen,)).state == "clear"
