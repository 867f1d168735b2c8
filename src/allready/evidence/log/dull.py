"""Lines of NCCL whose own words say all, as other logs have shown; a log of NCCL's own lines is read without them.

The ranks of one job print the same dozens of lines when they start.  What such a line means is in its own words
(`rest`), whoever wrote it: it is of a known kind and has no date, what its process's record takes from it is in these
words alone, and either no signature knows it or one does of which the event is always the same.  Most say nothing that
is kept: they are dull, and only counted.
Lines are taken out only where every line of the log is NCCL's and begins with NCCL's prefix, so that none is needed
to see where another thing ends.  The first and the last line of each process stay.
"""

from collections.abc import Sequence
from typing import NamedTuple

from allready.evidence import clock as clocks
from allready.evidence import prefix
from allready.evidence.log import event_extraction, events, nccl
from allready.evidence.log.events import Said
from allready.evidence.log.line import Line
from allready.evidence.prefix import Prefix
from allready.signatures import table

MAX_LINES = 8192
_MAX_BYTES = 320
_ZEROS = bytes.maketrans(b"123456789", b"000000000")

_NOT_ALONE = (b"[rank", b"File ", b"ChildFailedError", b"absl::Status: ", b"\x1b", b"\r", b"\0")
"""What may make two lines of one, or have to do with lines around it, or is not there as it stands."""

Raw = tuple[int, bytes, bool]
Process = tuple[str | None, int | None]


class Meant(NamedTuple):
    """What a line's words say: an event, and something to these readers of their process's record; or nothing."""

    said: Said | None
    words: str
    readers: nccl.Readers


_DULL = Meant(None, "", ())
_MEANT: dict[tuple[bytes, bytes], Meant] = {}
"""What stands before a line's own words, all digits as zeros, and these words: what they mean."""

_OTHERS: set[str] = set()
"""Words that do not say all, so that nobody need ask again."""

_TABLES: list[object] = []
"""The signatures that were asked."""


class Told(NamedTuple):
    """A line that was taken out: its number, how many of those that are left stand before it, what it says."""

    number: int
    place: int
    prefix: Prefix
    meant: Meant


class Sifted(NamedTuple):
    """The lines that are to be read, and those that need not be.

    is_nccls: every line, also those that are left, is one of NCCL's, with nothing before NCCL's own prefix, and stands
    for itself.
    """

    left: list[Raw]
    told: Sequence[Told] = ()
    num_out: int = 0
    is_nccls: bool = False


def sift(lines: list[Raw]) -> Sifted:
    """Take out the lines that say all in their own words."""
    _forget_other_tables()
    runs = _runs(lines)
    if runs is None:
        return Sifted(lines)
    last = {(said.host, said.pid): end - 1 for _, end, _, said in runs}
    left: list[Raw] = []
    told: list[Told] = []
    seen: set[Process] = set()
    for start, end, head, said in runs:
        process = said.host, said.pid
        if process not in seen:  # the first line of all of this process
            seen.add(process)
            left.append(lines[start])
            start += 1
        shape, length, last_of_process = head.translate(_ZEROS), len(head), last[process]
        for at in range(start, end):
            one = lines[at]
            meant = _MEANT.get((shape, one[1][length:]))
            if meant is None or at == last_of_process:
                left.append(one)
            elif meant is not _DULL:
                told.append(Told(one[0], len(left), said, meant))
    texts = b"\n".join([text for _, text, _ in left])
    num_starts = texts.count(b" NCCL ") - texts.count(b" NCCL version ")  # the version is told behind the prefix
    if num_starts != len(left) or any(mark in texts for mark in _NOT_ALONE):
        return Sifted(lines)
    return Sifted(left, told, len(lines) - len(left), is_nccls=True)


def _runs(lines: Sequence[Raw]) -> list[tuple[int, int, bytes, Prefix]] | None:
    """Lines one below the other with the same prefix of NCCL: where they begin and end, the prefix, what it says.

    None where a line has none, or is there for another one's sake, or where a process has two names: then the number
    of their lines tells which of them is glued to other words.
    """
    runs: list[tuple[int, int, bytes, Prefix]] = []
    hosts: dict[int | None, str | None] = {}
    start, head, said = 0, b"", None
    for at, (_, text, is_known) in enumerate(lines):
        if not is_known:
            return None
        if said is not None:
            if text.startswith(head):
                continue
            runs.append((start, at, head, said))
        start, head = at, text[: text.find(b" ", text.find(b" NCCL ", 0, _MAX_BYTES) + 6, _MAX_BYTES) + 1]
        said = prefix.of_nccl(head)
        if said is None or hosts.setdefault(said.pid, said.host) != said.host:
            return None
    if said is not None:
        runs.append((start, len(lines), head, said))
    return runs


def learn(raw: Sequence[Raw], lines: Sequence[Line]) -> None:
    """Remember which of the lines of a log that was read say all in their own words."""
    _forget_other_tables()
    if len(raw) != len(lines):
        return
    for (_, text, is_known), line in zip(raw, lines, strict=True):
        rest = line.prefix.rest
        readers = None if rest in _OTHERS else nccl.readers_of(rest)
        if readers is None:
            continue
        if not is_known or not line.is_understood or line.prefix.level != "INFO":
            continue
        end = len(line.text) - len(rest)
        head = line.text[:end]
        if len(text) > _MAX_BYTES or text != line.text.encode("utf-8", "replace") or not head.isascii():
            continue
        key = (text[:end].translate(_ZEROS), text[end:])
        if key in _MEANT:
            continue
        found, is_certain = events.recall(head, rest)
        said = None if found is None else event_extraction.said(*found, rest)
        if (
            is_certain
            and (found is None) == (said is None)
            and prefix.of_nccl(text[:end]) is not None
            and _is_alone(text[end:])
        ):
            if len(_MEANT) >= MAX_LINES:
                _MEANT.clear()
            _MEANT[key] = Meant(said, rest, readers) if said is not None or readers else _DULL
        elif len(rest) <= _MAX_BYTES:
            if len(_OTHERS) >= MAX_LINES:
                _OTHERS.clear()
            _OTHERS.add(rest)


def _is_alone(words: bytes) -> bool:
    """Whether they have no date, and nothing to do with what stands around them."""
    return clocks.latest_dated([words]) is None and not any(mark in words for mark in (b" NCCL ", *_NOT_ALONE))


def _forget_other_tables() -> None:
    """What other signatures did not ask for, these may."""
    now = table.by_anchor()
    if not _TABLES or _TABLES[0] is not now:
        forget()
        _TABLES[:] = [now]


def forget() -> None:
    """As if no log had been read."""
    _MEANT.clear()
    _OTHERS.clear()
