"""What `LiveHost.probe` can answer: questions that need a library or a system call instead of a file."""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.net import ARPHRD_ETHER, IFF_LOOPBACK, IFF_RUNNING, IFF_UP

MAX_SCRIPT_BYTES = 64 * 2**20
MODULES = ("torch", "jax", "jaxlib", "numpy")


def answer(name: str, *, timeout_s: float) -> Any:
    """The answer to "KIND" or "KIND:ARGUMENT" (see `Host.probe`), within about `timeout_s`."""
    kind, _, argument = name.partition(":")
    try:
        match kind:
            case "interfaces":
                return _interfaces(timeout_s)
            case "routing_rules":
                from allready.facts import netlink

                return netlink.routing_rules(timeout_s=timeout_s)
            case "shared_routes":
                from allready.facts import netlink

                return netlink.shared_routes(timeout_s=timeout_s)
            case "python":
                return _python()
            case "clock":
                return _clock()
            case _ if kind in _MAY_HANG:
                call, what = _MAY_HANG[kind]
                return _with_deadline(functools.partial(call, argument), what.format(argument), timeout_s)
    except OSError as error:
        raise FactUnavailable("{what}: {error}", what=argument or kind, error=error.strerror or error) from error
    raise FactUnavailable("{name}: no such probe", name=name)


def parse_child(text: str) -> Any:
    """The answer of a child that prints JSON; `{"unavailable": why}` becomes FactUnavailable."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FactUnavailable("the child's answer is not JSON") from error
    if isinstance(found, dict) and set(found) == {"unavailable"}:
        raise FactUnavailable("{error}", error=found["unavailable"])
    return found


def _with_deadline(call: Any, what: str, timeout_s: float) -> Any:
    """A call that may hang on a network file system or a directory service."""
    from allready.facts.tasks import Task

    try:
        return Task(call, "probe").result(timeout_s=timeout_s)
    except DeadlineExceeded:
        raise FactUnavailable("{what}: no answer within {seconds} s", what=what, seconds=f"{timeout_s:.1f}") from None


def _interfaces(timeout_s: float) -> list[dict[str, Any]]:
    from allready.facts import netlink

    try:
        return netlink.interfaces(timeout_s=timeout_s)
    except FactUnavailable as refused:
        # A sandbox without netlink.  psutil knows less: no kind of link, and its order is only nearly getifaddrs's.
        with contextlib.suppress(ImportError, OSError):
            return _interfaces_by_psutil()
        raise refused from None


def _interfaces_by_psutil() -> list[dict[str, Any]]:
    import socket

    import psutil

    stats = psutil.net_if_stats()
    rows: list[dict[str, Any]] = []
    for name, found in psutil.net_if_addrs().items():
        about = stats.get(name.partition(":")[0])
        words = set(about.flags.split(",")) if about else set()
        flags = (IFF_UP if "up" in words or (about and about.isup) else 0) | (
            IFF_LOOPBACK if "loopback" in words else 0
        )
        flags |= IFF_RUNNING if "running" in words else 0
        addresses = [
            f"{row.address.partition('%')[0]}/{_prefix_length(row.netmask)}"
            for row in found
            if row.family in {socket.AF_INET, socket.AF_INET6} and row.netmask
        ]
        mac = next((row.address for row in found if row.family == socket.AF_PACKET), None)
        rows.append(
            {
                "name": name,
                "flags": flags,
                "mtu": about.mtu if about else 0,
                "hwtype": ARPHRD_ETHER,
                "mac": mac,
                "link_kind": None,
                "driver": None,
                "speed_mbit_per_s": (about.speed or None) if about else None,
                "addresses": addresses,
            }
        )
    return rows


def _prefix_length(netmask: str) -> int:
    import ipaddress

    return int(ipaddress.ip_address(netmask)).bit_count()


def _python() -> dict[str, Any]:
    """Where the modules of a job would be imported from, without importing them."""
    import importlib.util

    modules: dict[str, str] = {}
    for name in MODULES:
        spec = None
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            modules.setdefault(name, str(folder))
    return {
        "version": ".".join(map(str, sys.version_info[:3])),
        "prefix": sys.prefix,
        "path": [p for p in sys.path if p.startswith("/")],
        "modules": modules,
    }


def _pci(_: str) -> Any:
    from allready.facts.pci import gpus_and_bridges

    return gpus_and_bridges()


TIME_ERROR = 5
STA_UNSYNC = 0x40
TIMEX_BYTES = 512  # struct timex has 208
STATUS_WORD = 5  # of its 64-bit words: modes, offset, freq, maxerror, esterror, status


def _clock() -> dict[str, bool]:
    """Whether the kernel holds the clock to be synchronized; adjtimex(2) with no change, which needs no root."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    about = (ctypes.c_int64 * (TIMEX_BYTES // 8))()
    state = libc.adjtimex(ctypes.byref(about))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    status = about[STATUS_WORD] & 0xFFFFFFFF
    return {"is_synchronized": state != TIME_ERROR and not status & STA_UNSYNC}


