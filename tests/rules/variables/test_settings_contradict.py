from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, script, values

CODE = "VAR024"


@cases(
    "made, counts",
    [
        ({"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, "TORCH_NCCL_BLOCKING_WAIT"),
        ({"NCCL_BLOCKING_WAIT": "1", "NCCL_ASYNC_ERROR_HANDLING": "1"}, "TORCH_NCCL_BLOCKING_WAIT"),
        ({"NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_BLOCKING_WAIT": "0"}, "TORCH_NCCL_BLOCKING_WAIT=0"),
        ({"NCCL_ALGO": "NVLS", "NCCL_NVLS_ENABLE": "0"}, "NCCL_NVLS_ENABLE"),
        ({"NCCL_NET": "IB", "NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE"),
        ({"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "16"}, "NCCL_MAX_CTAS"),
        ({"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}, "16 x 8 <= 64"),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5", "XLA_CLIENT_MEM_FRACTION": "0.5"}, "?"),
    ],
)
def test_says_which_one_counts(made: dict[str, str], counts: str) -> None:
    assert values(CODE, here(**made))["counts"] == counts


@cases(
    "made",
    [
        {"TORCH_NCCL_BLOCKING_WAIT": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"},
        {"NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_BLOCKING_WAIT": "true"},
        {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"},
        {"NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "32"},
        {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"},
        {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"},
    ],
)
def test_settings_that_go_together(made: dict[str, str]) -> None:
    assert clear(CODE, here(**made))


def test_names_both_lines() -> None:
    made = script("export NCCL_NET=IB", "export NCCL_IB_DISABLE=1")
    [hit] = hits(CODE, made)
    assert (hit.values["line"], hit.values["other_line"]) == (1, 2)
    assert hit.culprits.variables == ("NCCL_NET", "NCCL_IB_DISABLE")


def test_the_last_assignment_counts() -> None:
    assert clear(CODE, script("export NCCL_NET=IB", "export NCCL_IB_DISABLE=1", "export NCCL_IB_DISABLE=0"))
