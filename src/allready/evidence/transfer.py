"""Makes what readers give cheap to send from a worker: a dataclass travels as the tuple of its values.

Left alone, pickle asks a frozen dataclass for its fields one by one on either side, ten times as slowly.
"""

import functools
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any

_set = object.__setattr__


@functools.cache
def register() -> None:
    """From now on this process sends `Reading`s that way.  Whoever gets them need do nothing."""
    from multiprocessing.reduction import ForkingPickler

    from allready import model
    from allready.evidence import reading

    for cls in (
        model.Event, model.Origin, model.ProcessRecord, model.CommRecord, model.Transport, model.Death,
        model.SourceRecord, model.ProcessStack, reading.Reading, reading.OpStream, reading.OpShape,
    ):  # fmt: skip
        ForkingPickler.register(cls, _reducer(cls))


def _reducer(cls: type) -> Callable[[Any], tuple[Any, ...]]:
    values = attrgetter(*_names(cls))
    return lambda item: (_made, (cls, values(item)))


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


def _made(cls: type, values: tuple[Any, ...]) -> Any:
    new: Any = object.__new__(cls)
    for name, value in zip(_names(cls), values, strict=True):
        _set(new, name, value)
    return new
