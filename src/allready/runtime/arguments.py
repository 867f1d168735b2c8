"""What callers give, looked at before anything begins: where it is used it would be a failure of the job."""

import operator
import sys
from collections.abc import Mapping
from numbers import Real
from types import MappingProxyType
from typing import Any

from allready.errors import UsageError

MOST = (1 << 63) - 1
"""That a message to the hub carries."""


def index_of(given: Any) -> int | None:
    """A whole number of any kind; None for everything else, `True` among it."""
    try:
        return None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        return None


def whole(given: Any, name: str, *, least: int = -MOST, most: int = MOST) -> int:
    """A whole number within bounds.

    Raises:
        UsageError: it is none, or outside.
    """
    number = index_of(given)
    if number is not None and least <= number <= most:
        return number
    if most != MOST:
        raise UsageError(
            "{name}: a whole number from {least} to {most}, not {given!r}",
            name=name,
            least=least,
            most=most,
            given=given,
        )
    if least != -MOST:
        raise UsageError("{name}: a whole number, at least {least}, not {given!r}", name=name, least=least, given=given)
    raise UsageError("{name}: a whole number, not {given!r}", name=name, given=given)


def number(given: Any, name: str, *, least: float, most: float = sys.float_info.max) -> None:
    """A number within bounds, of any kind, as numpy's; not `True`, which is a mistake here, and not a NaN.

    Raises:
        UsageError: it is none, or outside.
    """
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if is_number and least <= given <= most:
        return
    if most == sys.float_info.max:
        raise UsageError("{name}: a number, at least {least}, not {given!r}", name=name, least=least, given=given)
    raise UsageError(
        "{name}: a number from {least} to {most}, not {given!r}", name=name, least=least, most=most, given=given
    )


def functions(needed: Mapping[str, Any], optional: Mapping[str, Any] = MappingProxyType({})) -> None:
    """By the names of the arguments; `optional` ones may be None.

    Raises:
        UsageError: one cannot be called.
    """
    for name, function in (*needed.items(), *((n, f) for n, f in optional.items() if f is not None)):
        if not callable(function):
            raise UsageError("{name}: a function is needed, not {given!r}", name=name, given=function)
