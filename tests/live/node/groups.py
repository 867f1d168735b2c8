"""Control groups of this machine for tests, of version 1 or 2, where it lets us have them."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import NO_LAB

_numbers = itertools.count()
ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def cpu_group(quota: float) -> Iterator[Path]:
    """A group whose processes get `quota` of one processor; its `cgroup.procs` takes pids."""
    with _group(
        "cpu", {"cpu.cfs_quota_us": str(int(quota * 100_000))}, {"cpu.max": f"{int(quota * 100_000)} 100000"}
    ) as at:
        yield at


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A group whose processes together get so much memory."""
    limit = str(limit_bytes)
    with _group("memory", {"memory.limit_in_bytes": limit}, {"memory.max": limit, "memory.swap.max": "0"}) as at:
        yield at


@contextlib.contextmanager
def _group(controller: str, first: dict[str, str], second: dict[str, str]) -> Iterator[Path]:
    name = f"allready-test-{os.getpid()}-{next(_numbers)}"
    for parent, settings in ((ROOT / controller, first), (ROOT, second)):
        folder = parent / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            for file, value in settings.items():
                if (folder / file).exists() or file in {"memory.max", "cpu.max", *first}:
                    (folder / file).write_text(value)
        except OSError:
            folder.rmdir()
            continue
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):  # a process that just ended is still in it
                folder.rmdir()
        return
    pytest.skip(f"{NO_LAB}: no control group with {controller} can be made")
