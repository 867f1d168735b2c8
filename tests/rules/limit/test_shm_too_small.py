import pytest
from msgspec.structs import replace

from allready.model import (
    Confidence,
    FactMissing,
    GpuFacts,
    HostFacts,
    LaunchFacts,
    LimitFacts,
    Severity,
    SoftwareFacts,
)
from tests.fleets import GIB, check, fleet, healthy_collectives, healthy_node
from tests.rules.gpu.made_up import launched

MIB = 2**20


def limits(total: int | None, free: int | None = None) -> LimitFacts:
    healthy = healthy_node(0, 2).limits
    assert isinstance(healthy, LimitFacts)
    return replace(healthy, shm_total_bytes=total, shm_free_bytes=total if free is None else free)


def test_calls_dockers_default_an_error_on_the_node_that_has_it() -> None:
    [hit] = check("LIM001", fleet(2, limits={1: limits(64 * MIB)}, collectives=None)).hits
    assert hit.culprits.nodes == (1,)
    assert hit.values["total"] == "64 MiB"
    assert hit.severity is Severity.ERROR
    # 2 ranks x 34,210,176 bytes do not fit into 67,108,864: nothing to be argued about.
    assert hit.confidence is Confidence.CERTAIN


def test_counts_the_ranks_of_a_big_node() -> None:
    made = fleet(2, limits={0: limits(200 * MIB)}, collectives=None)
    [hit] = check("LIM001", launched(made, nproc_per_node=8)).hits
    assert hit.severity is Severity.ERROR


def test_needs_less_with_an_older_nccl() -> None:
    made = fleet(
        2, limits={0: limits(200 * MIB)}, collectives=None, software={0: SoftwareFacts(versions={"nccl": "2.18.5"})}
    )
    [hit] = check("LIM001", launched(made, nproc_per_node=8)).hits
    assert hit.severity is Severity.WARNING


def test_is_only_a_warning_when_nccl_worked_in_this_very_check() -> None:
    [hit] = check("LIM001", fleet(1, limits={0: limits(64 * MIB)}, collectives=healthy_collectives(2))).hits
    assert hit.severity is Severity.WARNING


def test_is_only_a_warning_with_gloo_which_does_not_use_it() -> None:
    [hit] = check("LIM001", launched(fleet(2, limits={1: limits(64 * MIB)}), backend="gloo")).hits
    assert hit.severity is Severity.WARNING


def test_says_nothing_about_a_small_machine_with_the_kernels_own_default() -> None:
    host = healthy_node(0, 1).host
    assert isinstance(host, HostFacts)
    small = replace(host, memory_bytes=1900 * MIB)
    assert check("LIM001", fleet(1, limits={0: limits(950 * MIB)}, host={0: small})).state == "clear"


@pytest.mark.parametrize("total", [None, 0])
def test_a_missing_dev_shm_is_an_error(total: int | None) -> None:
    [hit] = check("LIM001", fleet(2, limits={0: limits(total)}, collectives=None)).hits
    assert hit.severity is Severity.ERROR
    assert hit.values["total"] == "0 B"


def test_is_clear_with_room_enough() -> None:
    assert check("LIM001", fleet(2)).state == "clear"
    assert check("LIM001", fleet(2, limits={0: limits(GIB)})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("LIM001", fleet(2, limits={1: FactMissing("permission denied")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "permission denied"})


def test_a_plain_container_without_gpus_and_one_rank_is_information() -> None:
    one = healthy_node(0, 1).launch
    assert isinstance(one, LaunchFacts)
    one = replace(one, nproc_per_node=1, backend=None)
    [hit] = check(
        "LIM001", fleet(1, limits={0: limits(64 * MIB)}, launch={0: one}, gpu={0: GpuFacts(gpus=())}, collectives=None)
    ).hits
    assert hit.severity is Severity.INFO
