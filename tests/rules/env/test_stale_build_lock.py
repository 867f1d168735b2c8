from allready.model import BuildLock, FactMissing, Severity, UsageFacts
from tests.fleets import check, commands, fleet

PATH = "/home/a b/.cache/torch_extensions/py311_cu130/fused_adam/lock"


def lock(age_s: float, *, is_held: bool = False) -> UsageFacts:
    return UsageFacts(locks=(BuildLock(path=PATH, age_s=age_s, is_held=is_held),))


def test_names_the_file_of_a_lock_that_nobody_holds() -> None:
    [hit] = check("ENV015", fleet(2, usage={1: lock(7200), 0: UsageFacts()})).hits
    assert (hit.culprits.nodes, hit.severity, hit.values["minutes"]) == ((1,), None, 120)
    assert commands("ENV015", hit) == [f"rm '{PATH}'"]


def test_a_younger_one_may_be_another_nodes() -> None:
    [hit] = check("ENV015", fleet(1, usage={0: lock(1200)})).hits
    assert hit.severity is Severity.INFO


def test_a_build_that_runs_is_clear() -> None:
    assert check("ENV015", fleet(1, usage={0: lock(7200, is_held=True)})).state == "clear"


def test_a_lock_that_was_just_made_is_clear() -> None:
    assert check("ENV015", fleet(1, usage={0: lock(20)})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV015", fleet(1, usage={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
