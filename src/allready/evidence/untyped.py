"""JSON of other programs: a value of the wrong type is as if it were not there."""

from collections.abc import Mapping
from typing import Any


def as_dict(value: object) -> Mapping[str, Any]:
    """The object, empty where it is none."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The list, empty where it is none."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """The text, "" where it is none."""
    return value if isinstance(value, str) else ""


def as_int(value: object, low: int, high: int) -> int | None:
    """A whole number from `low` to `high`; no bool."""
    return value if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high else None
