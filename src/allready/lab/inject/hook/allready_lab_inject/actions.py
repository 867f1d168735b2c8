"""What a fault does to the process of a rank, at the place where it strikes."""

import ctypes
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .types import Fault, StepEngine

Action = Callable[[StepEngine, Fault, int], None]


def _duration_s(fault: Fault) -> float:
    """How long; without end where the fault does not set it."""
    return float(fault.get("duration_s", 0)) or math.inf


def _record(engine: StepEngine, fault: Fault, rank: int, **details: Any) -> None:
    engine.truth.record(fault, rank, engine.step, **details)


def sigstop(engine: StepEngine, fault: Fault, rank: int) -> None:
    """Stops this process; with `duration_s` the driver outside lets it go on."""
    _record(engine, fault, rank)
    os.kill(os.getpid(), signal.SIGSTOP)


def kill(engine: StepEngine, fault: Fault, rank: int) -> None:
    """A signal to this process, SIGKILL by default."""
    _record(engine, fault, rank)
    os.kill(os.getpid(), signal.Signals[f"SIG{fault.get('signal', 'KILL')}"])


def exception(engine: StepEngine, fault: Fault, rank: int) -> None:
    """An exception in the job's own code."""
    _record(engine, fault, rank)
    raise RuntimeError(str(fault.get("message", "injected by allready lab")))


def leave(engine: StepEngine, fault: Fault, rank: int) -> None:
    """The rank ends by itself: in order (atexit and all), or at once."""
    _record(engine, fault, rank)
    code = int(fault.get("code", 0))
    if str(fault.get("how", "orderly")) == "at_once":
        os._exit(code)
    sys.exit(code)


def abort(engine: StepEngine, fault: Fault, rank: int) -> None:
    """SIGABRT, as from a failed check in C++."""
    _record(engine, fault, rank)
    os.abort()


def segfault(engine: StepEngine, fault: Fault, rank: int) -> None:
    """A null pointer is read."""
    _record(engine, fault, rank)
    ctypes.string_at(0)


def lock(engine: StepEngine, fault: Fault, rank: int) -> None:
    """The main thread waits for a lock that another thread holds, and waits itself."""
    mutex, taken, over = threading.Lock(), threading.Event(), threading.Event()
    duration_s = _duration_s(fault)

    def hold_the_lock() -> None:
        with mutex:
            taken.set()
            over.wait(None if math.isinf(duration_s) else duration_s)

    threading.Thread(target=hold_the_lock, name="prefetch", daemon=True).start()
    taken.wait()
    _record(engine, fault, rank)
    with mutex:
        pass


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def gil(engine: StepEngine, fault: Fault, rank: int) -> None:
    """Native code waits and keeps the interpreter's lock: no thread of this process runs Python."""
    library = ctypes.PyDLL(None)  # unlike CDLL, keeps the lock during a call
    mutex = ctypes.create_string_buffer(128)  # zeros are PTHREAD_MUTEX_INITIALIZER
    library.pthread_mutex_lock(mutex)
    duration_s = _duration_s(fault)
    _record(engine, fault, rank)
    if math.isinf(duration_s):
        library.pthread_mutex_lock(mutex)
    end_s = time.time() + duration_s
    library.pthread_mutex_timedlock(mutex, ctypes.byref(_Timespec(int(end_s), int(end_s % 1 * 1e9))))


def busy(engine: StepEngine, fault: Fault, rank: int) -> None:
    """A long computation of this rank alone, as tokenising or building an index would be."""
    end = time.monotonic() + _duration_s(fault)
    _record(engine, fault, rank)
    value = 0
    while time.monotonic() < end:
        for number in range(10_000):
            value = (value * 31 + number) % 1_000_003


def sleep(engine: StepEngine, fault: Fault, rank: int) -> None:
    """This rank alone waits, as for a slow server."""
    end = time.monotonic() + _duration_s(fault)
    _record(engine, fault, rank)
    while (left_s := end - time.monotonic()) > 0:
        time.sleep(min(left_s, 3600))


def save(engine: StepEngine, fault: Fault, rank: int) -> None:
    """Writes a file slowly, synchronously, as a checkpoint to a slow disk."""
    end = time.monotonic() + _duration_s(fault)
    _record(engine, fault, rank)
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < end:
            file.seek(0)
            file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.05)


def read(engine: StepEngine, fault: Fault, rank: int) -> None:
    """Reads from a pipe that nothing writes to: as from a dead server, where reads can be interrupted."""
    path = Path(engine.truth_folder) / f"dead-storage.{rank}"
    os.mkfifo(path)
    keep = os.open(path, os.O_RDWR)  # so that opening does not wait, and the read does
    try:
        with path.open("rb", buffering=0) as file:
            _record(engine, fault, rank, path=str(path))
            file.read(1)
    finally:
        os.close(keep)


