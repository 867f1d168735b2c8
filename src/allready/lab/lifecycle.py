"""How a lab comes up and how it ends."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allready.errors import LabError, StatedError
from allready.lab import effects, holders, record
from allready.lab.holders import END_TIMEOUT_S
from allready.lab.hosts import render
from allready.lab.network import LabView, build
from allready.lab.record import Record
from allready.proc.kill import kill_all, reap
from allready.proc.process import ProcessId, all_pids, identify, is_running, namespace, read_stat

UP_TIMEOUT_S = 30.0


def make(folder: Path, name: str, view: LabView, user_namespace: bool | None) -> None:
    """Make everything of a lab, writing each holder down before it may stay.  The caller holds the lock.

    Raises:
        LabError: this machine does not allow it; `remove` takes away what there is.
    """
    _need_pidfds()
    deadline = time.monotonic() + UP_TIMEOUT_S
    creator, pid_namespace = identify(os.getpid()), namespace("self", "pid")
    assert creator is not None
    assert pid_namespace is not None
    own = Record(
        name=name,
        boot_id=record.boot_id(),
        pid_namespace=pid_namespace,
        creator=creator,
        num_nodes=view.num_nodes,
        user_namespace=holders.needs_user_namespace() if user_namespace is None else user_namespace,
        subnet=str(view.subnet),
        subnet6=str(view.subnet6 or ""),
        mtu_bytes=view.mtu_bytes,
    )
    record.write(folder, own)
    with contextlib.ExitStack() as stack:
        hub = holders.hub(own.user_namespace)
        stack.callback(hub.close)
        try:
            own = msgspec.structs.replace(own, hub=hub.wait_ready(deadline))
        except LabError as error:
            more = holders.user_namespaces_forbidden() if own.user_namespace else ""
            raise LabError("{error}{more}", error=error, more=more) from error
        record.write(folder, own)
        hub.confirm()
        with subprocess.Popen(  # starts Python and its imports while the nodes come up
            effects.netlink_argv(own),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd="/",
        ) as netlink:
            try:
                own = _make_nodes(folder, own, view, stack, deadline)
                plan = effects.netlink_plan(own, build(view))
                answer, errors = netlink.communicate(plan, timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired as error:
                raise LabError("the lab's network was not ready in time") from error
            finally:
                netlink.kill()
    if not answer:
        why = " ".join(errors.split())[-300:] or StatedError("it was killed")
        raise LabError("the lab's netlink process failed: {why}", why=why)
    if effects.netlink_answer(answer):  # the kernel has IPv6 switched off: the lab is one without
        own = msgspec.structs.replace(own, subnet6="")
        effects.write_hosts(own, folder, ())
    record.write(folder, msgspec.structs.replace(own, ready=True))


def _need_pidfds() -> None:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise LabError("pidfd_open: {error}; the lab needs Linux 5.3 or newer", error=error.strerror) from error


def _make_nodes(folder: Path, own: Record, view: LabView, stack: contextlib.ExitStack, deadline: float) -> Record:
    assert own.hub is not None
    resolver = folder / "resolv.conf"
    resolver.write_text("options timeout:1 attempts:1\n", encoding="ascii")
    resolver.chmod(0o644)
    shm = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 - only its size
    started = []
    for node in range(view.num_nodes):
        hosts = folder / f"hosts-node{node}"
        hosts.write_text(render(view), encoding="ascii")
        hosts.chmod(0o644)
        sys_folder = folder / f"sys-node{node}"
        sys_folder.mkdir()
        holder = holders.node(
            own.hub.pid,
            own.user_namespace,
            hosts=hosts,
            resolver=resolver,
            sys_folder=sys_folder,
            shm_bytes=shm.f_blocks * shm.f_frsize if shm else 0,
        )
        stack.callback(holder.close)
        started.append(holder)
    own = msgspec.structs.replace(own, nodes=tuple(holder.wait_ready(deadline) for holder in started))
    record.write(folder, own)
    for holder in started:
        holder.confirm()
    return own


def remove(state_dir: Path, folder: Path, started: Sequence[subprocess.Popen[Any]] = ()) -> None:
    """End every process of a lab, reap ours (`started` among them) and delete its folder.  The caller holds the lock.

    Raises:
        LabError: a process cannot be killed (uninterruptible sleep); the record stays.
    """
    found = record.read(folder)
    if found is not None and found.boot_id == record.boot_id():
        _end_all(found)
        for process in started:
            process.wait(END_TIMEOUT_S)
        for holder in found.holders:
            reap(holder)
    record.remove(state_dir, folder)


def _end_all(found: Record) -> None:
    """End first what runs in the nodes, then the holders: while a holder lives, its namespace is certainly ours."""
    deadline = time.monotonic() + END_TIMEOUT_S
    alive = {holder for holder in found.holders if is_running(holder)}
    namespaces = frozenset(n for holder in alive if (n := namespace(holder.pid, "net")) is not None)
    namespaces -= {namespace("self", "net"), namespace(1, "net")}  # whatever the record contains
    while members := belonging_to(found.processes, namespaces) - alive:
        _end(members)
        if time.monotonic() > deadline:
            raise LabError("processes of the lab start faster than they can be killed")
    _end(alive)


def belonging_to(leaders: Iterable[ProcessId], namespaces: frozenset[int]) -> set[ProcessId]:
    """Running processes that are `leaders`, in a leader's group or session, or inside one of these net namespaces.

    The caller vouches that each namespace is held by a running process of its own: an inode may be reused as well.
    """
    running = {leader.pid for leader in leaders if is_running(leader)}
    found = set()
    for pid in all_pids():
        stat = read_stat(pid)
        if stat is None or not stat.is_running:
            continue
        if {pid, stat.group, stat.session} & running or (namespaces and namespace(pid, "net") in namespaces):
            found.add(stat.id)
    return found


def _end(found: set[ProcessId]) -> None:
    if stuck := kill_all(found, timeout_s=END_TIMEOUT_S):
        pids = ", ".join(str(pid) for pid in sorted(process.pid for process in stuck))
        raise LabError("processes of the lab cannot be killed (uninterruptible sleep?): {pids}", pids=pids)
