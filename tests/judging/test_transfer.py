"""What an operation can need, and whose default a time-out is."""

import pytest

from allready.judging import transfer
from allready.model.fill import in_english
from tests.cases import cases

ELEMENTS = 467_019_003


def test_the_seeds_tensor_takes_seconds_not_minutes() -> None:
    low, high = transfer.size_range(ELEMENTS)
    assert (low, high) == (934_038_006, 1_868_076_012)
    assert transfer.transfer_time_s(high, 1.0) == pytest.approx(1.868, abs=0.001)
    assert transfer.transfer_time_s(high, 300.0) == pytest.approx(0.0062, abs=0.0001)
    assert transfer.is_never_transfer(high, 600.053)
    assert not transfer.is_never_transfer(high, 12.0)


@cases(
    ("seconds", "what", "word"),
    [
        (600, None, "NCCL"), (600.053, None, "NCCL"), (600, "rendezvous", "joining"), (1800, None, "Gloo"),
        (1800.6, "store", "env://"), (300, None, "JAX"), (300, "store", "TCPStore"), (900, None, "static rendezvous"),
        (60, None, "c10d"), (480, None, "heartbeat"), (100, None, "heartbeats"),
    ],
)  # fmt: skip
def test_default_timeouts_are_recognised(seconds: float, what: str | None, word: str) -> None:
    default = transfer.default_timeout_of(seconds, what)
    assert default is not None
    assert word in in_english(default)


@cases("seconds", [0.0, 12.0, 59.9, 61.0, 599.0, 602.0, 1799.0, 3600.0, 7200.0])
def test_other_timeouts_were_set_by_somebody(seconds: float) -> None:
    assert transfer.default_timeout_of(seconds) is None


def test_numbers_that_make_no_sense_are_our_mistakes() -> None:
    with pytest.raises(ValueError, match="GB/s"):
        transfer.transfer_time_s(1, 0)


def test_the_onset_lies_before_the_line() -> None:
    assert transfer.onset_s(1000.0, 600.0) == 400.0
