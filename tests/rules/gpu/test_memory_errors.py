from typing import Any

from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts, Severity
from tests.fleets import check, fleet, healthy_node


def second(**changes: Any) -> GpuFacts:
    healthy = healthy_node(0, 1).gpu
    assert isinstance(healthy, GpuFacts)
    return replace(healthy, gpus=(healthy.gpus[0], replace(healthy.gpus[1], **changes)))


def test_names_the_gpu_with_uncorrectable_errors() -> None:
    [hit] = check("GPU010", fleet(2, gpu={1: second(num_uncorrected=2, is_remap_pending=True)})).hits
    assert (hit.culprits.nodes, hit.values["gpu"], hit.severity) == ((1,), 1, None)
    assert hit.values["counts"] == "volatile uncorrected ECC errors 2, row remapping pending"


def test_a_failed_remapping_is_an_error() -> None:
    [hit] = check("GPU010", fleet(1, gpu={0: second(has_remap_failed=True)})).hits
    assert hit.severity is Severity.ERROR


def test_zero_counts_are_clear() -> None:
    zero = second(num_uncorrected=0, is_remap_pending=False, has_remap_failed=False)
    assert check("GPU010", fleet(1, gpu={0: zero})).state == "clear"


def test_a_gpu_that_does_not_tell_is_clear() -> None:
    assert check("GPU010", fleet(1)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU010", fleet(1, gpu={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
