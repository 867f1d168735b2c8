"""How a worker sends what it read.

A log's reading is dozens of small records, and a job has a thousand logs: it travels as MessagePack, which is written
and read faster than a pickle.  Everything else is pickled; there a dataclass travels as the tuple of its values, since
pickle asks a frozen one for its fields one by one on either side.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import msgspec

    from allready.evidence.reading import Reading

_Made = tuple[Callable[..., Any], tuple[Any, ...]]

_IN_LOGS = ("source", "events", "processes", "deaths", "op_streams")
"""Fields of the reading of a log."""


@functools.cache
def register() -> None:
    """From now on this process sends pickled records that way.  Whoever gets them need do nothing."""
    from multiprocessing.reduction import ForkingPickler

    from allready import model
    from allready.evidence import reading

    for cls in (
        model.Event,
        model.Origin,
        model.ProcessRecord,
        model.CommRecord,
        model.Transport,
        model.Death,
        model.SourceRecord,
        model.ProcessStack,
        reading.OpStream,
        reading.OpShape,
        reading.Reading,
    ):
        ForkingPickler.register(cls, _reduced)


def packed(reading: "Reading") -> "bytes | Reading":
    """What to send: MessagePack for `unpacked`, or the reading itself where it has more than a log gives or what
    MessagePack cannot say (half a surrogate pair, a number above 64 bits)."""
    mine, others = _logs_and_others()
    if reading.source.kind != "log" or any(others(reading)):
        return reading
    try:
        return _encoder().encode(mine(reading))
    except (UnicodeEncodeError, OverflowError):
        return reading


def unpacked(sent: "bytes | Reading") -> "Reading":
    """The reading that was sent.

    Raises:
        ValueError: a value is not what its field says.
    """
    if not isinstance(sent, bytes):
        return sent
    import msgspec

    from allready.evidence.reading import Reading

    try:
        return Reading(**dict(zip(_IN_LOGS, _decoder().decode(sent), strict=True)))
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


@functools.cache
def _logs_and_others() -> tuple[Callable[[Any], tuple[Any, ...]], Callable[[Any], tuple[Any, ...]]]:
    from allready.evidence.reading import Reading

    others = [field.name for field in fields(Reading) if field.name not in _IN_LOGS]
    return attrgetter(*_IN_LOGS), attrgetter(*others)


@functools.cache
def _encoder() -> "msgspec.msgpack.Encoder":
    import msgspec

    return msgspec.msgpack.Encoder()


@functools.cache
def _decoder() -> "msgspec.msgpack.Decoder[Any]":
    import typing

    import msgspec

    from allready.evidence.reading import Reading

    hints = typing.get_type_hints(Reading)
    row: Any = tuple  # mypy takes no type that is put together only now
    return msgspec.msgpack.Decoder(row[tuple(hints[name] for name in _IN_LOGS)])


def _reduced(item: Any) -> _Made:
    cls: type = type(item)
    return _made, (cls, _values(cls)(item))


def _made(cls: type, values: Sequence[Any]) -> Any:
    new: Any = object.__new__(cls)
    for set_, value in zip(_setters(cls), values, strict=True):
        set_(new, value)
    return new


@functools.cache
def _values(cls: type) -> Callable[[Any], tuple[Any, ...]]:
    """Gives an item's values in the order of its fields."""
    return attrgetter(*(field.name for field in fields(cls)))


@functools.cache
def _setters(cls: type) -> tuple[Callable[[Any, Any], None], ...]:
    """Put values into an item, also into a frozen one, which asks `__setattr__` only; the classes have slots."""
    return tuple(getattr(cls, field.name).__set__ for field in fields(cls))
