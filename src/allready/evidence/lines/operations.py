"""Recognises the operation lines of a chunk and hands them to their streams."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from allready.evidence import prefix
from allready.evidence.clock import Clock
from allready.evidence.lines import coll
from allready.evidence.lines.chunk import APART, UNKNOWN, Lines
from allready.evidence.lines.literals import Ints
from allready.evidence.lines.streams import Streams
from allready.evidence.lines.templates import Templates, Words, dates, decimals
from allready.evidence.reading import OpShape
from allready.model import Origin

WORD = coll.MARKER[2:6]
"""Four bytes of every operation line."""

_MOST_LEARNT = 64  # layouts in one chunk; what is left is parsed line by line
_MANY = 200  # templates of one layout, from which on the number of elements is read and no part of the template
_MOST_DIGITS = 18
_FEW = 8
_MOST_OPEN = 200_000
_CLOCK = Clock(0.0)  # prefixes are read for who wrote a line, not for when


def tag_of(who: prefix.Prefix) -> str | None:
    """Who wrote a line, as its prefix says; None when it does not."""
    if who.rank is None and who.task is None and who.local_rank is None and who.node is None:
        return None
    return f"{who.node or ''}/{who.task}/{who.rank}/{who.local_rank}"


def writer(text: bytes) -> prefix.Prefix:
    """The prefix of a line."""
    return prefix.parse(text[:1024].decode("utf-8", "replace"), _CLOCK)


def _firsts(hashed: Words) -> Ints:
    """Where each different number stands first, in order.  There are mostly few of them."""
    firsts: list[int] = []
    left = np.arange(len(hashed))
    while len(left) and len(firsts) < _FEW:
        firsts.append(int(left[0]))
        left = left[hashed[left] != hashed[left[0]]]
    if len(left):
        more = left[np.unique(hashed[left], return_index=True)[1]]
        firsts += np.sort(more).tolist()
    return np.array(firsts, np.int64)


class Operations:
    """All operations of one log."""

    def __init__(self, templates: Templates, streams: Streams, source: str) -> None:
        self._templates = templates
        self._streams = streams
        self._source = source
        self._open: dict[int, OpShape] = {}  # template -> its operation, whatever the number of elements
        self._open_codes: dict[tuple[int, int], int] = {}
        self._generation = templates.generation

    def match(self, lines: Lines) -> None:
        """Fill in the lines that are known."""
        ids = self._templates.match(lines.rows, lines.starts, lines.lengths, lines.times, lines.numbers)
        self._fill(lines, slice(None), ids)

    def _fill(self, lines: Lines, which: Ints | slice, ids: Ints) -> None:
        """What the templates say of the lines `which`."""
        targets = self._templates.target[ids]
        targets[ids < 0] = UNKNOWN
        lines.targets[which] = targets
        lines.codes[which] = self._templates.code[ids]
        numbers = lines.numbers[which]
        open_ = np.flatnonzero(numbers >= 0)
        if len(open_):
            at = open_ if isinstance(which, slice) else which[open_]
            lines.codes[at] = self._codes(ids[open_], targets[open_], numbers[open_])

    def _codes(self, ids: Ints, targets: npt.NDArray[np.int32], numbers: Ints) -> list[int]:
        """The codes of operations whose templates leave the number of elements open."""
        codes = []
        for template, target, number in zip(ids.tolist(), targets.tolist(), numbers.tolist(), strict=True):
            code = self._open_codes.get((template, number))
            if code is None:
                if len(self._open_codes) > _MOST_OPEN:
                    self._open_codes.clear()
                code = 0
                if target >= 0:
                    code = self._streams.code(target, replace(self._open[template], count=number))
                self._open_codes[template, number] = code
            codes.append(code)
        return codes

    def learn(self, lines: Lines, candidates: Ints) -> bool:
        """Parse lines that may be operations, one for each new template; whether any was one."""
        if self._generation != self._templates.generation:  # the templates were forgotten, their numbers begin anew
            self._generation = self._templates.generation
            self._open.clear()
            self._open_codes.clear()
        left = candidates[lines.lengths[candidates] < coll.MOST_BYTES]
        was_any, num_learnt = False, 0
        while len(left):
            first = int(left[0])
            left = left[1:]
            line = coll.parse(lines.text(first)) if lines.targets[first] == UNKNOWN else None
            if line is None:
                continue
            was_any = True
            lines.targets[first], lines.codes[first] = self._target(line, lines, first)
            if line.date is not None:
                row = lines.rows.take(lines.starts[first : first + 1], int(lines.lengths[first]))
                lines.times[first] = dates(row, line.date)[0]
            if num_learnt < _MOST_LEARNT:
                num_learnt += 1
                self._learn_layout(lines, first, left, line)
                left = left[lines.targets[left] == UNKNOWN]
        return was_any

    def _learn_layout(self, lines: Lines, first: int, left: Ints, line: coll.CollLine) -> None:
        """The template of line `first`, and all others with its layout among the lines left."""
        length = int(lines.lengths[first])
        layout = self._templates.layout(length, variable=line.variable, date=line.date)
        number = None
        if len(layout.hashes) > _MANY and line.count[1] - line.count[0] <= _MOST_DIGITS:
            number = line.count
            layout = self._templates.layout(length, variable=line.variable, number=number, date=line.date)
        same = np.concatenate(([first], left[lines.lengths[left] == length]))
        rows = lines.rows.take(lines.starts[same], length)
        hashed = self._templates.hash(layout, rows)
        members = _firsts(hashed)
        new: list[tuple[int, int, int]] = []
        for hash_, member in zip(hashed[members].tolist(), same[members].tolist(), strict=True):
            one = line if member == first else coll.parse(lines.text(member))
            if one is None or one.variable != line.variable or one.date != line.date:
                continue
            if number is not None:
                if one.count != number:
                    continue
                self._open[self._templates.num + len(new)] = one.shape
            new.append((hash_, *self._target(one, lines, member)))
        self._templates.add(layout, [n for n, _, _ in new], [t for _, t, _ in new], [c for _, _, c in new])
        ids = self._templates.look_up(layout, hashed, rows)
        known = ids >= 0
        which = same[known]
        if line.date is not None:
            lines.times[which] = dates(rows[known], line.date)
        if number is not None:
            lines.numbers[which] = decimals(rows[known], number)
        self._fill(lines, which, ids[known])

    def _target(self, line: coll.CollLine, lines: Lines, index: int) -> tuple[int, int]:
        """(stream, code) of one operation, or (APART, 0)."""
        target = self._streams.target(line)
        if target is None:
            who = writer(lines.text(index)) if line.front else None
            origin = Origin(
                source=self._source,
                host=line.host,
                pid=line.pid,
                rank=line.rank if line.rank is not None or who is None else who.rank,
                local_rank=None if who is None else who.local_rank,
                node=None if who is None else who.node,
            )
            target = self._streams.new(line, None if who is None else tag_of(who), origin)
        return target or (APART, 0)
