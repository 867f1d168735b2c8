from allready.judging.loading import load
from allready.model.fill import fill_steps
from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, script, software, values

CODE = "VAR004"


@cases(
    "old, new",
    [
        ("NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
        ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    ],
)
def test_with_versions_unknown_the_oldest_supported_one_counts(old: str, new: str) -> None:
    found = values(CODE, script(f"export {old}=1"), software=software())
    assert (found["instead"], found["command"]) == (new, "")


def test_the_version_found_decides() -> None:
    made = here(TORCH_NCCL_TRACE_BUFFER_SIZE="2000")
    assert values(CODE, made, software=software(torch="2.13.0+cu130"))["instead"] == "TORCH_FR_BUFFER_SIZE"
    assert clear(CODE, made, software=software(torch="2.7.1"))


def test_what_can_be_typed() -> None:
    found = values(CODE, here(NCCL_BLOCKING_WAIT="1"), software=software(torch="2.13.0"))
    assert found["command"] == "unset NCCL_BLOCKING_WAIT; export TORCH_NCCL_BLOCKING_WAIT=1"


def test_without_a_successor_it_is_to_be_removed() -> None:
    made = here(TORCH_NCCL_AVOID_RECORD_STREAMS="1")
    [hit] = hits(CODE, made, software=software(torch="2.13.0"))
    steps = fill_steps(load()[CODE].steps, hit.values)
    assert steps[0].explanation == "remove TORCH_NCCL_AVOID_RECORD_STREAMS"
    assert steps[1].command == "unset TORCH_NCCL_AVOID_RECORD_STREAMS"


def test_new_names_are_right() -> None:
    assert clear(CODE, here(TORCH_NCCL_BLOCKING_WAIT="0", TORCH_FR_BUFFER_SIZE="2000", PYTORCH_ALLOC_CONF="a:b"))
