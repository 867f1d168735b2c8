"""A folder whose file system never answers, as one whose server is gone: calls on it wait and cannot be killed."""

import contextlib
import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_MNT_DETACH = 2
_INIT = struct.Struct("<IIQ")


@contextlib.contextmanager
def hung_folder(folder: Path) -> Iterator[Path]:
    """Mount FUSE on `folder`, answer its first request only and take all others."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("no FUSE here")
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"hung", os.fsencode(folder), b"fuse.hung", 0, options.encode()):
        os.close(device)
        pytest.skip(f"mount: {os.strerror(ctypes.get_errno())}")
    try:
        _, _, unique = _INIT.unpack_from(os.read(device, 1 << 16))
        about = struct.pack("<IIIIHHIII", 7, 31, 1 << 16, 0, 12, 9, 1 << 16, 1, 0) + bytes(32)
        os.write(device, struct.pack("<IiQ", 16 + len(about), 0, unique) + about)
        done = threading.Event()
        taker = threading.Thread(target=_take, args=(device, done), daemon=True)
        taker.start()
        try:
            yield folder
        finally:
            done.set()
            taker.join(5.0)
    finally:
        libc.umount2(os.fsencode(folder), _MNT_DETACH)
        os.close(device)  # with it, every request that waits ends with an error


def _take(device: int, done: threading.Event) -> None:
    poll = select.poll()
    poll.register(device, select.POLLIN)
    while not done.is_set():
        if poll.poll(100):
            with contextlib.suppress(OSError):
                os.read(device, 1 << 20)
