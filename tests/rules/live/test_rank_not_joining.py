"""LIV009."""

from typing import Any

from allready.model import FaultClass, RankStatus, Severity
from allready.model.process import SystemCall
from tests.rules.live.made import NOW, ask, stack, waiting


def start(rank: int, phase: str = "joining", **changes: Any) -> RankStatus:
    return waiting(rank, **({"groups": (), "num_operations": 0, "phase": phase} | changes))


JOINING = tuple(start(r) for r in (0, 2, 3))
SLEEP = {1: {"syscall": SystemCall(name="clock_nanosleep")}}


def test_names_the_rank_that_never_comes() -> None:
    [hit] = ask("LIV009", *JOINING, start(1, "computing"), seen=SLEEP, stacks=(stack(1, "user_code"),)).hits
    assert (hit.culprits.ranks, hit.fault_class, hit.severity) == ((1,), None, None)


def test_it_is_a_fault_after_twice_the_time_for_hangs() -> None:
    now = {"hang_after_s": 4.0}
    [hit] = ask("LIV009", *JOINING, start(1, "computing"), seen=SLEEP, stacks=(stack(1, "user_code"),), live=now).hits
    assert hit.severity is Severity.ERROR


def test_imports_are_work() -> None:
    [hit] = ask("LIV009", *JOINING, start(1, "importing", cpu_share=1.0), stacks=(stack(1, "import_or_compile"),)).hits
    assert hit.fault_class is FaultClass.CPU_BUSY


def test_nobody_is_late_while_all_have_only_just_come() -> None:
    just = tuple(start(r, site_since_s=NOW - 1.0) for r in (0, 2, 3))
    assert ask("LIV009", *just, start(1, "importing"), stacks=(stack(1, "import_or_compile"),)).state == "clear"


def test_a_stopped_rank_is_another_finding() -> None:
    assert ask("LIV009", *JOINING, start(1, "importing", process_state="stopped")).state == "clear"


def test_all_joining_is_no_finding() -> None:
    assert ask("LIV009", *JOINING, start(1)).state == "clear"
