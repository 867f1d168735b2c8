"""Numbers for people: sizes, times and bandwidths with a unit and about three significant digits.

A number that is None, infinite or not a number is shown as `–`, never as 0.
"""

import math

KIB, MIB, GIB = 2**10, 2**20, 2**30
SLOW_GB_PER_S = 0.01
"""A bandwidth below this reads better in Mbit/s."""

UNKNOWN = "–"
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(num_bytes: float | None) -> str:
    """Bytes in powers of 1024: `64 B`, `1.37 KiB`, `8 MiB`."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return UNKNOWN
    value, step = float(num_bytes), 0
    while abs(value) >= 1024 and step < len(_BINARY) - 1:
        value, step = value / 1024, step + 1
    # 1023.999 KiB would round to "1024 KiB"
    if step < len(_BINARY) - 1 and float(digits(value)) >= 1024:
        value, step = value / 1024, step + 1
    return f"{digits(value)} {_BINARY[step]}"


def count_of_many(number: float) -> str:
    """A large number as models are named by it: `7B`, `124M`, `50K`."""
    for least, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= least:
            return f"{digits(number / least)}{letter}"
    return digits(number)


def time(seconds: float | None) -> str:
    """Seconds as `12.3 µs`, `1.23 ms`, `2.1 s` or `3 min 20 s`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{time(-seconds)}"
    if seconds == 0:
        return "0 s"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        # The rounded number decides: 999.9996 µs is 1 ms.
        if seconds < limit and float(digits(seconds * factor)) < 1000:
            return f"{digits(seconds * factor)} {unit}"
    if seconds < 99.95:
        return f"{digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def seconds(value: float | None) -> str:
    """Seconds with one decimal and no unit, for places where the text has the unit: `2.0`."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.1f}"


def bandwidth(gb_per_s: float | None) -> str:
    """GB/s (10^9 bytes) without the unit, for columns whose head has it: `392`, `15.7`, `0.0123`."""
    return UNKNOWN if gb_per_s is None or not math.isfinite(gb_per_s) else digits(gb_per_s)


def bandwidth_with_unit(gb_per_s: float | None) -> str:
    """GB/s (10^9 bytes) with the unit: `15.7 GB/s`; a slow one as `4.1 Mbit/s`."""
    if gb_per_s is None or not math.isfinite(gb_per_s):
        return UNKNOWN
    return f"{digits(gb_per_s)} GB/s" if gb_per_s >= SLOW_GB_PER_S else path_speed(gb_per_s)


def path_speed(gb_per_s: float | None) -> str:
    """GB/s (10^9 bytes) over a network path, in bits as links are: `1.41 Gbit/s`, `4.1 Mbit/s`."""
    return UNKNOWN if gb_per_s is None else link_speed(gb_per_s * 8000)


def link_speed(mbit_per_s: float | None) -> str:
    """A network interface's speed: `100 Gbit/s`, `100 Mbit/s`."""
    if mbit_per_s is None or not math.isfinite(mbit_per_s):
        return UNKNOWN
    return f"{digits(mbit_per_s / 1000)} Gbit/s" if mbit_per_s >= 1000 else f"{digits(mbit_per_s)} Mbit/s"


def digits(value: float) -> str:
    """About three significant digits, without exponent and without trailing zeros: `1.5`, `15.7`, `1023`, `0.00123`."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 9)}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"
