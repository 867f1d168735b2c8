from tests.cases import cases
from tests.rules.variables.made import clear, here, script, values

CODE = "VAR008"


@cases("value", ["true", "True", "yes", "on", "enable", "y"])
def test_a_word_counts_as_0(value: str) -> None:
    found = values(CODE, script(f"export NCCL_IB_DISABLE={value}"))
    assert (found["better"], found["command"]) == ("1", "")


def test_a_number_that_is_no_switch() -> None:
    assert values(CODE, here(NCCL_BUFFSIZE="big"))["better"] is None


@cases("value", ["0", "1", "2", "-1", "0x1", " 1", "false", "off", "no", "False", ""])
def test_numbers_and_words_that_mean_0_are_right(value: str) -> None:
    assert clear(CODE, here(NCCL_IB_DISABLE=value))


def test_torch_reads_words() -> None:
    assert clear(CODE, here(TORCH_NCCL_BLOCKING_WAIT="true", TORCH_NCCL_DESYNC_DEBUG="yes"))


def test_in_this_environment_it_can_be_typed() -> None:
    assert values(CODE, here(NCCL_P2P_DISABLE="true"))["command"] == "export NCCL_P2P_DISABLE=1"


def test_switches_with_a_third_value() -> None:
    assert values(CODE, here(NCCL_NVLS_ENABLE="on"))["better"] == "1"
    assert clear(CODE, here(NCCL_NVLS_ENABLE="off", NCCL_CUMEM_ENABLE="false", NCCL_MNNVL_ENABLE="0"))
    assert values(CODE, here(NCCL_IB_TIMEOUT="off"))["better"] is None, "0 means for ever there"
