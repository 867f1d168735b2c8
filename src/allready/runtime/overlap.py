"""Whether a result has a place of its own for each of its elements."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

Axes = tuple[tuple[int, int], ...]
"""Of each dimension its length and its step, in elements."""


def is_shared(tensors: Iterable[Any]) -> bool:
    """Whether an element of one of these tensors lies in the memory of another element, of the same tensor or not."""
    layouts = sorted((_layout(t) for t in tensors if t.numel()), key=lambda layout: layout.begin)
    if not all(map(_is_apart, layouts)):
        return _is_marked_twice(layouts)
    if any(after.begin < before.end for before, after in itertools.pairwise(layouts)):
        return _is_marked_twice(layouts)  # perhaps columns of one table
    return False


class _Layout(Struct, frozen=True):
    """In bytes, but for the axes."""

    begin: int
    end: int
    size: int
    axes: Axes


def _layout(tensor: Any) -> _Layout:
    size = int(tensor.element_size())
    # A dimension of one element has a step too, which leads nowhere.
    axes = tuple((int(n), int(step)) for n, step in zip(tensor.shape, tensor.stride(), strict=True) if n > 1)
    begin = int(tensor.data_ptr())
    return _Layout(begin, begin + (1 + sum((n - 1) * step for n, step in axes)) * size, size, axes)


def _is_apart(layout: _Layout) -> bool:
    """Whether each dimension steps over all that the ones with shorter steps reach: true of every usual tensor."""
    reach = 0
    for length, step in sorted(layout.axes, key=lambda axis: axis[1]):
        if step <= reach:
            return False
        reach += (length - 1) * step
    return True


def _is_marked_twice(layouts: list[_Layout]) -> bool:
    """By marking the place of every element."""
    import torch

    if any(step == 0 for layout in layouts for _, step in layout.axes):
        return True
    first, last = layouts[0].begin, max(layout.end for layout in layouts)
    unit = math.gcd(*(layout.size for layout in layouts), *(layout.begin - first for layout in layouts))
    marks = torch.zeros((last - first) // unit, dtype=torch.bool)
    num_elements = 0
    for layout in layouts:
        wide = layout.size // unit
        lengths = [*(length for length, _ in layout.axes), wide]
        steps = [*(step * wide for _, step in layout.axes), 1]
        marks.as_strided(lengths, steps, (layout.begin - first) // unit).fill_(True)
        num_elements += math.prod(lengths)
    return int(marks.count_nonzero()) < num_elements
