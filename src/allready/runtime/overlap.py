"""Whether a result has a place of its own for each of its elements."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

Axes = tuple[tuple[int, int], ...]
"""Of each dimension its length and its step, in bytes."""
_SPARSE = 8
"""An element's number takes so many bytes, and the mark at a place one."""


def is_shared(tensors: Iterable[Any]) -> bool:
    """Whether an element of one of these tensors lies in the memory of another element, of the same tensor or not."""
    return _is_any_twice([_layout(t) for t in tensors if t.numel()])


class _Layout(Struct, frozen=True):
    """In bytes."""

    begin: int
    end: int
    size: int
    axes: Axes


def _layout(tensor: Any) -> _Layout:
    size = int(tensor.element_size())
    # A dimension of one element has a step too, which leads nowhere.
    axes = tuple((int(n), int(step) * size) for n, step in zip(tensor.shape, tensor.stride(), strict=True) if n > 1)
    begin = int(tensor.data_ptr())
    return _Layout(begin, begin + sum((n - 1) * step for n, step in axes) + size, size, axes)


def _is_any_twice(layouts: list[_Layout]) -> bool:
    return any(_is_twice(some) for some in _touching(layouts))


def _touching(layouts: list[_Layout]) -> Iterator[list[_Layout]]:
    """Those of which one begins before the others end: they may be columns of one table."""
    some: list[_Layout] = []
    end = 0
    for layout in sorted(layouts, key=lambda layout: layout.begin):
        if some and layout.begin >= end:
            yield some
            some = []
        some.append(layout)
        end = max(end, layout.end)
    if some:
        yield some


def _is_twice(layouts: list[_Layout]) -> bool:
    if any(step == 0 for layout in layouts for _, step in layout.axes):
        return True
    if len(layouts) == 1 and _is_apart(layouts[0]):
        return False
    rest = _of_one_row(layouts)
    return _is_marked_twice(layouts) if rest is None else _is_any_twice(rest)


def _is_apart(layout: _Layout) -> bool:
    """Whether each dimension steps over all that the ones with shorter steps reach: true of every usual tensor."""
    reach = layout.size
    for length, step in sorted(layout.axes, key=lambda axis: axis[1]):
        if step < reach:
            return False
        reach += (length - 1) * step
    return True


def _of_one_row(layouts: list[_Layout]) -> list[_Layout] | None:
    """Without the dimension of the longest step, where all have the same and it steps over all of the rest: then one
    row is as another.  None: it is not so."""
    outer = {max(layout.axes, key=lambda axis: axis[1], default=(1, 0)) for layout in layouts}
    length, step = outer.pop()
    reach = (length - 1) * step
    begin, end = min(layout.begin for layout in layouts), max(layout.end for layout in layouts) - reach
    if outer or length == 1 or end - begin > step:
        return None
    found = []
    for layout in layouts:
        at = layout.axes.index((length, step))
        axes = layout.axes[:at] + layout.axes[at + 1 :]
        found.append(_Layout(layout.begin, layout.end - reach, layout.size, axes))
    return found


def _is_marked_twice(layouts: list[_Layout]) -> bool:
    """By marking the place of every element, or by numbering the places where these lie far apart."""
    import torch

    first, last = layouts[0].begin, max(layout.end for layout in layouts)
    unit = math.gcd(*(layout.size for layout in layouts), *(layout.begin - first for layout in layouts))
    num_places = (last - first) // unit
    parts = []
    for layout in layouts:
        axes = (*layout.axes, (layout.size // unit, unit))
        parts.append(([n for n, _ in axes], [step // unit for _, step in axes], (layout.begin - first) // unit))
    num_elements = sum(math.prod(lengths) for lengths, _, _ in parts)
    if num_elements > num_places:
        return True
    if num_places > _SPARSE * num_elements:
        places = [_numbers(*part) for part in parts]
        return int(torch.cat(places).unique().numel()) < num_elements
    marks = torch.zeros(num_places, dtype=torch.bool)
    for part in parts:
        marks.as_strided(*part).fill_(True)
    return int(marks.count_nonzero()) < num_elements


def _numbers(lengths: list[int], steps: list[int], begin: int) -> Any:
    import torch

    places = torch.tensor([begin])
    for length, step in zip(lengths, steps, strict=True):
        places = (places[:, None] + torch.arange(length) * step).flatten()
    return places
