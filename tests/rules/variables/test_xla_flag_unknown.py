from allready.variables import table
from tests.cases import cases
from tests.rules.variables.made import clear, here, values

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
        "--xla_a_flag_that_only_its_owner_knows_of=1", "",
    ],
)  # fmt: skip
def test_flags_that_are_right_or_not_known(value: str) -> None:
    assert clear(CODE, here(XLA_FLAGS=value))


def test_the_fixed_line_can_be_typed() -> None:
    found = values(CODE, here(XLA_FLAGS="--xla_gpu_nccl_terminate_on_eror=true"))
    assert found["command"] == "export XLA_FLAGS=--xla_gpu_nccl_terminate_on_error=true"
