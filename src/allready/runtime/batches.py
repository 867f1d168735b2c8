"""Batches of any usual kind: how many samples they have, and how they are cut into smaller ones."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def num_samples(batch: Any) -> int:
    """Length of the first dimension of the first array in the batch; 1 where there is none."""
    found = _length(batch)
    return 1 if found is None else found


def split(batch: Any, parts: int) -> list[Any]:
    """At most so many smaller batches, in order, of nearly equal size; the batch itself where it cannot be cut.

    Arrays are cut along their first dimension, containers of arrays in each of their members alike; what has no length,
    or another one than the first array, goes into every part.
    """
    length = _length(batch)
    if length is None or parts <= 1 or length <= 1:
        return [batch]
    parts = min(parts, length)
    edges = [length * n // parts for n in range(parts + 1)]
    return [_cut(batch, length, slice(begin, until)) for begin, until in itertools.pairwise(edges)]


def _length(batch: Any) -> int | None:
    if isinstance(batch, str | bytes):
        return None
    if isinstance(batch, Mapping):
        return _first(_length, batch.values())
    if isinstance(batch, Sequence):
        return _first(_length, batch) if _holds_arrays(batch) else len(batch)
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else None


def _first(length: Callable[[Any], int | None], members: Any) -> int | None:
    return next((found for found in map(length, members) if found is not None), None)


def _holds_arrays(batch: Sequence[Any]) -> bool:
    """Whether it is a collection of arrays, such as (inputs, targets), and not a sequence of samples."""
    return any(getattr(m, "shape", ()) or isinstance(m, Mapping | list | tuple) for m in batch)


def _cut(batch: Any, length: int, part: slice) -> Any:
    if isinstance(batch, Mapping):
        return {name: _cut(member, length, part) for name, member in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_cut(member, length, part) for member in batch))
    if isinstance(batch, list | tuple) and _holds_arrays(batch):
        return type(batch)(_cut(member, length, part) for member in batch)
    return batch[part] if _length(batch) == length else batch
