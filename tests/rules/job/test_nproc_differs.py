from msgspec.structs import replace

from allready.model import GpuFacts, RollCall, Severity
from tests.fleets import check, claim, fleet, healthy_node


def roll(*nproc: int) -> RollCall:
    n = len(nproc)
    return RollCall(num_nodes=n, claims=tuple(claim(r, n, nproc_per_node=p) for r, p in enumerate(nproc)))


def gpus(num: int) -> GpuFacts:
    facts = healthy_node(0, 1).gpu
    assert isinstance(facts, GpuFacts)
    return replace(facts, visible=tuple(range(num)))


def test_names_the_node_that_starts_fewer() -> None:
    [hit] = check("JOB005", fleet(4, roll=roll(2, 2, 1, 2))).hits
    assert hit.culprits.nodes == (2,)
    assert hit.values["world_size"] == 7
    assert hit.severity is None


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("JOB005", fleet(2, roll=roll(2, 1))).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), ("nproc_per_node",))


def test_nodes_with_different_numbers_of_gpus_all_used_are_only_told() -> None:
    [hit] = check("JOB005", fleet(3, roll=roll(2, 2, 4), gpu={2: gpus(4)})).hits
    assert hit.severity is Severity.INFO
    assert not hit.culprits


def test_is_clear_when_all_agree() -> None:
    assert check("JOB005", fleet(4)).state == "clear"


def test_is_not_checked_without_a_roll_call() -> None:
    assert check("JOB005", fleet(4, roll=None)).state == "not_checked"
