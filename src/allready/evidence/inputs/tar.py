"""Members of a tar archive from a stream.

The standard library's tarfile keeps every header and reads a long name of any size into memory; this one does neither.
It parses headers with it (checksums, octal and base-256 numbers).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from allready.evidence.inputs.intake import Intake, Part
from allready.evidence.inputs.limits import Budget, DamagedError
from allready.model.fill import said
from allready.model.finding import Phrase

if TYPE_CHECKING:
    import tarfile

BLOCK = 512
_ZEROS = bytes(BLOCK)
_MAX_HEADER = 1 << 20  # of a long name or of pax records; a longer one is passed over
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _SPARSE, _SOLARIS = b"L", b"K", b"x", b"g", b"S", b"X"
_FILES = (b"0", b"\0", b"7", b"")


class ArchiveMember(Struct, frozen=True, kw_only=True):
    """One member of an archive.  `content` is None where `why_not` says why there is nothing to read."""

    name: str
    size_bytes: int | None
    mtime_s: float | None = None
    content: Part | None = None
    why_not: Phrase | None = None


def is_tar(head: bytes) -> bool:
    """A tar header with a right checksum (old tars have no magic)."""
    if len(head) < BLOCK or head[0] == 0:
        return False
    return _header(head[:BLOCK]) is not None


def members(intake: Intake, budget: Budget) -> Iterator[ArchiveMember]:
    """Every member that has a name, in order; each is gone when the next one is asked for."""
    name: str | None = None
    size: int | None = None
    is_sparse = False
    for header, block in _headers(intake):
        budget.member()
        if header.type in {_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _SOLARIS}:
            data = b""
            if header.size <= _MAX_HEADER:
                data = intake.read_exactly(header.size)
            else:
                intake.skip(header.size)
            _pad(intake, header.size)
            if header.type == _LONG_NAME:
                name = data.partition(b"\0")[0].decode("utf-8", "surrogateescape") or name
            elif header.type in {_PAX, _SOLARIS}:
                records = _pax(data)
                name, size = records.get("path", name), _number(records.get("size"), size)
                is_sparse = any(key.startswith("GNU.sparse.") for key in records)
            continue
        size = header.size if size is None else size
        name = header.name if name is None else name
        if is_sparse or header.type == _SPARSE:
            more = block[482] if header.type == _SPARSE else 0
            while more:  # GNU's old sparse header goes on in further blocks
                more = intake.read_exactly(BLOCK)[504]
            yield ArchiveMember(name=name, size_bytes=size, why_not=said("stored as a sparse file: unpack it first"))
            intake.skip(size)
            _pad(intake, size)
        elif header.type in _FILES and not name.endswith("/"):
            content = Part(intake, size)
            yield ArchiveMember(name=name, size_bytes=size, mtime_s=float(header.mtime), content=content)
            content.finish()
            _pad(intake, size)
        # Links, folders, devices and pipes have no content, whatever their header says of a size.
        name, size, is_sparse = None, None, False


def _headers(intake: Intake) -> "Iterator[tuple[tarfile.TarInfo, bytes]]":
    """Every header and its block; what follows one is to be taken before the next is asked for."""
    seen_zeros = False
    while True:
        block = b""
        while len(block) < BLOCK and (more := intake.read(BLOCK - len(block))):
            block += more
        if block == _ZEROS:
            seen_zeros = True  # archives may follow each other
            continue
        header = _header(block) if len(block) == BLOCK else None
        if header is None:
            if seen_zeros:
                return
            what = (
                "a tar header is damaged; what follows it was not read"
                if block
                else "the tar has no end mark: it was cut"
            )
            raise DamagedError(what)
        seen_zeros = False
        yield header, block


def _header(block: bytes) -> "tarfile.TarInfo | None":
    # Most of what is asked is no tar; the module is loaded for those that are.
    checksum = block[148:156].strip(b" \0")
    if not checksum or checksum.strip(b"01234567"):
        return None
    import tarfile

    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError, OverflowError):
        return None
    return header if header.size >= 0 else None


def _pad(intake: Intake, size: int) -> None:
    if size % BLOCK:
        intake.skip(BLOCK - size % BLOCK)


def _pax(data: bytes) -> dict[str, str]:
    """Records `LENGTH KEY=VALUE\\n`; what is not one ends them."""
    found = {}
    while data:
        number, _, _ = data.partition(b" ")
        if not number.isdigit() or len(number) > 8 or not 0 < int(number) <= len(data):
            break
        key, _, value = data[len(number) + 1 : int(number)].removesuffix(b"\n").partition(b"=")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        data = data[int(number) :]
    return found


def _number(text: str | None, otherwise: int | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else otherwise
