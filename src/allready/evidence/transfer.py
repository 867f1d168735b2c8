"""Makes what readers give cheap to send from a worker: a dataclass travels as the tuple of its values.

Left alone, pickle asks a frozen dataclass for its fields one by one on either side, ten times as slowly.  Events, of
which a log has the most, travel as columns, and their origins too, so that pickle meets plain values only.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

_Made = tuple[Callable[..., Any], tuple[Any, ...]]


@functools.cache
def register() -> None:
    """From now on this process sends `Reading`s that way.  Whoever gets them need do nothing."""
    from multiprocessing.reduction import ForkingPickler

    from allready import model
    from allready.evidence import reading

    for cls in (
        model.Event, model.Origin, model.ProcessRecord, model.CommRecord, model.Transport, model.Death,
        model.SourceRecord, model.ProcessStack, reading.OpStream, reading.OpShape,
    ):  # fmt: skip
        ForkingPickler.register(cls, _reduced)
    ForkingPickler.register(reading.Reading, _reduced_reading)


def _reduced(item: Any) -> _Made:
    cls: type = type(item)
    return _made, (cls, _values(cls)(item))


def _made(cls: type, values: Sequence[Any]) -> Any:
    new: Any = object.__new__(cls)
    for set_, value in zip(_setters(cls), values, strict=True):
        set_(new, value)
    return new


def _reduced_reading(reading: Any) -> _Made:
    cls: type = type(reading)
    values = list(_values(cls)(reading))
    at = _names(cls).index("events")
    if not values[at]:
        return _made, (cls, values)
    event: type = type(values[at][0])
    columns = _columns(values[at])
    of_origin = _names(event).index("origin")
    origin = type(columns[of_origin][0])
    columns[of_origin] = _columns(columns[of_origin])
    values[at] = columns
    return _made_reading, (cls, values, (at, event), (of_origin, origin))


def _made_reading(cls: type, values: list[Any], events: tuple[int, type], origins: tuple[int, type]) -> Any:
    """`events`, `origins`: where their columns are, among the values and among the events' columns; their class."""
    at, event = events
    of_origin, origin = origins
    columns = values[at]
    columns[of_origin] = _made_all(origin, columns[of_origin])
    values[at] = _made_all(event, columns)
    return _made(cls, values)


def _columns(items: Sequence[Any]) -> list[Any]:
    cls: type = type(items[0])
    return list(zip(*map(_values(cls), items), strict=True))


def _made_all(cls: type, columns: Sequence[Sequence[Any]]) -> list[Any]:
    made: list[Any] = [object.__new__(cls) for _ in columns[0]]
    for set_, column in zip(_setters(cls), columns, strict=True):
        for new, value in zip(made, column, strict=True):
            set_(new, value)
    return made


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


@functools.cache
def _values(cls: type) -> Callable[[Any], tuple[Any, ...]]:
    """Gives an item's values in the order of its fields."""
    return attrgetter(*_names(cls))


@functools.cache
def _setters(cls: type) -> tuple[Callable[[Any, Any], None], ...]:
    """Put values into an item, also into a frozen one, which asks `__setattr__` only; the classes have slots."""
    return tuple(getattr(cls, name).__set__ for name in _names(cls))
