"""Writes a bundle: a .tar.gz whose members are streams of their own, so that each one's packed size is known."""

import contextlib
import hashlib
import io
import os
import tarfile
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO

import msgspec
from msgspec import Struct

from allready import __version__
from allready.bundle.content import (
    LARGEST_BYTES,
    SMALLEST_BYTES,
    Content,
    Hide,
    LeftOutError,
    content_of,
    without_secrets,
)
from allready.bundle.manifest import LOGS, MANIFEST, BundleEntry, LeftOut, Manifest
from allready.evidence.inputs import Found, Source, find, unpack
from allready.model import Phrase
from allready.model.fill import phrase_of, said, texts, with_values

MAX_BYTES = 64 << 20
MIN_BYTES = 256 << 10
FOR_MANIFEST_BYTES = 64 << 10
MANY = 20_000
_NO_ROOM = said("no room for it in a bundle of this size")
SHOWN_LEFT_OUT = 1000
PACKED_TO = 8
"""How many times smaller a log becomes, at least mostly: how much is read for a bundle of a given size."""


class CancelledError(OSError):
    """The writing was cancelled; nothing is left of it."""


class GeneratedMember(Struct, frozen=True, kw_only=True):
    """A member that is made and not read: the facts, a report."""

    name: str
    source: str
    data: bytes


class Order(Struct, frozen=True, kw_only=True):
    """What goes into a bundle.

    name: the folder in it.  parts: first, in their order.  paths: files and folders, for `files/`.  is_bare: without
    manifest, and names begin with those of the folders.  hide: what else to replace in names and contents.
    secrets: words that are secret whatever they look like.
    """

    name: str
    parts: tuple[GeneratedMember, ...] = ()
    paths: tuple[str, ...] = ()
    is_bare: bool = False
    left_out: tuple[LeftOut, ...] = ()
    max_bytes: int = MAX_BYTES
    hide: Hide | None = None
    secrets: tuple[str, ...] = ()
    cancel: threading.Event | None = None


def bundle_name() -> Path:
    """A name in the working directory, with the time."""
    return Path(f"allready-bundle-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")


def write_bundle(order: Order, target: Path) -> Manifest:
    """Write `target`, for its owner only.

    Raises:
        OSError: it cannot be written, or exists; then nothing of it remains.
    """
    with contextlib.ExitStack() as undo:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        undo.callback(lambda: target.unlink(missing_ok=True))
        with os.fdopen(descriptor, "wb") as file, tempfile.TemporaryFile(dir=target.parent) as body:
            manifest = _write(order, file, body, skip=target)
        undo.pop_all()
    return manifest


def list_bundle(order: Order) -> Manifest:
    """What `write_bundle` would write, by doing it without keeping it."""
    with tempfile.TemporaryFile() as body:
        return _write(order, io.BytesIO(), body, skip=None)


def _write(order: Order, file: IO[bytes], body: IO[bytes], *, skip: Path | None) -> Manifest:
    packer = _Packer(order, body)
    for part in order.parts:
        packer.add(part.name, part.source, io.BytesIO(part.data), most_bytes=LARGEST_BYTES)
    packer.take(order.paths, skip)
    manifest = packer.manifest()
    if not order.is_bare:
        file.write(_member(f"{order.name}/{MANIFEST}", msgspec.json.format(msgspec.json.encode(manifest), indent=1)))
    body.seek(0)
    while data := body.read(1 << 20):
        file.write(data)
    file.write(_packed(bytes(2 * tarfile.BLOCKSIZE)))
    return manifest


