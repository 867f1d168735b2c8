"""The record of a lab: one JSON file in a folder of its own, enough to remove the lab when its creator is gone.

    $XDG_RUNTIME_DIR/allready-lab/NAME/    (without XDG_RUNTIME_DIR: /tmp/allready-lab-UID/NAME/)
        record.json       processes by (pid, start time), addresses, active faults; replaced atomically
        hosts-node0 ...   bind-mounted over /etc/hosts in each node

The folder itself is the lock (flock): a process that changes the lab holds it, and a killed holder frees it.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from allready.errors import DeadlineExceeded, LabError, UsageError
from allready.patterns import compiled
from allready.proc.process import ProcessId, is_running, namespace

_NOT_OURS = "{folder} must be a folder of this user with mode 0700; move it away and try again"
_ELSEWHERE = "the lab {name} belongs to another container (PID namespace): use it from there"
_OTHER_VERSION = "{folder}/record.json was written by another version of allready (format {version})"

VERSION = 1
LOCK_TIMEOUT_S = 20.0
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}"


class ActiveFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that a lab has now."""

    id: int
    fault: dict[str, Any]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one lab.  `nodes[r]` holds node r's namespaces; `processes` were started by exec or popen."""

    version: int = VERSION
    name: str
    boot_id: str
    pid_namespace: int
    creator: ProcessId
    num_nodes: int
    user_namespace: bool
    subnet: str
    subnet6: str  # empty: no IPv6
    mtu_bytes: int
    hub: ProcessId | None = None
    nodes: tuple[ProcessId, ...] = ()
    ready: bool = False
    processes: tuple[ProcessId, ...] = ()
    faults: tuple[ActiveFault, ...] = ()
    next_fault: int = 1

    @property
    def holders(self) -> tuple[ProcessId, ...]:
        """The processes that keep the lab's namespaces alive."""
        return self.nodes if self.hub is None else (self.hub, *self.nodes)


def boot_id() -> str:
    """Identity of this boot; a record of another boot names no process of this one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def default_state_dir() -> Path:
    """Where this user's labs are recorded.  Not created here."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and Path(runtime).stat().st_uid == os.geteuid():
        return Path(runtime) / "allready-lab"
    return Path(f"/tmp/allready-lab-{os.geteuid()}")  # noqa: S108 - checked to be ours, mode 0700, before use


def check_name(name: str) -> str:
    """`name` itself."""
    if not compiled(_NAME).fullmatch(name):
        raise UsageError("{name!r} is not a valid lab name; use up to 40 letters, digits, '-', '_', '.'", name=name)
    return name


def _make_state_dir(state_dir: Path) -> None:
    with contextlib.suppress(FileExistsError):
        state_dir.mkdir(mode=0o700, parents=True)
    _check_owner(state_dir)


def _check_owner(state_dir: Path) -> None:
    info = state_dir.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise LabError(
            "{folder} must be a folder of this user with mode 0700; move it away and try again", folder=state_dir
        )


def names(state_dir: Path) -> list[str]:
    """Labs that have a folder, sorted."""
    try:
        _check_owner(state_dir)
        return sorted(entry.name for entry in state_dir.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def read(folder: Path) -> Record | None:
    """The record in `folder`; None when its creator was killed before it wrote one.

    Raises:
        LabError: not a record that this version understands, or one of another PID namespace.
    """
    try:
        data = (folder / "record.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        record = msgspec.json.decode(data, type=Record)
    except msgspec.DecodeError as error:
        raise LabError("{folder}/record.json is not a record of a lab: {error}", folder=folder, error=error) from error
    if record.version != VERSION:
        raise LabError(_OTHER_VERSION, folder=folder, version=record.version)
    if record.boot_id == boot_id() and record.pid_namespace != namespace("self", "pid"):
        raise LabError(
            "the lab {name} belongs to another container (PID namespace): use it from there", name=record.name
        )
    return record


def write(folder: Path, record: Record) -> None:
    """Replace the record whole; a reader sees the old one or the new one."""
    temporary = folder / "record.json.new"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
    temporary.replace(folder / "record.json")


def is_alive(record: Record) -> bool:
    """Whether any process of the lab still runs."""
    return record.boot_id == boot_id() and any(is_running(p) for p in (*record.holders, *record.processes))


def create(state_dir: Path, name: str) -> Path:
    """Make the folder of a new lab."""
    for _ in range(10):  # the last `down` removes the empty state folder, perhaps right now
        _make_state_dir(state_dir)
        try:
            (state_dir / check_name(name)).mkdir(mode=0o700)
        except FileNotFoundError:
            continue
        except FileExistsError as error:
            raise UsageError(
                "the lab {name!r} already exists; remove it with: allready lab down --name {name}, or "
                "choose another --name",
                name=name,
            ) from error
        return state_dir / name
    raise LabError("{folder} keeps disappearing", folder=state_dir)


@contextlib.contextmanager
def locked(state_dir: Path, name: str) -> Iterator[Path]:
    """Hold the lab's lock; gives its folder.

    Raises:
        UsageError: no lab of that name.
        DeadlineExceeded: another process has held the lock for 20 s.
    """
    folder = state_dir / check_name(name)
    try:
        _check_owner(state_dir)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        have = ", ".join(names(state_dir)) if isinstance(error, FileNotFoundError) else error.strerror
        raise UsageError(
            "there is no lab {name!r} (labs of this user: {have})", name=name, have=have or "none"
        ) from error
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise DeadlineExceeded(f"the lab {name!r} has been locked for {LOCK_TIMEOUT_S:.0f} s") from error
                time.sleep(0.01)
        try:
            same = folder.stat().st_ino == os.fstat(descriptor).st_ino
        except FileNotFoundError:
            same = False
        if not same:
            raise UsageError("the lab {name!r} was removed meanwhile", name=name)
        yield folder
    finally:
        os.close(descriptor)


def remove(state_dir: Path, folder: Path) -> None:
    """Delete the folder of a lab, and the state folder when it was the last."""
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        state_dir.rmdir()
