"""Recognises the operation lines of a chunk and hands them to their streams."""

import itertools

import numpy as np
from msgspec.structs import replace

from allready.evidence import prefix
from allready.evidence.clock import Clock
from allready.evidence.lines import coll
from allready.evidence.lines.alike import Alike
from allready.evidence.lines.chunk import APART, UNKNOWN, Lines
from allready.evidence.lines.native import HashTable, Ints, Words
from allready.evidence.lines.streams import Streams
from allready.evidence.lines.templates import PENDING, Bytes, Templates, dates, decimals, geometry
from allready.evidence.reading import OpShape
from allready.model import Origin

WORD = coll.MARKER[2:6]  # four bytes of every operation line
_MAX_LEARNT = 64  # layouts in one chunk; what is left is parsed line by line
_MANY = 200  # templates of one layout, from which on the number of elements is read and no part of the template
_MAX_DIGITS = 18
_FEW = 8
_MAX_EXAMPLES = 8
"""Lines of one layout that are parsed to know others by them; what is left then is parsed line by line."""

_MAX_OPEN = 200_000
_MAX_PACKED, _MAX_PACKED_ID = (1 << 40) - 1, (1 << 23) - 1  # together in one number
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_CLOCK = Clock(0.0)  # prefixes are read for who wrote a line, not for when


def tag_of(who: prefix.Prefix) -> str | None:
    """Who wrote a line, as its prefix says; None when it does not."""
    if who.rank is None and who.task is None and who.local_rank is None and who.node is None:
        return None
    return f"{who.node or ''}/{who.task}/{who.rank}/{who.local_rank}"


def writer(text: bytes) -> prefix.Prefix:
    """The prefix of a line."""
    return prefix.parse(text[:1024].decode("utf-8", "replace"), _CLOCK)


