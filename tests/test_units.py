import math

from hypothesis import given
from hypothesis import strategies as st

from allready import units
from tests.cases import cases


@cases(
    ("num_bytes", "text"),
    [(0, "0 B"), (64, "64 B"), (1023, "1023 B"), (1024, "1 KiB"), (1400, "1.37 KiB"), (9000, "8.79 KiB"),
     (2**20, "1 MiB"), (2**20 - 1, "1 MiB"), (141 * 2**30, "141 GiB"), (2**60, "1024 PiB"), (None, "–"),
     (math.nan, "–")],
)  # fmt: skip
def test_sizes_are_powers_of_1024(num_bytes: float | None, text: str) -> None:
    assert units.size(num_bytes) == text


@cases(
    ("seconds", "text"),
    [(0, "0 s"), (1.23e-5, "12.3 µs"), (9.999996e-4, "1 ms"), (1e-3, "1 ms"), (0.00123, "1.23 ms"), (0.9999, "1 s"),
     (2.1, "2.1 s"), (99.94, "99.9 s"), (99.96, "1 min 40 s"), (200, "3 min 20 s"), (7260, "2 h 1 min"),
     (-0.0001, "-100 µs"), (None, "–"), (math.inf, "–")],
)  # fmt: skip
def test_times_have_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert units.time(seconds) == text


@cases(
    ("value", "text"), [(0, "0"), (15.7, "15.7"), (392.04, "392"), (0.01234, "0.0123"), (1234.5, "1234"), (None, "–")]
)
def test_bandwidths_keep_three_digits(value: float | None, text: str) -> None:
    assert units.bandwidth(value) == text


def test_units_are_said_where_no_column_head_says_them() -> None:
    assert units.bandwidth_with_unit(15.7) == "15.7 GB/s"
    assert units.link_speed(100_000) == "100 Gbit/s"
    assert units.link_speed(100) == "100 Mbit/s"
    assert units.seconds(2) == "2.0"
    assert [units.bandwidth_with_unit(None), units.link_speed(None), units.seconds(math.nan)] == ["–"] * 3


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_the_shown_number_is_within_half_a_percent(value: float) -> None:
    assert abs(float(units.digits(value)) - value) <= 0.0051 * value or value < 1e-6
    assert "e" not in units.digits(value)


def test_large_numbers_are_written_as_models_are_named() -> None:
    shown = [units.count_of_many(n) for n in (124_439_808, 7e9, 50_000, 1.5e12, 999, 1000, 6_738_415_616)]
    assert shown == ["124M", "7B", "50K", "1.5T", "999", "1K", "6.74B"]
