from allready.model import FaultClass
from tests.rules.runs import ask, death, one_missing, stack

WAITING = tuple(stack(r, "gpu_wait", pid=10 + r) for r in (0, 1, 2))


def test_names_the_process_that_does_something_else() -> None:
    [hit] = ask("HNG006", stacks=(*WAITING, stack(3, "lock", pid=13))).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((3,), FaultClass.CPU_STUCK)


def test_tells_the_pid_where_ranks_are_not_known() -> None:
    unknown = tuple(stack(None, "in_collective", pid=p) for p in (1, 2))
    [hit] = ask("HNG006", stacks=(*unknown, stack(None, "cpu_work", pid=3))).hits
    assert (hit.culprits.ranks, hit.values["who"], hit.fault_class) == ((), "pid 3", FaultClass.CPU_BUSY)


def test_blames_nobody_when_two_are_odd() -> None:
    assert ask("HNG006", stacks=(*WAITING, stack(3, "lock"), stack(4, "io"))).state == "clear"


def test_launchers_and_loaders_do_not_count() -> None:
    assert ask("HNG006", stacks=(*WAITING, stack(None, "sleep", role="launcher"))).state == "clear"


def test_better_evidence_is_told_instead() -> None:
    everything = (*WAITING, stack(3, "lock", pid=13))
    assert ask("HNG006", stacks=everything, progress=(one_missing(3),)).state == "clear"
    assert ask("HNG006", stacks=everything, deaths=(death(3),)).state == "clear"
