"""Files that are still written: read what came since the last poll, keep the rest in a form that does not grow."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence import sniff
from allready.evidence.inputs import Found, Source, open_plain, unpack
from allready.evidence.inputs.envelopes import Envelope
from allready.evidence.readers import (
    DEFAULT,
    ReaderContext,
    ReadOptions,
    kind_of_source,
    read_found,
    renumbered,
    scan_range,
)
from allready.evidence.reading import Reading
from allready.model import SourceRecord
from allready.model.events import troubled
from allready.model.fill import said

if TYPE_CHECKING:
    from allready.evidence.lines.model import LineLimits, Scanned

MAX_FILES = 20_000
_MEMORY_BYTES = 128 << 20  # for the kept lines of all logs together
_MIN_KEPT_BYTES = 64 << 10
_TAIL_BYTES = 64 << 10


class _File(Struct):
    """One file as far as it was read.  `offset`: up to where its log was scanned."""

    found: Found
    kind: str = ""
    offset: int = 0
    envelopes: Sequence[Envelope] = ()
    scanned: "Scanned | None" = None
    readings: list[Reading] = []


class Growth:
    """All files of a run that may still go on.

    `poll` reads what is new.  A file that was cut or replaced goes on from its beginning; one that was renamed (log
    rotation) keeps its place, since it is known by its inode.
    """

    def __init__(self, find: Callable[[], Iterable[Found | SourceRecord]], options: ReadOptions = DEFAULT) -> None:
        self._find = find
        self._context, self._kinds = ReaderContext(options), options.kinds
        self._files: dict[tuple[int, int], _File] = {}
        self._records: dict[str, SourceRecord] = {}

    @property
    def num_files(self) -> int:
        """Files that are followed."""
        return len(self._files)

    def poll(self) -> int:
        """Read what is new; returns the number of new bytes (at least 1 when anything changed)."""
        num_new = 0
        records: dict[str, SourceRecord] = {}
        for item in self._find():
            if isinstance(item, SourceRecord):
                records[item.path] = item
            elif item.identity in self._files or len(self._files) < MAX_FILES:
                num_new += self._read_new(item)
            else:
                records["(more)"] = troubled(
                    SourceRecord(path="(more)", kind="unread"),
                    said("only the first {most} files are followed", most=f"{MAX_FILES:,}"),
                )
        if records.keys() - self._records.keys():
            num_new += 1
        self._records = records
        return num_new

    def readings(self) -> list[Reading]:
        """What everything says by now."""
        out = [Reading(source=record) for record in self._records.values()]
        for file in self._files.values():
            if file.scanned is not None:
                out.append(self._interpreted(file))
            else:
                out += file.readings
        return sorted(out, key=lambda reading: reading.source.path)

    def _read_new(self, found: Found) -> int:
        file = self._files.get(found.identity)
        if file is None:
            file = self._files[found.identity] = _File(found=found)
        elif (found.size_bytes, found.mtime_s) == (file.found.size_bytes, file.found.mtime_s):
            if found.label != file.found.label and file.scanned is not None:
                file.readings = []
            file.found = found
            return 0
        grown = max(1, found.size_bytes - (file.found.size_bytes if file.kind else 0))
        file.found = found
        if file.scanned is None:
            file.kind = _kind(found)
            is_wanted = not self._kinds or file.kind in self._kinds
            if file.kind != sniff.LOG:
                file.readings = list(read_found(found, self._context))
                return grown
            if not is_wanted:
                return 0
        return max(self._scan_more(file), 0)

    def _scan_more(self, file: _File) -> int:
        """Scan whole lines that were added; returns how many bytes they have."""
        from allready.evidence.lines.merge import merged

        if file.found.size_bytes < file.offset:
            file.offset = 0  # cut, and written anew
        if file.offset < sniff.HEAD_BYTES and not file.envelopes and (around := _envelopes(file.found)):
            file.envelopes, file.offset, file.scanned = around, 0, None  # the first lines did not show it
        try:
            stop = _end_of_lines(file.found.path, file.offset, file.found.size_bytes)
            if stop <= file.offset:
                return 0
            limits = self._limits()
            more = scan_range(file.found, file.offset, stop, self._context, file.envelopes, limits=limits)
        except OSError as error:
            record = SourceRecord(path=file.found.label, kind="unread")
            file.readings = [Reading(source=troubled(record, said("{error}", error=error.strerror or error)))]
            return 0
        file.readings = []
        num_new, file.offset = stop - file.offset, stop
        file.scanned = more if file.scanned is None else merged([file.scanned, more], limits)
        return num_new

    def _limits(self) -> "LineLimits":
        from allready.evidence.lines.model import LIMITS

        kept = max(_MIN_KEPT_BYTES, _MEMORY_BYTES // max(1, len(self._files)))
        return replace(LIMITS, kept_bytes=min(LIMITS.kept_bytes, kept))

    def _interpreted(self, file: _File) -> Reading:
        if file.readings:
            return file.readings[0]
        assert file.scanned is not None
        reading = self._context.interpret(file.scanned, file.found.label, file.found.mtime_s)
        reading.source = replace(
            reading.source, path=file.found.label, kind=sniff.LOG, size_bytes=file.found.size_bytes
        )
        return renumbered(reading, file.envelopes)


def _kind(found: Found) -> str:
    """The kind of a plain file; "archive" for what must be unpacked, "unread" for what cannot be opened."""
    first = next(unpack(found), None)
    if not isinstance(first, Source):
        return "unread"
    return kind_of_source(first) if first.path is not None else "archive"


def _envelopes(found: Found) -> Sequence[Envelope]:
    """What is around the lines of a plain log."""
    first = next(unpack(found), None)
    return [one.again() for one in first.envelopes] if isinstance(first, Source) else ()


def _end_of_lines(path: str, start: int, size: int) -> int:
    """The byte after the last line that is whole; the end of the file when a line is longer than anything."""
    with open_plain(path) as file:
        size = min(size, os.fstat(file.fileno()).st_size)
        begin = max(start, size - _TAIL_BYTES)
        file.seek(begin)
        tail = file.read(size - begin) or b""
    newline = tail.rfind(b"\n")
    if newline >= 0:
        return begin + newline + 1
    return size if begin > start else start
