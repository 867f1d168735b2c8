"""A job's report folder as one archive for support; `allready diagnose` reads it."""

import threading
from pathlib import Path

from allready.bundle.pack import Order, write_bundle


def bundle(root: Path, target: Path, *, cancel: threading.Event | None = None) -> Path:
    """Write `target` (a .tar.gz, for its owner only) from everything below `root`, without secrets.

    Raises:
        OSError: `target` cannot be written, already exists, or it was cancelled; then nothing of it remains.
    """
    write_bundle(Order(name=root.name, paths=(str(root),), is_bare=True, cancel=cancel), target)
    return target
