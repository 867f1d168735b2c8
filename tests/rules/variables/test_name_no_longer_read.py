from tests.cases import cases
from tests.rules.variables.made import clear, here, script, software, values

CODE = "VAR005"


@cases("name", ["NCCL_LL_THRESHOLD", "NCCL_TREE_THRESHOLD", "NCCL_IB_CUDA_SUPPORT"])
def test_names_that_no_supported_release_reads(name: str) -> None:
    assert values(CODE, script(f"export {name}=1"), software=software())["owner"] == "NCCL"


def test_a_later_removal_needs_the_version() -> None:
    made = here(TORCH_NCCL_AVOID_RECORD_STREAMS="1")
    assert clear(CODE, made, software=software())
    assert clear(CODE, made, software=software(torch="2.7.1"))
    assert values(CODE, made, software=software(torch="2.15.0"))["command"] == "unset TORCH_NCCL_AVOID_RECORD_STREAMS"


def test_names_that_were_never_read_are_another_finding() -> None:
    assert clear(CODE, here(NCCL_TIMEOUT="1"))


def test_what_is_read_is_right() -> None:
    assert clear(CODE, here(NCCL_DEBUG="WARN", NCCL_ALGO="Ring"))
