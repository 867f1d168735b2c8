from tests.cases import cases
from tests.rules.variables.made import clear, here, values

CODE = "VAR013"


def test_only_1_switches_it_on() -> None:
    found = values(CODE, here(TORCH_SHOW_CPP_STACKTRACES="true"))
    assert (found["read"], found["better"]) == ("TORCH_SHOW_CPP_STACKTRACES=0", "1")
    assert found["command"] == "export TORCH_SHOW_CPP_STACKTRACES=1"


def test_that_it_is_set_switches_it_on() -> None:
    found = values(CODE, here(PYTORCH_NO_CUDA_MEMORY_CACHING="0"))
    assert (found["read"], found["command"]) == (
        "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
        "unset PYTORCH_NO_CUDA_MEMORY_CACHING",
    )


@cases("value", ["0", "1", "", "false"])
def test_values_that_do_what_they_say(value: str) -> None:
    assert clear(CODE, here(TORCH_SHOW_CPP_STACKTRACES=value))


def test_switches_that_know_words_are_right() -> None:
    assert clear(CODE, here(TORCH_NCCL_BLOCKING_WAIT="true", NCCL_IB_DISABLE="1"))


def test_a_size_that_is_no_power_of_two() -> None:
    found = values(CODE, here(NCCL_WORK_FIFO_BYTES="3000000"))
    assert (found["read"], found["better"]) == ("NCCL_WORK_FIFO_BYTES=1048576", "2097152")
    assert clear(CODE, here(NCCL_WORK_FIFO_BYTES="4194304"))