def _first_places(ids: Ints, places: Ints, num: int) -> Ints:
    """For each of `num` ids the first of its places, which are in order; -1 where it has none."""
    found = np.full(num, -1, np.int64)
    found[ids[::-1]] = places[::-1]  # of equal indexes the last one stays
    return found


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
        self._shapes: dict[int, OpShape] = {}  # template -> its operation
        self._open: dict[int, OpShape] = {}  # template -> its operation, whatever the number of elements
        self._open_codes: dict[tuple[int, int], int] = {}
        self._open_hashes: HashTable | None = None  # the same once more
        self._writers: dict[bytes, int] = {}  # host, process and communicator -> stream
        self._loose: list[tuple[int, int, OpShape]] = []  # operations without a template: index, stream
        self._made: list[tuple[int, int]] = []  # streams that are new: stream, index of the line that gave it
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
        lines.ids[which] = ids

    def learn(self, lines: Lines, candidates: Ints) -> bool:
        """Parse lines that may be operations, one for each new template; whether any was one."""
        self._renew()
        left = candidates[lines.lengths[candidates] < coll.MAX_BYTES]
        was_any, num_learnt = False, 0
        while len(left):
            first = int(left[0])
            left = left[1:]
            text = lines.text(first)
            line = coll.parse(text) if lines.targets[first] == UNKNOWN else None
            if line is None:
                continue
            was_any = True
            target = self._target(line, text, first)
            lines.targets[first] = target
            if target >= 0:
                self._loose.append((first, target, line.shape))
            if line.date is not None:
                row = lines.rows.take(lines.starts[first : first + 1], int(lines.lengths[first]))
                lines.times[first] = dates(row, line.date)[0]
            if num_learnt < _MAX_LEARNT:
                num_learnt += 1
                self._learn_layout(lines, first, left, line)
                left = left[lines.targets[left] == UNKNOWN]
        return was_any

    def _renew(self) -> None:
        if self._generation != self._templates.generation:  # the templates were forgotten, their numbers begin anew
            self._generation = self._templates.generation
            for known in (self._shapes, self._open, self._open_codes):
                known.clear()
            self._open_hashes = None

    def _learn_layout(self, lines: Lines, first: int, left: Ints, line: coll.CollLine) -> None:
        """The template of line `first`, and all others with its layout among the lines left."""
        length = int(lines.lengths[first])
        form = geometry(length, line.variable, date=line.date, counter=line.counter)
        layout = self._templates.layout(form)
        number = None
        if len(layout.hashes) > _MANY and line.count[1] - line.count[0] <= _MAX_DIGITS:
            number = line.count
            form = geometry(length, line.variable, number=number, date=line.date, counter=line.counter)
            layout = self._templates.layout(form)
        same = np.concatenate(([first], left[lines.lengths[left] == length]))
        rows = lines.rows.take(lines.starts[same], length)
        hashed = self._templates.hash(layout, rows)
        members = _firsts(hashed)
        cells, is_count_read = rows[members].view(np.uint8)[:, :length], number is not None
        new, found = self._read(line, lines, same[members], cells, is_count_read=is_count_read)
        known = self._open if is_count_read else self._shapes
        known.update(zip(itertools.count(self._templates.num), (shape for _, shape in found), strict=False))
        self._templates.add(layout, hashed[members[new]], [target for target, _ in found], PENDING)
        ids = self._templates.look_up(layout, hashed, rows)
        known_rows = ids >= 0
        which = same[known_rows]
        if line.date is not None:
            lines.times[which] = dates(rows[known_rows], line.date)
        if number is not None:
            lines.numbers[which] = decimals(rows[known_rows], number)
        self._fill(lines, which, ids[known_rows])

    def _read(
        self, line: coll.CollLine, lines: Lines, at: Ints, cells: Bytes, *, is_count_read: bool
    ) -> tuple[list[int], list[tuple[int, OpShape]]]:
        """Which of the lines `at`, the first of which is `line`, have its layout, with their streams and operations.

        They have its length, and `cells` are their bytes.
        """
        places: list[int] = []
        found: list[tuple[int, OpShape]] = []
        left = np.arange(len(at))
        for num_read in itertools.count():
            if not len(left):
                break
            first, left = int(left[0]), left[1:]
            text = lines.text(int(at[first]))
            one = line if not first else coll.parse(text)
            if one is None:
                continue
            is_wanted = (one.variable, one.date, one.counter) == (line.variable, line.date, line.counter)
            is_wanted &= not is_count_read or one.count == line.count
            if is_wanted:
                places.append(first)
                found.append((self._target(one, text, int(at[first])), one.shape))
            if num_read < _MAX_EXAMPLES and len(left) >= _FEW:
                alike = Alike(one, text)
                are_alike = alike.of(cells[left])
                some, left = left[are_alike], left[~are_alike]
                if is_wanted:
                    places += some.tolist()
                    found += self._read_alike(alike, lines, at[some], cells[some])
        return places, found

    def _read_alike(self, alike: Alike, lines: Lines, at: Ints, cells: Bytes) -> list[tuple[int, OpShape]]:
        """The streams of lines that are like one, and their operations."""
        found: list[tuple[int, OpShape]] = []
        target_of, shape_of = self._writers.get, alike.shapes.get
        for place, (who, what) in enumerate(zip(*alike.keys(cells), strict=True)):
            target, shape = target_of(who), shape_of(what)
            if target is None or shape is None:
                index = int(at[place])
                text = lines.text(index)
                line = alike.parsed(text)
                target, shape = self._target(line, text, index), line.shape
                if target >= 0:
                    self._writers[who] = target
            found.append((target, shape))
        return found

    def _target(self, line: coll.CollLine, text: bytes, index: int) -> int:
        """The stream of one operation, or APART."""
        target = self._streams.index(line)
        if target is None:
            who, origin = self._writer_of(line, text)
            target = self._streams.new(line, None if who is None else tag_of(who), origin)
            if target is not None:
                self._made.append((target, index))
        return APART if target is None else target

    def _writer_of(self, line: coll.CollLine, text: bytes) -> tuple[prefix.Prefix | None, Origin]:
        who = writer(text) if line.front else None
        return who, Origin(
            source=self._source,
            host=line.host,
            pid=line.pid,
            rank=line.rank if line.rank is not None or who is None else who.rank,
            local_rank=None if who is None else who.local_rank,
            node=None if who is None else who.node,
        )

    # -- codes -----------------------------------------------------------------------------------------------------

    def settle(self, lines: Lines) -> None:
        """Give every operation of these lines its code: a stream's operations are numbered as they first come.

        So the numbers say nothing of what was known before, nor of the order in which lines were recognised.
        """
        templates, ids = self._templates, lines.ids
        codes = lines.codes
        codes[:] = templates.code[ids]
        pending = np.flatnonzero((codes == PENDING) & (lines.targets >= 0) & (ids >= 0) & (lines.numbers < 0))
        open_ = np.flatnonzero(lines.numbers >= 0)
        known, hashes = self._open_known(lines, open_)
        unknown = open_[known < 0]
        new = [(at, target, shape) for at, target, shape in self._loose if ids[at] < 0]
        num_loose = len(new)
        firsts = _first_places(ids[pending], pending, templates.num) if len(pending) else pending
        uncoded = np.flatnonzero(firsts >= 0)
        shapes = map(self._shapes.__getitem__, uncoded.tolist())
        new += zip(firsts[uncoded].tolist(), templates.target[uncoded].tolist(), shapes, strict=True)
        keys: list[tuple[int, int]] = list(zip(ids[unknown].tolist(), lines.numbers[unknown].tolist(), strict=True))
        if len(self._open_codes) + len(keys) > _MAX_OPEN:
            self._open_codes.clear()
            self._open_hashes = None
        new_keys: list[tuple[int, int]] = []
        for at, key in zip(unknown.tolist(), keys, strict=True):
            if key not in self._open_codes:
                self._open_codes[key] = 0
                target = int(templates.target[key[0]])
                if target >= 0:
                    new_keys.append(key)
                    new.append((at, target, replace(self._open[key[0]], count=key[1])))
        given = self._streams.codes(new)
        codes[[at for at, _, _ in new[:num_loose]]] = given[:num_loose]
        num_coded = num_loose + len(uncoded)
        templates.code[uncoded] = given[num_loose:num_coded]
        self._open_codes.update(zip(new_keys, given[num_coded:], strict=True))
        codes[pending] = templates.code[ids[pending]]
        codes[open_[known >= 0]] = known[known >= 0]
        codes[unknown] = [self._open_codes[key] for key in keys]
        if len(unknown) and self._open_hashes is not None:
            some, firsts = np.unique(hashes[known < 0], return_index=True)
            self._open_hashes.add(some, codes[unknown[firsts]].astype(np.int64))
        self._settle_streams(lines)
        self._loose.clear()

    def _open_known(self, lines: Lines, at: Ints) -> tuple[Ints, Words]:
        """The codes of lines whose number of elements was read, -1 where they are not known, and what they are known by
        in the compiled scanner; its hashes are one for each template and number, so that nothing falls together."""
        unknown, ids, numbers = np.full(len(at), -1, np.int64), lines.ids[at], lines.numbers[at]
        if lines.native is None or not len(at) or int(numbers.max()) > _MAX_PACKED or int(ids.max()) > _MAX_PACKED_ID:
            return unknown, unknown.view(np.uint64)
        if self._open_hashes is None:
            self._open_hashes = lines.native.table()
        hashes = (ids.view(np.uint64) << np.uint64(40) | numbers.view(np.uint64)) + np.uint64(1)
        hashes = (hashes ^ hashes >> np.uint64(32)) * _SPREAD  # the same numbers in another order
        hashes ^= hashes >> np.uint64(32)
        return self._open_hashes.find(hashes), hashes

    def _settle_streams(self, lines: Lines) -> None:
        """Whose a stream is, its first line says, although another one may have been parsed before it."""
        if not self._made:
            return
        operations = np.flatnonzero(lines.targets >= 0)
        first = _first_places(lines.targets[operations].astype(np.int64), operations, len(self._streams.builders))
        for stream, index in self._made:
            at = int(first[stream])
            if at < 0 or at == index:
                continue
            text = lines.text(at)
            line = coll.parse(text)
            if line is not None:
                who, origin = self._writer_of(line, text)
                one = self._streams.builders[stream]
                one.tag = None if who is None else tag_of(who)
                one.stream.origin, one.stream.nranks = origin, line.nranks
        self._made.clear()
