"""Which results share memory, so that what arrives for one element would overwrite another."""

from collections.abc import Callable
from typing import Any

import pytest

from allready.runtime.overlap import is_shared
from tests.cases import cases

torch = pytest.importorskip("torch")
TABLE, BYTES = torch.zeros(4, 6), torch.zeros(9, dtype=torch.uint8)


@cases(
    ("tensors", "shares"),
    [
        (lambda: [TABLE.t()], False),
        (lambda: [TABLE[1:3, ::2]], False),
        (lambda: [TABLE[2:2], TABLE], False),
        (lambda: TABLE.unbind(0), False),
        (lambda: TABLE.unbind(1), False),  # one lies between the elements of the other
        (lambda: [torch.zeros(20).as_strided((3, 2), (4, 6))], False),  # no dimension steps over the other
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
