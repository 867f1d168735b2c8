from tests.cases import cases
from tests.rules.variables.made import clear, here, software, values

CODE = "VAR007"
NEW = software(torch="2.15.0+cu130")


@cases(
    "name",
    [
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DESYNC_DEBUG",
        "TORCH_NCCL_NAN_CHECK",
    ],
)  # fmt: skip
def test_names_that_the_new_backend_does_not_read(name: str) -> None:
    found = values(CODE, here(**{name: "1"}), software=NEW)
    assert (found["backend"], found["command"]) == ("nccl2", f"unset {name}")


@cases(
    "name", ["TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_HIGH_PRIORITY", "NCCL_DEBUG"]
)
def test_names_that_it_reads(name: str) -> None:
    assert clear(CODE, here(**{name: "1"}), software=NEW)


def test_the_earlier_backend_reads_them() -> None:
    made = here(TORCH_NCCL_NAN_CHECK="1")
    assert clear(CODE, made, software=software(torch="2.13.0"))
    assert clear(CODE, made, software=software(torch="2.14.1"))
    assert clear(CODE, here(TORCH_NCCL_NAN_CHECK="1", TORCH_DIST_USE_NCCL2="0"), software=NEW)


def test_the_new_one_can_be_asked_for_before() -> None:
    made = here(TORCH_NCCL_NAN_CHECK="1", TORCH_DIST_USE_NCCL2="1")
    assert values(CODE, made, software=software(torch="2.14.1"))["name"] == "TORCH_NCCL_NAN_CHECK"


def test_without_a_version_nothing_is_claimed() -> None:
    assert clear(CODE, here(TORCH_NCCL_NAN_CHECK="1"), software=software())
