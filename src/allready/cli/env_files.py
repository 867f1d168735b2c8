"""The files that `allready env lint` reads: texts, and those within archives."""

import codecs
import errno
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from allready.errors import UsageError
from allready.evidence.inputs import Found, InputLimits, Source, unpack, waits_for_ever
from allready.evidence.inputs.codecs import codec_of
from allready.evidence.inputs.tar import is_tar
from allready.evidence.inputs.zip import is_zip
from allready.model.fill import in_english, said
from allready.model.finding import Phrase
from allready.patterns import compiled
from allready.variables.sources.parsed import NAME
from allready.variables.sources.read import MAX_BYTES

HEAD_BYTES = 512
NO_TEXT = 20
"""A file of which one character in so many is none is an image, an archive, anything else."""
MAX_MEMBERS = 500
LIMITS = InputLimits(ratio=500.0, free_bytes=32 << 20, total_bytes=256 << 20, num_members=10_000, num_layers=2)
STANDARD_INPUT = "-"


class Unreadable(Struct, frozen=True):
    """A source, or a part of it, that could not be read as what it is."""

    place: str
    why: Phrase


def read_files(names: Sequence[str], unreadable: list[Unreadable]) -> Iterator[tuple[str, str]]:
    """Name and text of each file, and of each file within an archive, which is called `archive!member`.

    Raises:
        UsageError: a file cannot be opened, or is too large to be a file of settings.
    """
    for name in names:
        try:
            if name != STANDARD_INPUT and is_archive(head_of(name)):
                yield from _members(name, unreadable)
                continue
            data = sys.stdin.buffer.read(MAX_BYTES + 1) if name == STANDARD_INPUT else _bytes(name, MAX_BYTES + 1)
        except OSError as error:
            raise UsageError("{name}: {error}", name=name, error=error.strerror) from error
        if len(data) > MAX_BYTES:
            raise UsageError("{name}: larger than {size}", name=name, size=f"{MAX_BYTES >> 20} MiB")
        yield "stdin" if name == STANDARD_INPUT else name, decoded(data)


def head_of(name: str) -> bytes:
    """The first bytes of a file; none of what is no plain file, which may not give them twice."""
    return _bytes(name, HEAD_BYTES) if Path(name).is_file() else b""


def is_archive(head: bytes) -> bool:
    """Whether a file that begins so holds others, or is compressed."""
    return is_zip(head) or is_tar(head) or codec_of(head) is not None


def is_text(text: str) -> bool:
    """Whether it is text, or variables with zeros between them, as a process has them."""
    rows = text.split("\0")
    if (
        len(rows) > 1
        and sum(bool(compiled(NAME).fullmatch(row.partition("=")[0])) for row in rows if row) * 2 < len(rows) - 1
    ):
        return False
    return text.count("\ufffd") * NO_TEXT <= len(text)


def decoded(data: bytes) -> str:
    """The text of a file, in UTF-8 or, by its mark, UTF-16."""
    is_wide = data[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
    return data.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")


def _members(name: str, unreadable: list[Unreadable]) -> Iterator[tuple[str, str]]:
    """The texts in an archive; what is none of them (images, programs) is passed over."""
    num_texts = num_others = 0
    for item in unpack(Found(path=name, label=name), limits=LIMITS):
        if not isinstance(item, Source):
            known = {in_english(entry.why) for entry in unreadable}
            unreadable += [Unreadable(item.path, why) for why in item.problems if in_english(why) not in known]
            continue
        if num_texts >= MAX_MEMBERS:
            unreadable.append(Unreadable(name, said("only the first {most} files in it are read", most=MAX_MEMBERS)))
            return
        with item.open() as stream:
            data = stream.read(MAX_BYTES + 1)
        text = decoded(data)
        if item.problem:
            unreadable.append(Unreadable(item.label, item.problem))
        elif len(data) > MAX_BYTES or not is_text(text):
            num_others += 1
        else:
            num_texts += 1
            yield item.label, text
    if not num_texts:
        none = said("none of the {num} files in it is a text", num=num_others)
        why = none if num_others else said("an archive without a file")
        if not any(entry.place.startswith(name) for entry in unreadable):
            unreadable.append(Unreadable(name, why))


def _bytes(name: str, most: int) -> bytes:
    if waits_for_ever(name):
        raise OSError(errno.EINVAL, "a named pipe, which is never opened")
    with Path(name).open("rb") as file:
        return file.read(most)