def disk(engine: StepEngine, fault: Fault, rank: int) -> None:
    """Uninterruptible sleep (state D), as on a dead NFS server: a child made by vfork waits before its exec.

    The kernel holds the parent of such a child in state D.  The child opens a pipe that nothing writes to.
    """
    path = Path(engine.truth_folder) / f"dead-storage.{rank}"
    os.mkfifo(path)
    library = ctypes.CDLL(None)  # lets other threads of Python run, as real input and output do
    actions = ctypes.create_string_buffer(512)
    library.posix_spawn_file_actions_init(actions)
    name = ctypes.create_string_buffer(os.fsencode(path))
    library.posix_spawn_file_actions_addopen(actions, 9, name, os.O_RDONLY, 0)
    argv = (ctypes.c_char_p * 2)(b"true", None)
    pid = ctypes.c_int()
    _record(engine, fault, rank, path=str(path))
    library.posix_spawnp(ctypes.byref(pid), b"true", actions, None, argv, None)
    if pid.value > 0:
        os.waitpid(pid.value, 0)


def loader(engine: StepEngine, fault: Fault, rank: int) -> None:
    """Kills or stops workers of this rank's DataLoader (its child processes of multiprocessing)."""
    pids = sorted(child.pid for child in multiprocessing.active_children() if child.pid)
    chosen = pids if fault.get("worker") in {None, "all"} else pids[int(fault["worker"]) :][:1]
    if not chosen:
        engine.truth.give_up(fault, rank, engine.step, "this rank has no worker processes")
        return
    number = signal.SIGSTOP if fault.get("how", "kill") == "stop" else signal.SIGKILL
    _record(engine, fault, rank, children=chosen)
    for pid in chosen:
        os.kill(pid, number)


def _new_cgroup(controller: str) -> tuple[Path, bool]:
    """A fresh control group of this process's own, and whether it is one of version 2."""
    root, name = Path("/sys/fs/cgroup"), f"allready-lab-{os.getpid()}"
    if (root / "cgroup.controllers").exists():
        if controller not in (root / "cgroup.subtree_control").read_text(encoding="ascii").split():
            (root / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
        made, unified = root / name, True
    else:
        own = "/"
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                own = path
        parent = root / controller / own.lstrip("/")
        made, unified = (parent if parent.is_dir() else root / controller) / name, False
    made.mkdir(exist_ok=True)
    return made, unified


def oom(engine: StepEngine, fault: Fault, rank: int) -> None:
    """Uses more memory than its control group may have; the kernel kills it."""
    limit = int(fault.get("limit_bytes", 64 << 20))
    try:
        group, unified = _new_cgroup("memory")
        (group / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(limit), encoding="ascii")
        swap = group / ("memory.swap.max" if unified else "memory.memsw.limit_in_bytes")
        if swap.exists():
            swap.write_text("0" if unified else str(limit), encoding="ascii")
    except OSError as error:
        engine.truth.give_up(fault, rank, engine.step, f"no memory control group can be made here: {error}")
        return
    _record(engine, fault, rank, cleanup=[str(group)], limit_bytes=limit)
    (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    taken: list[bytes] = []
    while len(taken) << 20 < 8 * limit:
        taken.append(os.urandom(1 << 20))


BITES = 1 / 3


def quota_percent(asked: float, cpu_s: float | None, period_s: float | None) -> float:
    """Percent of one CPU, where a step took so much processor time and so much time."""
    return min(asked, BITES * 100 * cpu_s / period_s) if cpu_s and period_s else asked


def quota(engine: StepEngine, fault: Fault, rank: int) -> None:
    """From now on the rank gets only so many percent of one CPU (its control group's quota).

    At most a third of what it used: on a busy machine a rank may get less than that percent anyway, and a quota that is
    never used up holds no rank back.
    """
    percent = quota_percent(float(fault.get("percent", 20)), engine.cpu_s(), engine.period_s())
    quota_us = max(round(percent * 1000), 1000)
    try:
        group, unified = _new_cgroup("cpu")
        if unified:
            (group / "cpu.max").write_text(f"{quota_us} 100000", encoding="ascii")
        else:
            (group / "cpu.cfs_period_us").write_text("100000", encoding="ascii")
            (group / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="ascii")
        _record(engine, fault, rank, cleanup=[str(group)], percent=percent, period_s=engine.period_s())
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    except OSError as error:
        engine.truth.give_up(fault, rank, engine.step, f"no CPU control group can be made here: {error}")


def mark(engine: StepEngine, fault: Fault, rank: int) -> None:
    """Nothing here: the driver outside acts on this word (pulses, a neighbour, the network)."""
    cpu = None
    if fault["kind"] == "neighbour":
        cpu = max(os.sched_getaffinity(0))
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cpu})  # else the scheduler moves the rank to a free CPU
    _record(engine, fault, rank, cpu=cpu, period_s=engine.period_s())


ACTIONS: dict[str, Action] = {
    "sigstop": sigstop, "kill": kill, "exception": exception, "exit": leave, "abort": abort, "segfault": segfault,
    "lock": lock, "gil": gil, "busy": busy, "sleep": sleep, "save": save, "read": read, "disk": disk, "loader": loader,
    "oom": oom, "quota": quota, "pulses": mark, "neighbour": mark, "mark": mark,
}  # fmt: skip
