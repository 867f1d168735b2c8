from allready.model import Severity
from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, values

CODE = "VAR009"


@cases(
    "name, value, read, better",
    [
        ("NCCL_BUFFSIZE", "8M", "8", "8388608"),
        ("NCCL_BUFFSIZE", "4MiB", "4", "4194304"),
        ("NCCL_BUFFSIZE", "4,194,304", "4", None),
        ("NCCL_IB_RETRY_CNT", "7x", "7", None),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "30min", "30", "1800"),
    ],
)
def test_says_what_is_read_and_what_is_meant(name: str, value: str, read: str, better: str) -> None:
    found = values(CODE, here(**{name: value}))
    assert (found["read"], found["better"]) == (read, better)


def test_the_own_unit_is_harmless() -> None:
    [hit] = hits(CODE, here(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="600s"))
    assert hit.severity is Severity.INFO


@cases("value", ["8388608", "0x800000", "", " 8388608 "])
def test_plain_numbers_are_right(value: str) -> None:
    assert clear(CODE, here(NCCL_BUFFSIZE=value))


def test_one_number_for_each_level_is_right() -> None:
    assert clear(CODE, here(OMP_NUM_THREADS="4,2"))
