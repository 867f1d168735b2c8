"""Walk what the user named.  Nothing is opened here: a pipe or a device would answer, or wait for ever."""

import errno
import glob
import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allready.model import SourceRecord
from allready.model.events import troubled
from allready.model.fill import said
from allready.model.finding import Phrase

STDIN = "-"
_OPEN_ALREADY = ("/dev/fd/", "/proc/self/fd/")
EARLIER = "allready-earlier"
"""In a report folder: what jobs left that used it before.  Of another run, so it is read only where it is named."""

_PASSED_OVER = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages", EARLIER})
"""Folders of programs, not of their runs, and of other runs."""

_WHAT = (
    (stat.S_ISFIFO, said("a named pipe, which is never opened")),
    (stat.S_ISSOCK, said("a socket, which is never opened")),
    (stat.S_ISCHR, said("a device, which is never opened")),
    (stat.S_ISBLK, said("a device, which is never opened")),
)


class Found(NamedTuple):
    """A file to open.  It may be gone, longer or something else by the time it is.

    A tuple, since thousands are sent to workers.
    """

    path: str
    label: str
    size_bytes: int = 0
    mtime_s: float | None = None
    identity: tuple[int, int] = (0, 0)  # device and inode: a file that is renamed stays the same
    is_open_pipe: bool = False


class _Walker:
    def __init__(self) -> None:
        self._folders: set[tuple[int, int]] = set()
        # Files in a folder are met once; only other ways to them need remembering.
        self._by_other_ways: set[tuple[int, int]] = set()

    def argument(self, text: str) -> Iterator[Found | SourceRecord]:
        if text == STDIN:
            if (0, 0) not in self._by_other_ways:
                self._by_other_ways.add((0, 0))
                yield Found(path=STDIN, label=STDIN)
            return
        try:
            os.lstat(text)
        except FileNotFoundError:
            if glob.has_magic(text):
                yield from self._glob(text)
            else:
                yield _note(text, "missing", said("there is no such file or folder"))
            return
        except (OSError, ValueError) as error:
            yield _note(text, "unread", _reason(error))
            return
        yield from self._any(text, given=True)

    def _glob(self, text: str) -> Iterator[Found | SourceRecord]:
        some = False
        for path in glob.iglob(text, recursive=True):  # noqa: PTH207 - pathlib's does not take absolute patterns
            some = True
            yield from self._any(path, given=True)
        if not some:
            yield _note(text, "missing", said("no file fits this pattern"))

    def _any(self, path: str, *, given: bool) -> Iterator[Found | SourceRecord]:
        try:
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            status = os.stat(path)  # noqa: PTH116 - the hot path of a walk
        except OSError as error:
            yield _note(path, "unread", _reason(error))
            return
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            if is_link and not given:
                yield _note(path, "link", said("a link to a folder is not followed; name the folder to have it read"))
            else:
                yield from self._folder(path, status)
        elif stat.S_ISREG(mode):
            if self._is_new(path, status, other_way=given or is_link):
                yield _found(path, status)
        elif given and stat.S_ISFIFO(mode) and path.startswith(_OPEN_ALREADY):  # the shell's <(command)
            yield Found(path=path, label=path, is_open_pipe=True)
        else:
            what = next((text for test, text in _WHAT if test(mode)), said("neither file nor folder"))
            yield _note(path, "special", what)

    def _is_new(self, path: str, status: os.stat_result, *, other_way: bool) -> bool:
        key = (status.st_dev, status.st_ino)
        if other_way:
            try:
                parent = os.stat(os.path.dirname(os.path.realpath(path)))  # noqa: PTH116, PTH120
            except OSError:
                parent = None
            if parent is not None and (parent.st_dev, parent.st_ino) in self._folders:
                return False
        if key in self._by_other_ways:
            return False
        if other_way or status.st_nlink > 1:
            self._by_other_ways.add(key)
        return True

    def _folder(self, top: str, status: os.stat_result) -> Iterator[Found | SourceRecord]:
        """Everything below `top`: a folder's files, then links in it, then its folders; with a stack of our own."""
        waiting: list[tuple[str, os.stat_result | None]] = [(top, status)]
        while waiting:
            path, known = waiting.pop()
            try:
                status = known or os.lstat(path)
                key = (status.st_dev, status.st_ino)
                if key in self._folders or not stat.S_ISDIR(status.st_mode):
                    continue
                self._folders.add(key)
                links: list[str] = []
                below: list[str] = []
                with os.scandir(path) as entries:
                    for entry in entries:
                        yield from self._entry(entry, links, below)
            except OSError as error:
                yield _note(path, "unread", _reason(error))
                continue
            for link in sorted(links):
                yield from self._any(link, given=False)
            waiting += [(folder, None) for folder in sorted(below, reverse=True)]

    def _entry(self, entry: "os.DirEntry[str]", links: list[str], below: list[str]) -> Iterator[Found | SourceRecord]:
        if entry.is_symlink():
            links.append(entry.path)
        elif entry.is_dir(follow_symlinks=False):
            if entry.name not in _PASSED_OVER:
                below.append(entry.path)
        elif entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                yield _note(entry.path, "unread", _reason(error))
                return
            if self._is_new(entry.path, status, other_way=False):
                yield _found(entry.path, status)
        else:
            yield from self._any(entry.path, given=False)


def waits_for_ever(path: str) -> bool:
    """Whether no process may ever write what a reader of this path waits for: a named pipe, but not the shell's
    <(...)."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode) and not path.startswith(_OPEN_ALREADY)  # noqa: PTH116
    except (OSError, ValueError):
        return False


def find(arguments: Sequence[str]) -> Iterator[Found | SourceRecord]:
    """Files to read, each once, and a note for each thing that is not read (pipes, sockets, no permission, missing).

    Folders are walked to any depth in constant memory per file; links to files are followed, links to folders only
    when they are named.  `-` is standard input.
    """
    walker = _Walker()
    for argument in arguments:
        yield from walker.argument(argument)


def _found(path: str, status: os.stat_result) -> Found:
    identity = (status.st_dev, status.st_ino)
    return Found(path=path, label=path, size_bytes=status.st_size, mtime_s=status.st_mtime, identity=identity)


def _note(path: str, kind: str, problem: Phrase) -> SourceRecord:
    return troubled(SourceRecord(path=path, kind=kind), problem)


def _reason(error: OSError | ValueError) -> Phrase:
    if isinstance(error, PermissionError):
        return said("no permission to read it")
    if isinstance(error, FileNotFoundError):
        return said("it vanished, or is a link to nothing")
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return said("a link that leads back to itself")
    what = (error.strerror if isinstance(error, OSError) else None) or error
    return said("cannot be read: {error}", error=what)
