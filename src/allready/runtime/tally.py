"""Metrics of batches, and what they come to over all ranks.  Pure."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

Sums = dict[str, tuple[float, float]]
"""Metric -> the sum of value times weight, and the sum of the weights."""


class Share(Struct, frozen=True, kw_only=True):
    """What one rank tells the others of its part.

    `rank`: its number at the start of the job.  `at`: batches that it has gone through, of which `done` were evaluated.
    `expected`: batches that it has; None: its loader does not say.  `is_whole`: it has gone through all of them and
    left none out.
    """

    rank: int
    at: int
    done: int
    expected: int | None = None
    is_whole: bool = False
    sums: Sums = {}
    error: str = ""


def weighed(metrics: Any, weight: float) -> Sums:
    """The metrics of one batch as sums.

    Raises:
        TypeError: they are not a mapping of names to numbers.
        ValueError: the weight is negative, or no finite number: it would take the means of all ranks with it.
    """
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight of a batch must be a number from 0 on, not {weight}")
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(f"the evaluation function must return a mapping of names to numbers, not {type(metrics)}")
    # What has no weight does not count, also where its mean is no number, as that of an empty batch.
    return {str(name): (_number(name, value) * weight if weight else 0.0, weight) for name, value in metrics.items()}


def _number(name: object, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"metric {name!s} is not a number: {error}") from error


def total(parts: Iterable[Sums]) -> Sums:
    """The sum of several."""
    found: Sums = {}
    for part in parts:
        for name, (value, weight) in part.items():
            before = found.get(name, (0.0, 0.0))
            found[name] = (before[0] + value, before[1] + weight)
    return found


def means(sums: Sums) -> dict[str, float]:
    """Weighted means; a metric without weight has none."""
    return {name: value / weight for name, (value, weight) in sorted(sums.items()) if weight}


def coverage(done: int, expected: Mapping[int, int | None]) -> float | None:
    """The part of all batches that was evaluated; None where a rank did not say how many it has."""
    counts = [count for count in expected.values() if count is not None]
    if len(counts) < len(expected):
        return None
    return min(1.0, done / sum(counts)) if sum(counts) else 1.0
