from tests.cases import cases
from tests.rules.variables.made import clear, here, script, values

CODE = "VAR011"


@cases(
    "name, value, span",
    [
        ("NCCL_IB_TIMEOUT", "32", "1..31"),
        ("NCCL_IB_TIMEOUT", "0", "1..31"),
        ("NCCL_IB_RETRY_CNT", "10", "0..7"),
        ("NCCL_SOCKET_NTHREADS", "64", "1..16"),
        ("MASTER_PORT", "70000", "1..65535"),
    ],
)
def test_says_what_the_range_is(name: str, value: str, span: str) -> None:
    assert values(CODE, here(**{name: value}))["span"] == span


@cases(
    "name, value",
    [("NCCL_IB_TIMEOUT", "22"), ("NCCL_IB_TIMEOUT", "31"), ("NCCL_IB_RETRY_CNT", "7"), ("NCCL_SOCKET_NTHREADS", "4")],
)
def test_values_within_it_are_right(name: str, value: str) -> None:
    assert clear(CODE, here(**{name: value}))


def test_what_is_no_number_is_another_finding() -> None:
    assert clear(CODE, here(NCCL_IB_TIMEOUT="long"))


def test_a_value_that_is_only_known_at_run_time_is_left_alone() -> None:
    assert clear(CODE, script("export NCCL_IB_TIMEOUT=$TIMEOUT"))
