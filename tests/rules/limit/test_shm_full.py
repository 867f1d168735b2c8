from msgspec.structs import replace

from allready.model import FactMissing, LimitFacts, Severity
from tests.fleets import GIB, check, fleet, healthy_node

MIB = 2**20


def limits(total: int | None, free: int | None) -> LimitFacts:
    healthy = healthy_node(0, 2).limits
    assert isinstance(healthy, LimitFacts)
    return replace(healthy, shm_total_bytes=total, shm_free_bytes=free)


def test_names_the_node_where_nccls_pool_no_longer_fits() -> None:
    [hit] = check("LIM002", fleet(2, limits={1: limits(64 * GIB, 10 * MIB)}, collectives=None)).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.severity, hit.values["free"]) == (Severity.ERROR, "10 MiB")


def test_is_a_warning_while_there_is_room_for_nccl() -> None:
    [hit] = check("LIM002", fleet(2, limits={1: limits(64 * GIB, 200 * MIB)})).hits
    assert hit.severity is Severity.WARNING


def test_leaves_a_small_one_to_the_rule_about_size() -> None:
    made = fleet(2, limits={1: limits(64 * MIB, 0)}, collectives=None)
    assert check("LIM002", made).state == "clear"
    assert check("LIM001", made).state == "hit"


def test_does_not_mind_a_large_one_that_is_half_full() -> None:
    assert check("LIM002", fleet(2, limits={1: limits(256 * GIB, 100 * GIB)})).state == "clear"


def test_is_clear_on_healthy_nodes() -> None:
    assert check("LIM002", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("LIM002", fleet(2, limits={0: FactMissing("no statvfs")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "no statvfs"})
