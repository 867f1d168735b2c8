from tests.cases import cases
from tests.rules.variables.made import clear, here, values

CODE = "VAR010"


@cases(
    "name, value",
    [
        ("TORCH_NCCL_BLOCKING_WAIT", "on"),
        ("TORCH_NCCL_BLOCKING_WAIT", ""),
        ("TORCH_FR_BUFFER_SIZE", "many"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments=True"),
        ("PYTORCH_ALLOC_CONF", "expandable_segment:True"),
        ("XLA_FLAGS", "--xla_tpu_enable_latency_hiding_scheduler=true"),
        ("XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler=yes"),
        ("XLA_FLAGS", "--xla_gpu_all_reduce_combine_threshold_bytes=8M"),
        ("XLA_FLAGS", "--xla_dump_to=/tmp/x --xla_force_host_platform_device_count 2"),
        ("JAX_ENABLE_X64", "2"),
        ("MASTER_PORT", "auto"),
        ("CUDA_VISIBLE_DEVICES", "0,1,0"),
    ],
)
def test_values_that_end_the_program(name: str, value: str) -> None:
    assert values(CODE, here(**{name: value}))["name"] == name


@cases(
    "name, value",
    [
        ("TORCH_NCCL_BLOCKING_WAIT", "yes"),
        ("TORCH_NCCL_BLOCKING_WAIT", "0"),
        ("TORCH_FR_BUFFER_SIZE", "2000"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512"),
        ("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:[256:1,512:2,>:4]"),
        ("XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler=true"),
        ("XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler --xla_gpu_enable_triton_gemm=False --xla_dump_to=1"),
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=$N --xla_a_flag_of_tomorrow=yes"),
        ("JAX_ENABLE_X64", "on"),
        ("MASTER_PORT", "29500"),
        ("CUDA_VISIBLE_DEVICES", "0,1,3"),
        ("CUDA_VISIBLE_DEVICES", "0,1,,"),
        ("CUDA_VISIBLE_DEVICES", "0,-1,0"),
    ],
)
def test_values_that_are_right(name: str, value: str) -> None:
    assert clear(CODE, here(**{name: value}))


def test_an_option_may_be_newer_than_the_table() -> None:
    assert clear(CODE, here(PYTORCH_ALLOC_CONF="an_option_of_tomorrow:1"))


def test_says_what_to_write_for_a_slip() -> None:
    found = values(CODE, here(PYTORCH_ALLOC_CONF="expandable_segment:True"))
    assert (found["part"], found["better"]) == ("expandable_segment", "expandable_segments")


@cases(
    "flag, better",
    [
        ("--xla_gpu_all_reduce_combine_threshold_bytes=8M", "--xla_gpu_all_reduce_combine_threshold_bytes=8388608"),
        ("--xla_cpu_collective_timeout_seconds=2min", "--xla_cpu_collective_timeout_seconds=120"),
        ("--xla_gpu_enable_latency_hiding_scheduler=off", "--xla_gpu_enable_latency_hiding_scheduler=false"),
        ("--xla_force_host_platform_device_count=two", "--xla_force_host_platform_device_count=N"),
    ],
)
def test_says_what_a_flag_of_xla_takes(flag: str, better: str) -> None:
    assert values(CODE, here(XLA_FLAGS=flag))["better"] == better
