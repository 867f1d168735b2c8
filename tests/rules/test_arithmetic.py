"""Arithmetic over logged numbers."""

import math

import pytest

from allready.rules import _arithmetic as arithmetic
from allready.text.ui import table
from tests.cases import cases

ELEMENTS = 467_019_003


def test_the_seeds_tensor_takes_seconds_not_minutes() -> None:
    low, high = arithmetic.size_range(ELEMENTS)
    assert (low, high) == (934_038_006, 1_868_076_012)
    assert arithmetic.transfer_time_s(high, 1.0) == pytest.approx(1.868, abs=0.001)
    assert arithmetic.transfer_time_s(high, 300.0) == pytest.approx(0.0062, abs=0.0001)
    assert arithmetic.is_never_transfer(high, 600.053)
    assert not arithmetic.is_never_transfer(high, 12.0)


def test_a_known_type_leaves_one_size() -> None:
    assert arithmetic.size_range(10, "bfloat16") == (20, 20)
    assert arithmetic.size_range(10, "float32") == (40, 40)
    assert arithmetic.size_range(10, "float64") == (80, 80)
    assert arithmetic.size_range(10, "never heard of") == (20, 40)


@cases(
    ("seconds", "what", "word"),
    [
        (600, None, "NCCL"), (600.053, None, "NCCL"), (600, "rendezvous", "joining"), (1800, None, "Gloo"),
        (1800.6, "store", "env://"), (300, None, "JAX"), (300, "store", "TCPStore"), (900, None, "static rendezvous"),
        (60, None, "c10d"), (480, None, "heartbeat"), (100, None, "heartbeats"),
    ],
)  # fmt: skip
def test_default_timeouts_are_recognised(seconds: float, what: str | None, word: str) -> None:
    assert word in (arithmetic.default_timeout_of(seconds, what) or "")
    assert arithmetic.is_default_timeout(seconds)


@cases("seconds", [0.0, 12.0, 59.9, 61.0, 599.0, 602.0, 1799.0, 3600.0, 7200.0])
def test_other_timeouts_were_set_by_somebody(seconds: float) -> None:
    assert arithmetic.default_timeout_of(seconds) is None
    assert arithmetic.default_timeout_name(seconds) is None


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_default_has_its_words(language: str) -> None:
    words = table(language, "diagnose")
    names = {arithmetic.default_timeout_name(s, w) for s, ms in arithmetic._DEFAULTS.items() for w in ms}
    assert len(names) == sum(map(len, arithmetic._DEFAULTS.values()))
    assert {f"timeout_{name}" for name in names} == {key for key in words if key.startswith("timeout_")}


def test_a_ring_moves_nearly_twice_the_size() -> None:
    assert arithmetic.ring_all_reduce_time_s(1e9, 2, 1.0) == pytest.approx(1.0)
    assert arithmetic.ring_all_reduce_time_s(1e9, 1024, 1.0) == pytest.approx(2.0, rel=0.01)
    assert arithmetic.ring_all_reduce_time_s(1e9, 1, 1.0) == 0.0


def test_the_busiest_link_by_operation() -> None:
    assert arithmetic.collective_bytes("all_reduce", 100, 4) == 150
    assert arithmetic.collective_bytes("all_gather", 100, 4) == 75
    assert arithmetic.collective_bytes("broadcast", 100, 4) == 100
    assert arithmetic.collective_bytes("send", 100, 2) == 100
    assert arithmetic.collective_bytes("all_reduce", 100, 1) == 0


def test_numbers_that_make_no_sense_are_our_mistakes() -> None:
    with pytest.raises(ValueError, match="GB/s"):
        arithmetic.transfer_time_s(1, 0)
    with pytest.raises(ValueError, match="ranks"):
        arithmetic.ring_all_reduce_time_s(1, 0, 1.0)
    assert arithmetic.needed_gb_per_s(1e9, 0) == math.inf
    assert arithmetic.needed_gb_per_s(6e11, 600) == pytest.approx(1.0)


def test_the_onset_lies_before_the_line() -> None:
    assert arithmetic.onset_s(1000.0, 600.0) == 400.0
