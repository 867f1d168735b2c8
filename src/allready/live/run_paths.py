"""Names of what a run leaves in two folders, and the making of the one that must be local.

The run folder holds what ranks and their agent share while they live (cells, rings, sockets): on this machine, in
memory where possible, readable by its owner only, removed by the agent at the end.  The report folder holds what stays.
Standard library only.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from allready.patterns import compiled

PREFIX = "allready-"
SMALLEST_BYTES = 64 * 1024 * 1024
"""Free space below which /dev/shm is left to the job: containers often have 64 MB of it in all, and loaders need it."""

_MEMORY = Path("/dev/shm")  # noqa: S108 - checked before it is used
_NOT_IN_NAMES = r"[^A-Za-z0-9_.]+"
_LONGEST_JOB = 40


def make_run_dir(job_id: str = "") -> Path:
    """A new private folder of this machine; the caller removes it."""
    name = compiled(_NOT_IN_NAMES).sub("_", job_id)[:_LONGEST_JOB].strip("._")
    prefix = f"{PREFIX}{name}-" if name else PREFIX
    if _has_room(_MEMORY):
        with contextlib.suppress(OSError):  # full, or not ours to write
            return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY))
    return Path(tempfile.mkdtemp(prefix=prefix))


def run_dirs() -> tuple[Path, ...]:
    """Run folders of this user on this machine, newest first: of running jobs, and what killed agents left."""
    found: list[tuple[float, Path]] = []
    for parent in dict.fromkeys((_MEMORY, Path(tempfile.gettempdir()))):
        try:
            entries = list(os.scandir(parent))
        except OSError:
            continue
        ours = (entry.path for entry in entries if entry.name.startswith(PREFIX))
        found += [(changed, Path(path)) for path in ours if (changed := _changed_if_own(path)) is not None]
    return tuple(path for _, path in sorted(found, key=lambda pair: (-pair[0], str(pair[1]))))


def rank_dir(run_dir: Path, rank: int) -> Path:
    """The folder that one rank and its agent share."""
    return run_dir / f"rank{rank}"


def make_rank_dir(run_dir: Path, rank: int) -> Path:
    """Make `rank_dir` anew for an attempt: what an earlier attempt left there is gone."""
    folder = rank_dir(run_dir, rank)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def socket_address(run_dir: Path, name: str) -> Iterator[str]:
    """Where a socket of a run folder is bound and reached: by a descriptor, for its path may be too long."""
    folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)


def node_log_dir(report_dir: Path, attempt: int, node_rank: int) -> Path:
    """What stays of one node's part in an attempt."""
    return report_dir / f"attempt{attempt}" / f"node{node_rank}"


def rank_log_dir(report_dir: Path, attempt: int, node_rank: int, rank: int) -> Path:
    """What stays of one rank: its output, NCCL's log, its evidence."""
    return node_log_dir(report_dir, attempt, node_rank) / f"rank{rank}"


def _has_room(folder: Path) -> bool:
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK) and space.f_bavail * space.f_frsize >= SMALLEST_BYTES


def _changed_if_own(path: str) -> float | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_mtime if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() else None