def _statvfs(path: str) -> dict[str, int | bool]:
    found = os.statvfs(path)
    return {
        "total_bytes": found.f_blocks * found.f_frsize,
        "free_bytes": found.f_bavail * found.f_frsize,
        "num_inodes": found.f_files,
        "num_free_inodes": found.f_favail,
        "is_read_only": bool(found.f_flag & os.ST_RDONLY),
    }


def _file_use(path: str) -> dict[str, Any]:
    """How old a file is by its last change, and which processes have it open, as far as they may be seen."""
    import time

    from allready.proc.process import all_pids, has_open

    age_s = max(0.0, time.time() - os.stat(path).st_mtime)  # noqa: PTH116
    real = os.path.realpath(path)
    return {"age_s": round(age_s, 1), "pids": [pid for pid in all_pids() if has_open(pid, real)]}


def _digest(path: str) -> dict[str, Any]:
    """SHA-256 and size of a regular file's content, and its first part as text."""
    import hashlib

    from allready.facts.files import opened

    digest, size, head = hashlib.sha256(), 0, b""
    with opened(path) as file:
        while part := file.read(2**20):
            digest.update(part)
            head = head or part
            size += len(part)
            if size > MAX_SCRIPT_BYTES:
                most = MAX_SCRIPT_BYTES >> 20
                raise FactUnavailable("{path}: larger than {most} MiB, not a script", path=path, most=most)
    return {"sha256": digest.hexdigest(), "size_bytes": size, "text": head.decode("utf-8", "replace")}


def _socket_owner(inode: str) -> int | None:
    """The process that holds a socket; None when it belongs to a user whose processes we may not see."""
    from allready.proc.process import all_pids, socket_inodes

    return next((pid for pid in all_pids() if inode in map(str, socket_inodes(pid))), None)


def _sockets(pid: str) -> list[int]:
    """The sockets of a process by their inodes; none where its files may not be seen."""
    from allready.proc.process import socket_inodes

    return [int(inode) for inode in socket_inodes(int(pid))] if pid.isdecimal() else []


def _user(uid: str) -> str:
    import pwd

    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, ValueError, OverflowError) as error:
        raise FactUnavailable("no user with the id {uid}", uid=uid) from error


MAX_KERNEL_LINES = 200_000


def _kernel_log(_: str) -> list[tuple[float, str]]:
    """Age in seconds and text of every record that the kernel still has, oldest first."""
    import time

    now_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    found: list[tuple[float, str]] = []
    fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while len(found) < MAX_KERNEL_LINES:
            try:
                record = os.read(fd, 8192).decode("utf-8", "replace")
            except BrokenPipeError:  # overwritten while it was to be read; the next read goes on behind it
                continue
            except BlockingIOError:
                break
            about, _, text = record.partition(";")
            stamp = about.split(",")[2:3]
            if stamp and stamp[0].isdigit():
                found.append((max(0.0, now_s - int(stamp[0]) / 1e6), text.split("\n", 1)[0]))
    finally:
        os.close(fd)
    return found


_MAY_HANG: dict[str, tuple[Callable[[str], Any], str]] = {
    "statvfs": (_statvfs, "{}"),
    "file_use": (_file_use, "{}"),
    "digest": (_digest, "{}"),
    "sockets": (_sockets, "process {}"),
    "socket_owner": (_socket_owner, "socket {}"),
    "user": (_user, "user {}"),
    "kernel_log": (_kernel_log, "the kernel log"),
    "pci": (_pci, "the PCI bus"),
}
"""What a file system, a driver or a directory service may never answer, with its name in an error."""
