from tests.cases import cases
from tests.rules.variables.made import clear, here, script, settings, software, values

CODE = "VAR023"


@cases(
    "made, partner",
    [
        ({"NCCL_DEBUG_SUBSYS": "NET"}, "NCCL_DEBUG=INFO"),
        ({"NCCL_DEBUG_FILE": "/tmp/a.%p"}, "NCCL_DEBUG=INFO"),
        ({"NCCL_INSPECTOR_ENABLE": "1"}, "NCCL_PROFILER_PLUGIN"),
        ({"NCCL_IB_TIMEOUT": "22", "NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE=0"),
        ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, "TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),
        ({"NCCL_OOB_NET_IFNAME": "mlx5_0"}, "NCCL_OOB_NET_ENABLE=1"),
        ({"NCCL_P2P_LEVEL": "PXB", "NCCL_P2P_DISABLE": "1"}, "NCCL_P2P_DISABLE=0"),
    ],
)
def test_says_what_is_missing(made: dict[str, str], partner: str) -> None:
    assert values(CODE, here(**made))["partner"] == partner


@cases(
    "made",
    [
        {"NCCL_DEBUG_SUBSYS": "NET", "NCCL_DEBUG": "INFO"},
        {"NCCL_DEBUG_FILE": "/tmp/a.%p", "NCCL_DEBUG": "warn"},
        {"NCCL_INSPECTOR_ENABLE": "1", "NCCL_PROFILER_PLUGIN": "inspector"},
        {"NCCL_IB_TIMEOUT": "22"},
        {"NCCL_IB_DISABLE": "1"},
        {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_FR_BUFFER_SIZE": "2000"},
        {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_FR_BUFFER_SIZE": "0"},
        {"NCCL_IB_DISABLE": "1", "NCCL_IB_GID_INDX": "3"},
    ],
)
def test_complete_pairs_are_right(made: dict[str, str]) -> None:
    assert clear(CODE, here(**made))


def test_the_recorder_was_off_before_torch_2_9() -> None:
    made = here(TORCH_NCCL_DUMP_ON_TIMEOUT="1")
    assert values(CODE, made, software=software(torch="2.6.0"))["partner"] == "TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
    assert values(CODE, made, software=software(torch="2.8.0"))["partner"] == "TORCH_FR_BUFFER_SIZE=2000"
    assert clear(CODE, made, software=software(torch="2.13.0"))
    assert clear(CODE, made, software=software())


def test_a_value_that_is_only_known_at_run_time_counts_as_set() -> None:
    assert clear(CODE, script("export NCCL_DEBUG=$LEVEL", "export NCCL_DEBUG_SUBSYS=NET"))


def test_a_log_level_of_another_container_is_none_of_this_one() -> None:
    pod = "containers:\n- env: [{name: NCCL_DEBUG, value: INFO}]\n- env: [{name: NCCL_DEBUG_SUBSYS, value: NET}]\n"
    assert values(CODE, settings(("pod.yaml", pod)))["line"] == 3
    both = "env: [{name: NCCL_DEBUG, value: INFO}]\n" + pod.replace("INFO", "WARN")
    assert clear(CODE, settings(("pod.yaml", both)))
