"""One found file -> its sources: itself, what it holds compressed, or the members of an archive."""

import io
import os
import stat
import sys
from collections.abc import Callable, Iterator

from allready.evidence.inputs import tar, zip  # noqa: A004 - the format's name
from allready.evidence.inputs.codecs import Inflate, Recoded, codec_of, is_utf_16
from allready.evidence.inputs.envelopes import opened
from allready.evidence.inputs.find import STDIN, Found
from allready.evidence.inputs.intake import FileFeed, Guarded, Intake
from allready.evidence.inputs.limits import LIMITS, Budget, DamagedError, InputLimits, TooMuchError
from allready.evidence.inputs.source import HEAD_BYTES, Source
from allready.model import SourceRecord
from allready.model.events import troubled
from allready.model.fill import phrase_of, said
from allready.model.finding import Phrase


def unpack(
    found: Found, *, limits: InputLimits = LIMITS, took: Callable[[int], None] = lambda _: None
) -> Iterator[Source | SourceRecord]:
    """Everything to read in one file, in its order.  A record stands for what cannot be read, and for each archive.

    Nothing is written to disk.  Each source lives until the next one is asked for.

    Args:
        took: called with the number of bytes whenever some are read from the disk, for progress.
    """
    try:
        file, size, mtime_s = _open(found)
    except OSError as error:
        yield troubled(SourceRecord(path=found.label, kind="unread"), _words(error))
        return
    with file:
        budget = Budget(limits)
        intake = Intake(FileFeed(file, size, budget, took))
        walk = _Walk(budget)
        plain = (found.path, file) if size is not None else None
        yield from walk.content(intake, found.label, size=size, mtime_s=mtime_s, plain=plain, layer=0)


def _open(found: Found) -> tuple[io.FileIO, int | None, float | None]:
    """The file, its size (None: a pipe that was given to us open) and its time."""
    if found.path == STDIN:
        return io.FileIO(sys.stdin.fileno(), closefd=False), None, None
    if found.is_open_pipe:
        return io.FileIO(os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)), None, None
    file = open_plain(found.path)
    status = os.fstat(file.fileno())
    return file, status.st_size, status.st_mtime


def open_plain(path: str) -> io.FileIO:
    """A plain file, unbuffered; never waits, not even where a pipe took its place since it was found."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("it is no plain file any more")
    return io.FileIO(fd)


def _words(error: OSError) -> Phrase:
    if isinstance(error, FileNotFoundError):
        return said("it vanished before it was read")
    if isinstance(error, PermissionError):
        return said("no permission to read it")
    return said("cannot be read: {error}", error=error.strerror or error)


def _leaf(
    intake: Intake,
    head: bytes,
    label: str,
    size: int | None,
    mtime_s: float | None,
    plain: tuple[str, io.FileIO] | None,
) -> Source | SourceRecord:
    """What is no archive, its lines out of their envelopes."""
    if plain is not None:
        intake.pass_holes()
    try:
        lines, around = opened(intake, head)
        head = lines.peek(HEAD_BYTES) if around else head
    except (DamagedError, TooMuchError) as error:
        return troubled(SourceRecord(path=label, kind="unread", size_bytes=size or 0), phrase_of(error))
    except OSError as error:
        return troubled(SourceRecord(path=label, kind="unread", size_bytes=size or 0), _words(error))
    path, file = plain or (None, None)
    return Source(
        label=label,
        head=head,
        make=lambda: Guarded(lines),
        size_bytes=size,
        mtime_s=mtime_s,
        path=path,
        file=file,
        envelopes=around,
    )


class _Walk:
    """From a stream to what is in it, layer by layer."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def content(
        self,
        intake: Intake,
        label: str,
        *,
        size: int | None,
        mtime_s: float | None,
        plain: tuple[str, io.FileIO] | None,
        layer: int,
    ) -> Iterator[Source | SourceRecord]:
        """A source, or an archive's members and then its record.  `plain`: a file on disk, where it is one."""
        damage = None
        try:
            head = intake.peek(HEAD_BYTES)
            codec = codec_of(head)
            is_archive = codec is not None or tar.is_tar(head) or (zip.is_zip(head) and not zip.is_checkpoint(head))
            if is_archive and layer >= self._budget.limits.num_layers:
                problem = said("packed too deep (an archive in an archive in an archive): unpack the outer one first")
                yield troubled(SourceRecord(path=label, kind="archive", size_bytes=size or 0), problem)
                return
            if codec is not None:
                intake, plain, size = Intake(Inflate(intake, codec, self._budget)), None, None
                head = intake.peek(HEAD_BYTES)
            if is_utf_16(head):
                intake, plain, size = Intake(Recoded(intake)), None, None
                head = intake.peek(HEAD_BYTES)
        except (DamagedError, TooMuchError) as error:
            damage = phrase_of(error)
        except OSError as error:
            damage = _words(error)
        if damage is not None:
            yield troubled(SourceRecord(path=label, kind="unread", size_bytes=size or 0), damage)
            return
        if tar.is_tar(head):
            yield from self._members(tar.members(intake, self._budget), intake, label, size, layer)
        elif codec is not None and (codec_of(head) is not None or zip.is_zip(head)):
            yield from self.content(intake, label, size=None, mtime_s=mtime_s, plain=None, layer=layer + 1)
        elif zip.is_zip(head) and not zip.is_checkpoint(head):
            yield from self._members(zip.members(intake, self._budget), intake, label, size, layer)
        else:
            yield _leaf(intake, head, label, size, mtime_s, plain)

    def _members(
        self, members: Iterator[tar.ArchiveMember], intake: Intake, label: str, size: int | None, layer: int
    ) -> Iterator[Source | SourceRecord]:
        problem = None
        try:
            for member in members:
                name = f"{label}!{member.name}"
                if member.content is None:
                    record = SourceRecord(path=name, kind="unread", size_bytes=member.size_bytes or 0)
                    yield troubled(record, member.why_not)
                    continue
                yield from self.content(
                    Intake(member.content),
                    name,
                    size=member.size_bytes,
                    mtime_s=member.mtime_s,
                    plain=None,
                    layer=layer + 1,
                )
        except (DamagedError, TooMuchError) as error:
            problem = phrase_of(error)
        except OSError as error:
            problem = _words(error)
        yield troubled(SourceRecord(path=label, kind="archive", size_bytes=size or intake.position), problem)
