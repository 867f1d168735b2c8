from allready.variables import table
from allready.variables.table import Reader
from allready.variables.versions import Standing, is_before, nccl_backend, standing, version
from tests.cases import cases


@cases(
    "text, expected",
    [
        ("2.15.0+cu130", (2, 15, 0)),
        ("2.4", (2, 4)),
        ("v2.28.9-1", (2, 28, 9)),
        ("", ()),
        ("unknown", ()),
        ("2.10.0a0+git1", (2, 10, 0)),
    ],
)
def test_a_version_is_its_numbers(text: str, expected: tuple[int, ...]) -> None:
    assert version(text) == expected


def test_missing_numbers_are_zero() -> None:
    assert not is_before((2, 15), (2, 15, 0))
    assert not is_before((2, 15, 0), (2, 15))
    assert is_before((2, 9), (2, 15))


@cases(
    ("torch", "switch", "expected"),
    [
        ("2.13.0", None, Reader.NCCL),
        ("2.14.1", None, Reader.NCCL),
        ("2.14.1", "1", Reader.NCCL2),
        ("2.15.0", None, Reader.NCCL2),
        ("2.15.0", "0", Reader.NCCL),
        ("", None, None),
    ],
)
def test_the_back_end_follows_from_version_and_switch(torch: str, switch: str | None, expected: Reader | None) -> None:
    assert nccl_backend({"torch": torch}, switch) is expected


@cases(
    "name, versions, expected",
    [
        ("NCCL_DEBUG", {}, Standing.READ),
        ("NCCL_LL_THRESHOLD", {}, Standing.REMOVED),
        ("TORCH_FR_DUMP_ON_TIMEOUT", {"torch": "2.13.0"}, Standing.NOT_YET),
        ("TORCH_FR_DUMP_ON_TIMEOUT", {"torch": "2.15.0"}, Standing.READ),
        ("TORCH_FR_DUMP_ON_TIMEOUT", {}, Standing.READ),
        ("NCCL_BLOCKING_WAIT", {"torch": "2.1.0"}, Standing.READ),
        ("NCCL_BLOCKING_WAIT", {"torch": "2.13.0"}, Standing.DEPRECATED),
        ("TORCH_NCCL_AVOID_RECORD_STREAMS", {"torch": "2.15.0"}, Standing.REMOVED),
    ],
)
def test_standing(name: str, versions: dict[str, str], expected: Standing) -> None:
    assert standing(table.load()[name], versions) is expected


def test_a_back_end_may_ignore_what_the_version_has() -> None:
    row = table.load()["TORCH_NCCL_NAN_CHECK"]
    assert standing(row, {"torch": "2.15.0"}, Reader.NCCL2) is Standing.IGNORED
    assert standing(row, {"torch": "2.15.0"}, Reader.NCCL) is Standing.READ
