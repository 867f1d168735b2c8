from tests.cases import cases
from tests.rules.variables.made import clear, here, values

CODE = "VAR030"


@cases(
    "value, better",
    [
        ("/tmp/nccl.log", "/tmp/nccl.%h.%p.log"),
        ("/tmp/nccl", "/tmp/nccl.%h.%p"),
        ("/tmp/nccl.%h", "/tmp/nccl.%h.%p"),
        ("logs.d/nccl", "logs.d/nccl.%h.%p"),
    ],
)
def test_says_a_better_name(value: str, better: str) -> None:
    assert values(CODE, here(NCCL_DEBUG_FILE=value))["better"] == better


@cases("value", ["/tmp/nccl.%h.%p.log", "/tmp/nccl.%p", "/dev/stderr", "stdout", ""])
def test_names_that_differ(value: str) -> None:
    assert clear(CODE, here(NCCL_DEBUG_FILE=value))


def test_other_files_are_not_shared() -> None:
    assert clear(CODE, here(NCCL_TOPO_DUMP_FILE="/tmp/topo.xml", TORCH_NCCL_DEBUG_INFO_TEMP_FILE="/tmp/fr_"))


def test_in_this_environment_it_can_be_typed() -> None:
    assert values(CODE, here(NCCL_DEBUG_FILE="/tmp/a b"))["command"] == "export NCCL_DEBUG_FILE='/tmp/a b.%h.%p'"
