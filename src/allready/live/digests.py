"""What all members of a group must have alike in one operation, as one number per operation.

The agent makes digests from the recorder's ring (`digests_of`), the monitor compares them (`pace.PaceBook`): equal on
all ranks of a right program, whatever may legitimately differ between ranks is left out.
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allready.evidence.flight.names import dtype_name, operation_name
from allready.evidence.operation_names import ALIKE, NOTHING

UNKNOWN = 0
"""Digest of an operation of which the recorder has too little; it is never compared."""

_BITS = 32
_NAME_SHIFT = 24
_MASK = (1 << _BITS) - 1
_MAX_ROOTS = 1 << 30

NAMES = (
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "gather", "reduce", "reduce_scatter", "scatter",
)  # fmt: skip
"""Operations that a digest names: the place, from 1 on, is its upper byte.  Append only: agents compare digests."""
_OTHER_NAMES = 128
"""Of all other operations the upper byte is from here on, by a sum over the name."""


def digests_of(entries: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Digests by `collective_seq_id` of one group's entries in a ring; called by the agent.

    Several entries of one number (a coalesced call) give one digest.  `UNKNOWN` where an entry lacks what it takes.
    """
    parts: dict[int, list[str | None]] = {}
    for entry in entries:
        seq = entry.get("collective_seq_id")
        if isinstance(seq, int) and not entry.get("is_p2p"):
            parts.setdefault(seq, []).append(_signature(entry))
    return {seq: _number(signatures) for seq, signatures in parts.items()}


def with_root(digest: int, root: int | None) -> int:
    """The digest with the root that the call named (a global rank) in its upper half; nothing there: not known."""
    return digest if digest == UNKNOWN or root is None or not 0 <= root < _MAX_ROOTS else digest | (root + 1) << _BITS


def call_of(digest: int) -> int:
    """The digest without the root."""
    return digest & _MASK


def is_same_operation(one: int, other: int) -> bool:
    """Whether both are calls of one operation, whatever their sizes, types and roots."""
    return call_of(one) >> _NAME_SHIFT == call_of(other) >> _NAME_SHIFT


def name_of(digest: int) -> str | None:
    """The operation, where it is one of NAMES."""
    place = call_of(digest) >> _NAME_SHIFT
    return NAMES[place - 1] if 0 < place <= len(NAMES) else None


def root_of(digest: int) -> int | None:
    """The root alone."""
    return (digest >> _BITS) - 1 if digest >> _BITS else None


def differ(one: int, other: int) -> bool:
    """Whether two ranks did not do the same, as far as both digests show."""
    if call_of(one) != call_of(other):
        return True
    return one != other and root_of(one) is not None and root_of(other) is not None


def _number(signatures: Sequence[str | None]) -> int:
    known = [s for s in signatures if s is not None]
    if len(known) < len(signatures) or len({s.partition("|")[0] for s in known}) != 1:
        return UNKNOWN  # one number used by two backends of the group
    name = "+".join(sorted({s.split("|")[1] for s in known}))
    place = NAMES.index(name) + 1 if name in NAMES else _OTHER_NAMES + zlib.crc32(name.encode()) % _OTHER_NAMES
    return place << _NAME_SHIFT | zlib.crc32("\n".join(known).encode()) & (1 << _NAME_SHIFT) - 1


def _signature(entry: Mapping[str, Any]) -> str | None:
    recorded = entry.get("profiling_name")
    if not isinstance(recorded, str) or not recorded:
        return None
    name, backend, _, _ = operation_name(recorded)
    which = NOTHING if "sparse" in recorded else ALIKE.get(name, NOTHING)
    if which == NOTHING:
        return f"{backend}|{name}"
    side = which.removesuffix("s")
    elements, dtype = _elements(entry.get(f"{side}_sizes")), _dtype(entry.get(f"{side}_dtypes"))
    return None if elements is None or dtype is None else f"{backend}|{name}|{elements}|{dtype}"


def _elements(sizes: object) -> int | None:
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
        return None
    total = 0
    for size in sizes:
        if not isinstance(size, Sequence) or not all(isinstance(n, int) for n in size):
            return None
        total += math.prod(size)
    return total


def _dtype(dtypes: object) -> str | None:
    if not isinstance(dtypes, Sequence) or isinstance(dtypes, str) or not dtypes:
        return None
    return dtype_name(str(dtypes[0]))
