"""A job's report folder as one archive for support; `allready diagnose` reads it.

Tokens and passwords in text are masked on the way in; links are not followed, and what is no regular file stays out.
"""

import contextlib
import io
import os
import stat
import tarfile
import threading
import time
from itertools import islice
from pathlib import Path

from allready.evidence.secrets import masked

LARGEST_FILE_BYTES = 64 * 2**20
"""Of a longer file the beginning and the end go in, half of this each."""
MAX_FILES = 20_000
_BINARY = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # pickles, gzip, zstd


def bundle(root: Path, target: Path, *, cancel: threading.Event | None = None) -> Path:
    """Write `target` (a .tar.gz, for its owner only) from everything below `root`.

    Raises:
        OSError: `target` cannot be written, already exists, or it was cancelled; then nothing of it remains.
    """
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.ExitStack() as undo:
        undo.callback(lambda: target.unlink(missing_ok=True))
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
            for path in sorted(islice(root.rglob("*"), MAX_FILES)):
                if cancel is not None and cancel.is_set():
                    raise OSError("cancelled")
                if path != target:
                    _add(archive, path, f"{root.name}/{path.relative_to(root)}")
        undo.pop_all()
    return target


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    try:
        info = path.lstat()
        if not stat.S_ISREG(info.st_mode):
            return
        data = _content(path, info.st_size)
    except OSError:
        return  # gone meanwhile, or not ours to read
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(data), int(info.st_mtime), 0o600
    archive.addfile(entry, io.BytesIO(data))


def _content(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        if size <= LARGEST_FILE_BYTES:
            data = file.read(LARGEST_FILE_BYTES)
        else:
            half = LARGEST_FILE_BYTES // 2
            data = file.read(half) + f"\n[... {size - 2 * half} bytes left out ...]\n".encode()
            file.seek(size - half)
            data += file.read(half)
    if data.startswith(_BINARY):
        return data
    # Not through the cache of `masked`: it would keep every text.
    return masked.__wrapped__(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def bundle_name() -> Path:
    """A name in the working directory, with the time."""
    return Path(f"allready-bundle-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz").absolute()
