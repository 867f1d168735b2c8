import pytest

from allready.model import FaultClass
from tests.fleets import check, fleet
from tests.rules.collective.made_up import stage, state, stopped_at


@pytest.mark.parametrize(
    ("error", "fault_class"),
    [
        ("RuntimeError: torch 2.13.0 sees no usable GPU (CUDA_VISIBLE_DEVICES='')", None),
        ("RuntimeError: local rank 1 needs GPU 1, but torch sees only 1", None),
        ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", FaultClass.HW_HANG),
    ],
)
def test_names_the_rank_without_its_gpu(error: str, fault_class: FaultClass | None) -> None:
    bad = stage("device", "failed", state(3, "exited", exit_code=1, error=error), finished=(0, 1, 2))
    [hit] = check("COL005", fleet(2, collectives=stopped_at(bad))).hits
    assert (hit.culprits.ranks, hit.fault_class) == ((3,), fault_class)


def test_running_out_of_memory_on_the_device_is_another_matter() -> None:
    bad = stage("device", "failed", state(3, error="torch.OutOfMemoryError: CUDA out of memory."))
    made = fleet(2, collectives=stopped_at(bad))
    assert check("COL005", made).state == "clear"
    assert check("COL006", made).state == "hit"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL005", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL005", fleet(2, collectives=None)).state == "not_checked"
