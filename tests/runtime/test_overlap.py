"""Which results share memory, so that what arrives for one element would overwrite another."""

from collections.abc import Callable
from typing import Any

import pytest

from allready.runtime import overlap
from allready.runtime.overlap import is_shared
from tests.cases import cases

torch = pytest.importorskip("torch")
TABLE, BYTES, FAR = torch.zeros(4, 6), torch.zeros(9, dtype=torch.uint8), torch.empty(1 << 40, device="meta")


@cases(
    ("tensors", "shares"),
    [
        (lambda: [TABLE.t()], False),
        (lambda: [TABLE[1:3, ::2]], False),
        (lambda: [TABLE[2:2], TABLE], False),
        (lambda: TABLE.unbind(0), False),
        (lambda: TABLE.unbind(1), False),  # one lies between the elements of the other
        (lambda: [torch.zeros(20).as_strided((3, 2), (4, 6))], False),  # no dimension steps over the other
        (lambda: [torch.zeros(2, 1, 6)[..., n : n + 3] for n in (0, 3)], False),
        (lambda: [FAR.as_strided((2, 2), (1 << 38, (1 << 38) + 1))], False),  # no memory for a mark at each place
        (lambda: [FAR.as_strided((3, 3), (1 << 38, 1 << 37))], True),
        (lambda: [torch.zeros(1).expand(4)], True),
        (lambda: [torch.zeros(5).unfold(0, 3, 2)], True),
        (lambda: [torch.zeros(20).as_strided((3, 3), (4, 2))], True),
        (lambda: [TABLE[0], TABLE[3], TABLE[0]], True),
        (lambda: [TABLE.view(-1)[n : n + 3] for n in (0, 2)], True),
        (lambda: [TABLE[:, 1:3], TABLE[:, 2:4]], True),
        (lambda: [BYTES[n : n + 4] for n in (4, 1)], True),
    ],
)
def test_an_element_that_lies_in_anothers_memory_is_found(tensors: Callable[[], Any], shares: bool) -> None:
    assert is_shared(tensors()) == shares


def test_parts_of_a_usual_table_are_told_apart_without_their_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark at each place of a large result would take seconds in each call."""
    monkeypatch.delattr(overlap, "_is_marked_twice")
    table = torch.zeros(3, 4, 6, dtype=torch.float16)
    for parts in (table.chunk(2, 2), table.unbind(2), table.unbind(1), table.transpose(0, 2).chunk(3, 0)):
        assert not is_shared(parts)
    assert not is_shared([])
