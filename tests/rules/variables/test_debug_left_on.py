from allready.model import Severity
from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, settings

CODE = "VAR022"


@cases(
    "name, value",
    [
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1"),
        ("JAX_DEBUG_NANS", "True"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    ],
)
def test_what_slows_the_computation_down_is_a_warning(name: str, value: str) -> None:
    assert hits(CODE, here(**{name: value}))[0].severity is Severity.WARNING


@cases("name, value", [("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_SUBSYS", "ALL"), ("TORCH_NCCL_NAN_CHECK", "1")])
def test_the_rest_is_information(name: str, value: str) -> None:
    assert hits(CODE, here(**{name: value}))[0].severity is None


@cases(
    "name, value",
    [
        ("CUDA_LAUNCH_BLOCKING", "0"),
        ("TORCH_DISTRIBUTED_DEBUG", "OFF"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_DEBUG", "VERSION"),
        ("NCCL_DEBUG_SUBSYS", "INIT,NET"),
        ("TORCH_NCCL_BLOCKING_WAIT", "0"),
        ("JAX_DEBUG_NANS", "false"),
        ("TORCH_FR_BUFFER_SIZE", "2000"),
    ],
)
def test_values_for_production(name: str, value: str) -> None:
    assert clear(CODE, here(**{name: value}))


def test_transports_are_judged_by_the_machine_where_it_is_known() -> None:
    assert clear(CODE, here(NCCL_P2P_DISABLE="1"))
    assert hits(CODE, settings(("Dockerfile", "FROM x\nENV NCCL_P2P_DISABLE=1\n")))
