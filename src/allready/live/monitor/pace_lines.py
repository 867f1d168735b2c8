"""What the monitor keeps of one rank's operations in one group: arrays of the last few hundred, oldest first."""

from array import array
from bisect import bisect_left

from allready.live.digests import UNKNOWN, name_of
from allready.model import PaceSample
from allready.units import size

BACKWARDS_S = 0.001
"""Creation times grow with the numbers; more than this the other way tells of another group of the same name."""


class PaceLine:
    """One rank in one group.  Numbers grow; creation times are on the clock of the rank's node.

    `generation`: as in the sample that was reported last.  `is_mixed`: the numbers of two recorders run through each
    other (a group of two backends), so that nothing can be known of it.
    """

    __slots__ = ("created", "digests", "generation", "is_mixed", "longest_gap_s", "seqs", "sizes")

    def __init__(self) -> None:
        self.seqs: array[int] = array("q")
        self.created: array[float] = array("d")
        self.digests: array[int] = array("Q")
        self.sizes: array[int] = array("q")
        self.generation = 0
        self.is_mixed = False
        self.longest_gap_s = 0.0

    def __len__(self) -> int:
        return len(self.seqs)

    def add(self, sample: PaceSample, most: int) -> list[tuple[int, int]]:
        """Take what is new of `sample`; returns (number, digest) of it.  Keeps at most twice `most` operations."""
        fresh: list[tuple[int, int]] = []
        if sample.generation < self.generation:
            return fresh
        if sample.generation > self.generation:
            self._drop(len(self.seqs))
            self.generation = sample.generation
        digests, sizes = sample.digests, sample.size_bytes
        with_digests, with_sizes = len(digests) == len(sample.seqs), len(sizes) == len(sample.seqs)
        last, time = (self.seqs[-1], self.created[-1]) if self.seqs else (-1, 0.0)
        for i, (seq, created) in enumerate(zip(sample.seqs, sample.created_s, strict=False)):
            if seq <= last:
                self.is_mixed |= i > 0 or created > time + BACKWARDS_S or (created < time - BACKWARDS_S and seq == last)
                continue  # reported already, or of another recorder
            if created < time - BACKWARDS_S:
                self.is_mixed = True
                continue
            if self.seqs and seq == last + 1:
                self.longest_gap_s = max(self.longest_gap_s, created - time)
            digest = digests[i] if with_digests else UNKNOWN
            if not 0 <= digest < 1 << 64:
                digest = UNKNOWN
            self.seqs.append(seq)
            self.created.append(created)
            self.digests.append(digest)
            self.sizes.append(sizes[i] if with_sizes and 0 <= sizes[i] < 1 << 62 else -1)
            fresh.append((seq, digest))
            last, time = seq, created
        if len(self.seqs) > 2 * most:
            self._drop(len(self.seqs) - most)
        return fresh

    def forget_before(self, created_s: float) -> None:
        """Drop what was created before."""
        if self.created and self.created[0] < created_s:
            self._drop(bisect_left(self.created, created_s))

    def forget(self) -> None:
        """Drop everything; the numbers may go on."""
        self._drop(len(self.seqs))

    def place_of(self, seq: int) -> int | None:
        """Index of a number, None when it is not kept."""
        if not self.seqs:
            return None
        at = seq - self.seqs[0]
        if 0 <= at < len(self.seqs) and self.seqs[at] == seq:
            return at
        at = bisect_left(self.seqs, seq)
        return at if at < len(self.seqs) and self.seqs[at] == seq else None

    def last_before(self, created_s: float) -> int | None:
        """The newest number that was created before; None where no such one is kept."""
        at = bisect_left(self.created, created_s) - 1
        return self.seqs[at] if at >= 0 else None

    def last_call(self) -> str | None:
        """`all_reduce (512 B)`: the newest one, where it is known."""
        name = name_of(self.digests[-1]) if self.digests else None
        return f"{name} ({size(self.sizes[-1])})" if name and self.sizes and self.sizes[-1] >= 0 else name

    def _drop(self, num: int) -> None:
        del self.seqs[:num], self.created[:num], self.digests[:num], self.sizes[:num]