class _Packer:
    def __init__(self, order: Order, body: IO[bytes]) -> None:
        self._order = order
        self._body = body
        self._hide: Hide = order.hide or (lambda text: text)
        self._entries: list[BundleEntry] = []
        self._left_out = list(order.left_out)
        self._names: set[str] = set()
        self._left_bytes = max(MIN_BYTES, order.max_bytes) - FOR_MANIFEST_BYTES

    def take(self, paths: Sequence[str], skip: Path | None) -> None:
        """Everything below `paths`: what is small first, so that what it leaves of its share goes to the others."""
        found = [item for item in self._found(paths, skip) if item is not None]
        found.sort(key=lambda item: item[0].size_bytes)
        read_bytes = self._left_bytes * PACKED_TO
        for number, (item, name) in enumerate(found):
            share = min(LARGEST_BYTES, max(SMALLEST_BYTES, read_bytes // (len(found) - number)))
            read_bytes -= self._file(item, name, share)

    def _found(self, paths: Sequence[str], skip: Path | None) -> Iterator[tuple[Found, str] | None]:
        number = 0
        for path in paths:
            for item in find([path]):
                if not isinstance(item, Found):
                    self._leave_out(item.path, item.problems or item.kind)
                elif item.path != path and Path(item.path).is_symlink():
                    self._leave_out(item.path, said("a link; name the file to have it read"))
                elif skip is not None and _is_same(item.path, skip):
                    continue
                elif number >= MANY:
                    self._leave_out(item.path, said("more than {num} files", num=MANY))
                else:
                    number += 1
                    yield item, self._name_of(item.path, path)

    def _name_of(self, path: str, argument: str) -> str:
        """The name in the bundle of a file that was found at or below what the user named."""
        top = Path(argument).absolute()
        with contextlib.suppress(ValueError):
            inner = Path(path).absolute().relative_to(top)
            name = "/".join((top.name or "root", *inner.parts))
            return name if self._order.is_bare else f"{LOGS}/{name}"
        return f"{LOGS}/{Path(path).name}"

    def _file(self, item: Found, name: str, share: int) -> int:
        """One file, or what an archive holds; gives how many bytes were taken of the share."""
        taken = 0
        for source in unpack(item):
            if not isinstance(source, Source):
                if source.problem:
                    self._leave_out(source.path, source.problems or source.problem)
                continue
            member = source.label.removeprefix(item.label).lstrip("!").replace("!", "/")
            whole = f"{name}/{member}" if member else name
            if taken and share - taken < SMALLEST_BYTES:
                self._leave_out(source.label, _NO_ROOM)
                continue
            with source.open() as stream:
                taken += self.add(whole, source.label, stream, most_bytes=share - taken)
        return taken

    def add(self, name: str, source: str, stream: BinaryIO, *, most_bytes: int) -> int:
        """One member; gives how many bytes it has, unpacked."""
        if self._order.cancel is not None and self._order.cancel.is_set():
            raise CancelledError("cancelled")
        try:
            content = content_of(stream, most_bytes=most_bytes, hide=self._hide, secrets=self._order.secrets)
        except LeftOutError as error:
            self._leave_out(source, phrase_of(error))
            return 0
        except OSError as error:
            self._leave_out(source, str(error))
            return 0
        name = self._free(safe_name(self._safe_text(name)))
        member = _member(f"{self._order.name}/{name}" if not self._order.is_bare else name, content.data)
        if len(member) > self._left_bytes:
            content, member = self._cut(name, content)
        if not member:
            self._leave_out(source, _NO_ROOM)
            return 0
        self._left_bytes -= len(member)
        self._body.write(member)
        self._names.add(name)
        size = len(content.data)
        self._entries.append(
            BundleEntry(
                name=name,
                source=self._safe_text(source),
                size_bytes=size,
                sha256=hashlib.sha256(content.data).hexdigest(),
                original_bytes=content.original_bytes if content.original_bytes != size else None,
                cut_bytes=content.cut_bytes,
                num_redacted=content.num_redacted,
            )
        )
        return size

    def _cut(self, name: str, content: Content) -> tuple[Content, bytes]:
        """Both ends of a content, as much of it as there is room for; nothing where that is too little."""
        most = len(content.data)
        for _ in range(8):
            most //= 2
            if most < SMALLEST_BYTES or name.endswith(".json"):
                break
            cut = len(content.data) - most
            data = content.data[: most // 2] + f"\n[... {cut} bytes left out ...]\n".encode()
            data += content.data[len(content.data) - most // 2 :]
            member = _member(f"{self._order.name}/{name}", data)
            if len(member) <= self._left_bytes:
                return msgspec.structs.replace(content, data=data, cut_bytes=content.cut_bytes + cut), member
        return content, b""

    def _free(self, name: str) -> str:
        """The name, or the next that is not taken."""
        new, number = name, 1
        while new in self._names:
            number += 1
            new = f"{name}~{number}"
        return new

    def _leave_out(self, source: str, why: str | Phrase | tuple[Phrase, ...]) -> None:
        if isinstance(why, str):
            hidden: str | tuple[Phrase, ...] = self._safe_text(why)
        else:  # a name of a file may be among the values
            hidden = tuple(with_values(p, self._safe_text) for p in ((why,) if isinstance(why, Phrase) else why))
        self._left_out.append(LeftOut(source=self._safe_text(source), **texts(why=hidden)))

    def _safe_text(self, text: str) -> str:
        """A path or a reason without secrets: people put tokens into names of files, too."""
        return self._hide(without_secrets(text, self._order.secrets))

    def manifest(self) -> Manifest:
        return Manifest(
            tool_version=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            pseudonyms=self._order.hide is not None,
            max_bytes=self._order.max_bytes,
            entries=tuple(self._entries),
            left_out=tuple(self._left_out[:SHOWN_LEFT_OUT]),
            num_left_out=len(self._left_out),
        )


def texts_of(paths: Iterable[str], learn_hosts: Callable[[str], None]) -> None:
    """Show every text below `paths` to `learn_hosts`, as much of each as may go into a bundle."""
    for item in find(list(paths)):
        for source in unpack(item) if isinstance(item, Found) else ():
            if isinstance(source, Source):
                with contextlib.suppress(LeftOutError, OSError), source.open() as stream:
                    content = content_of(stream, most_bytes=LARGEST_BYTES, hide=lambda text: text)
                    learn_hosts(content.data.decode("utf-8", "surrogateescape"))


def safe_name(name: str) -> str:
    """A relative path without surprises for the user who unpacks it."""
    parts = [part.strip() for part in name.replace("\\", "/").split("/")]
    kept = ["".join(c if c.isprintable() else "_" for c in part)[:120] for part in parts if part not in {"", ".", ".."}]
    return "/".join(kept[-16:]) or "unnamed"


def _is_same(path: str, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return Path(path).samefile(other)
    return False


def _member(name: str, data: bytes) -> bytes:
    """A packed member of a tar file: header, content, padding."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), 0o600, int(datetime.now(UTC).timestamp())
    header = entry.tobuf(format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape")
    return _packed(header + data + bytes(-len(data) % tarfile.BLOCKSIZE))


def _packed(data: bytes) -> bytes:
    packer = zlib.compressobj(5, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()
