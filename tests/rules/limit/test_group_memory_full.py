from allready.model import FactMissing, UsageFacts
from tests.fleets import GIB, check, fleet


def used(limit: int | None, now: int | None) -> UsageFacts:
    return UsageFacts(memory_limit_bytes=limit, memory_used_bytes=now)


def test_names_the_node_whose_container_is_full() -> None:
    [hit] = check("LIM008", fleet(2, usage={0: used(64 * GIB, 63 * GIB), 1: used(64 * GIB, 3 * GIB)})).hits
    assert (hit.culprits.nodes, hit.values["limit"]) == ((0,), "64 GiB")


def test_half_full_is_clear() -> None:
    assert check("LIM008", fleet(1, usage={0: used(64 * GIB, 32 * GIB)})).state == "clear"


def test_no_limit_is_clear() -> None:
    assert check("LIM008", fleet(1, usage={0: used(None, None)})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("LIM008", fleet(1, usage={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
