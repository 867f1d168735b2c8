from allready.variables import table
from tests.cases import cases
from tests.rules.variables.made import clear, here, software, values

CODE = "VAR033"


def test_a_flag_that_is_misspelt() -> None:
    found = values(CODE, here(XLA_FLAGS="--xla_gpu_nccl_terminate_on_eror=true --xla_gpu_graph_level=0"))
    assert (found["flag"], found["better"]) == ("--xla_gpu_nccl_terminate_on_eror", "--xla_gpu_nccl_terminate_on_error")


def test_a_flag_that_never_was() -> None:
    folk = next(n for n, row in table.load().items() if n.startswith("--xla") and row.is_folk)
    assert values(CODE, here(XLA_FLAGS=f"{folk}=true"))["flag"] == folk


@cases(
    "value",
    [
        "--xla_dump_to=/tmp/x --xla_dump_hlo_as_text",
        "--xla_gpu_ftz=true --xla_cpu_use_onednn=false", "",
    ],
)  # fmt: skip
def test_flags_that_are_right_or_not_known(value: str) -> None:
    assert clear(CODE, here(XLA_FLAGS=value))


def test_the_fixed_line_can_be_typed() -> None:
    found = values(CODE, here(XLA_FLAGS="--xla_gpu_nccl_terminate_on_eror=true"))
    assert found["command"] == "export XLA_FLAGS=--xla_gpu_nccl_terminate_on_error=true"


def test_a_flag_that_no_release_has() -> None:
    found = values(CODE, here(XLA_FLAGS="--xla_gpu_make_it_fast=true"))
    assert (found["flag"], found["better"]) == ("--xla_gpu_make_it_fast", None)


def test_a_flag_that_lacks_its_last_word() -> None:
    found = values(CODE, here(XLA_FLAGS="--xla_gpu_enable_latency_hiding=true"))
    assert found["better"] == "--xla_gpu_enable_latency_hiding_scheduler"


def test_a_flag_without_a_row_that_the_installed_release_has_not() -> None:
    made = here(XLA_FLAGS="--xla_gpu_enable_priority_fusion=true --xla_gpu_ftz=true")
    assert values(CODE, made, software=software(jaxlib="0.10.2"))["flag"] == "--xla_gpu_enable_priority_fusion"
    assert clear(CODE, made, software=software(jaxlib="0.4.30"))
    newer = here(XLA_FLAGS="--xla_cpu_experimental_ynn_fusion_type=1")
    assert values(CODE, newer, software=software(jaxlib="0.4.36"))["version"] == "0.4.36"
    assert clear(CODE, newer, software=software(jaxlib="0.12.0.1"))


def test_a_release_that_was_not_looked_at_may_have_any_flag() -> None:
    for jaxlib in ("0.4.20", "0.99.0"):
        assert clear(CODE, here(XLA_FLAGS="--xla_gpu_make_it_fast=true"), software=software(jaxlib=jaxlib))
