"""What is used up or left over on a machine: disks, connections tracked, memory of the group, ports, ranks, locks."""

import functools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.host import Host, names_in, number, pids_of, text_of
from allready.facts.ports import LISTEN, holder_of, process_holder, sockets_of
from allready.facts.processes import INITS, command_of, started_at, user_of
from allready.facts.system import group_folders
from allready.facts.tasks import Task
from allready.model import BuildLock, Leftover, Listener, Loader, ProcessState, UsageFacts, Volume
from allready.patterns import compiled
from allready.proc.process import Stat, parse_command, parse_environ, parse_stat, status_field

TRACKED = "/proc/sys/net/netfilter/nf_conntrack"
VOLUME_S = 1.0
LOCK_S = 1.0
UNLIMITED_BYTES = 1 << 60
"""Version 1 of control groups writes a number where there is no limit."""
MAX_LISTENERS = 16
MAX_LEFTOVERS = 16
MAX_LOCKS = 8
MAX_FOLDERS = 64
MAX_PEERS = 64
MAX_ADDRESSES = 8
RESOLVER_S = 2.0
MAX_PORTS_ABOVE = 100
MAX_LOADERS = 64
_HELPER = r"\0-m\0allready\."
"""What a rank of a running job starts apart: the hub of `import allready`, which ends by itself."""
_LAUNCHER = r"python|torchrun|accelerate|deepspeed|allready|pt_elastic"
WORKER_NAME = "pt_data_worker"


def collect_usage(
    host: Host, *, ports: tuple[int, int] | None, peers: Sequence[str] = (), resolver_s: float = RESOLVER_S
) -> UsageFacts:
    """All of it; what cannot be read is left out.

    Args:
        ports: the range in which a job will listen.
        peers: names or addresses of the job's other machines.
        resolver_s: within which their names must resolve.
    """
    tracked = [number(text_of(host, f"{TRACKED}_{name}")) for name in ("count", "max")]
    limit, used = _memory(host)
    listening = dict(_listening(host, ports)) if ports else {}
    resolving = [Task(functools.partial(_addresses, host, peer, resolver_s), "peer") for peer in peers[:MAX_PEERS]]
    locks = Task(lambda: tuple(_locks(host))[:MAX_LOCKS], "locks")
    begun = time.monotonic()
    volumes, silent = _volumes(host)
    return UsageFacts(
        volumes=tuple(volumes),
        silent_folders=tuple(silent),
        num_tracked=tracked[0],
        max_tracked=tracked[1],
        memory_limit_bytes=limit,
        memory_used_bytes=used,
        asked_ports=ports,
        asked_peers=tuple(dict.fromkeys(a for task in resolving for a in task.result(timeout_s=resolver_s + 1.0))),
        listeners=tuple(listening.values())[:MAX_LISTENERS],
        free_port=_free_port(host, ports) if ports else None,
        leftovers=tuple(_leftovers(host))[:MAX_LEFTOVERS],
        locks=_in_time(locks, VOLUME_S - (time.monotonic() - begun)),
        **_processes(host),
    )


def _addresses(host: Host, peer: str, timeout_s: float) -> tuple[str, ...]:
    try:
        return host.resolve(peer, timeout_s=timeout_s)[:MAX_ADDRESSES]
    except FactUnavailable:
        return ()


def _in_time(locks: Task[tuple[BuildLock, ...]], timeout_s: float) -> tuple[BuildLock, ...]:
    try:
        return locks.result(timeout_s=timeout_s)
    except DeadlineExceeded:
        return ()


def _volumes(host: Host) -> tuple[list[Volume], list[str]]:
    """File systems that jobs write to, asked beside each other; and the folders that gave no answer."""
    environ = host.environ
    wanted = (environ.get("PWD", ""), environ.get("TMPDIR") or "/tmp", environ.get("HOME", ""))  # noqa: S108 - as tempfile chooses it
    paths = dict.fromkeys(p for p in wanted if p.startswith("/"))
    tasks = {path: Task(functools.partial(_volume, host, path), "volume") for path in paths}
    volumes: list[Volume] = []
    silent: list[str] = []
    until = time.monotonic() + VOLUME_S
    for path, task in tasks.items():
        try:
            volumes.append(task.result(timeout_s=until - time.monotonic()))
        except DeadlineExceeded:
            silent.append(path)
        except (FactUnavailable, KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue
    return volumes, silent


def _volume(host: Host, path: str) -> Volume:
    found: Any = host.probe(f"statvfs:{path}", timeout_s=2 * VOLUME_S)
    inodes = int(found.get("num_inodes") or 0)
    return Volume(
        path=path,
        total_bytes=int(found["total_bytes"]),
        free_bytes=int(found["free_bytes"]),
        is_read_only=bool(found.get("is_read_only")),
        num_inodes=inodes or None,
        num_free_inodes=int(found.get("num_free_inodes") or 0) if inodes else None,
    )


def _memory(host: Host) -> tuple[int | None, int | None]:
    """Limit and use of the control group that is fullest."""
    fullest: tuple[float, int, int] | None = None
    names = [(folder, "memory.max", "memory.current") for folder in group_folders(host)]
    names += [(folder, "memory.limit_in_bytes", "memory.usage_in_bytes") for folder in group_folders(host, "memory")]
    for folder, most, now in names:
        limit, used = number(text_of(host, f"{folder}/{most}")), number(text_of(host, f"{folder}/{now}"))
        if not limit or used is None or limit >= UNLIMITED_BYTES:
            continue
        used = max(0, used - _droppable(text_of(host, f"{folder}/memory.stat")))
        if fullest is None or used / limit > fullest[0]:
            fullest = (used / limit, limit, used)
    return (None, None) if fullest is None else fullest[1:]


def _droppable(text: str) -> int:
    """Bytes of files that nothing uses now; version 1 counts those of groups below only under `total_`."""
    rows = dict(line.partition(" ")[::2] for line in text.splitlines())
    names = ("inactive_file", "active_file")
    return sum(number(rows.get(f"total_{name}", rows.get(name, ""))) or 0 for name in names)


def _listening(host: Host, ports: tuple[int, int]) -> Iterator[tuple[int, Listener]]:
    seen: set[int] = set()
    for row in sockets_of(host):
        if row.state == LISTEN and ports[0] <= row.port <= ports[1] and row.port not in seen:
            seen.add(row.port)
            if len(seen) <= MAX_LISTENERS:
                yield row.port, Listener(port=row.port, holder=holder_of(host, row.uid, row.inode))


def _free_port(host: Host, ports: tuple[int, int]) -> int | None:
    try:
        taken = {row.port for row in sockets_of(host)}
    except FactUnavailable:
        return None
    return next((p for p in range(ports[0], min(65535, ports[1] + MAX_PORTS_ABOVE) + 1) if p not in taken), None)


def _processes(host: Host) -> dict[str, Any]:
    """What the names and states of all processes tell."""
    found = [parse_stat(pid, text_of(host, f"/proc/{pid}/stat")) for pid in pids_of(host)]
    stats = [stat for stat in found if stat is not None]
    return {**_zombies(host, stats), "loaders": tuple(_loaders(host, stats))[:MAX_LOADERS]}


def _loaders(host: Host, stats: Sequence[Stat]) -> Iterator[Loader]:
    """By the name that torch gives to the workers of its DataLoader."""
    by_parent: dict[int, list[int]] = {}
    for stat in stats:
        if stat.name == WORKER_NAME and stat.is_running:
            by_parent.setdefault(stat.parent, []).append(stat.pid)
    for parent, workers in by_parent.items():
        yield Loader(
            pid=parent,
            num_workers=len(workers),
            cpus=status_field(text_of(host, f"/proc/{workers[0]}/status"), "Cpus_allowed_list")[:256],
            command=command_of(host, parent),
            user=user_of(host, parent),
        )


def _zombies(host: Host, stats: Sequence[Stat]) -> dict[str, Any]:
    """How many processes have ended and were not reaped, and who should do it for most of them."""
    parents = Counter(stat.parent for stat in stats if stat.state == ProcessState.ZOMBIE)
    if not parents:
        return {"num_zombies": 0 if stats else None}
    [(parent, count)] = parents.most_common(1)
    return {"num_zombies": parents.total(), "zombie_parent": process_holder(host, parent), "num_parents_zombies": count}


def _ports_of(host: Host, pid: int, listening: Mapping[str, int]) -> tuple[int, ...]:
    """On which TCP ports a process listens, as far as its files may be seen."""
    try:
        inodes = host.probe(f"sockets:{pid}", timeout_s=LOCK_S)
        return tuple(sorted({listening[str(inode)] for inode in inodes if str(inode) in listening}))[:MAX_LISTENERS]
    except (FactUnavailable, TypeError):
        return ()


def _leftovers(host: Host) -> Iterator[Leftover]:
    """Ranks that torch's agent started and whose parent is init.

    Their variables tell: an agent itself has no LOCAL_RANK, and a rank has the agent as its parent while that lives.
    """
    if not _takes_in(host):
        return
    listening: dict[str, int] | None = None
    for pid in pids_of(host):
        stat = parse_stat(pid, text_of(host, f"/proc/{pid}/stat"))
        if stat is None or stat.parent != 1 or not stat.is_running:
            continue
        variables = parse_environ(text_of(host, f"/proc/{pid}/environ").encode())
        if "LOCAL_RANK" not in variables or "TORCHELASTIC_RUN_ID" not in variables:
            continue
        if compiled(_HELPER).search(text_of(host, f"/proc/{pid}/cmdline")):
            continue
        if listening is None:
            listening = _listening_inodes(host)
        yield Leftover(
            pid=pid,
            rank=variables["RANK"][:12] if "RANK" in variables else None,
            command=command_of(host, pid),
            user=user_of(host, pid),
            started=started_at(host, pid),
            ports=_ports_of(host, pid, listening),
        )


def _takes_in(host: Host) -> bool:
    """Whether the first process is no launcher, whose children are where they belong.

    Of a container it may be anything, a shell or `sleep`. Launchers are programs of Python; and the first process of a
    container that a rank started has the rank's variables itself.
    """
    if text_of(host, "/proc/1/comm").strip() in INITS:
        return True
    variables = parse_environ(text_of(host, "/proc/1/environ").encode())
    command = parse_command(text_of(host, "/proc/1/cmdline"), text_of(host, "/proc/1/comm"))
    return bool(command) and "LOCAL_RANK" not in variables and not compiled(_LAUNCHER).search(command)


def _listening_inodes(host: Host) -> dict[str, int]:
    try:
        return {row.inode: row.port for row in sockets_of(host) if row.state == LISTEN}
    except FactUnavailable:
        return {}


def _locks(host: Host) -> Iterator[BuildLock]:
    """Files `lock` in the folders of torch.utils.cpp_extension.load; while one is there, every load of it waits."""
    environ = host.environ
    caches = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    root = environ.get("TORCH_EXTENSIONS_DIR") or f"{caches}/torch_extensions"
    if not root.startswith("/"):
        return
    folders = [f"{root}/{name}" for name in names_in(host, root)[:MAX_FOLDERS]]
    inner = [f"{folder}/{name}" for folder in folders for name in names_in(host, folder)[:MAX_FOLDERS]]
    for folder in [*folders, *inner][: MAX_FOLDERS * 4]:
        if "lock" not in names_in(host, folder):
            continue
        try:
            found: Any = host.probe(f"file_use:{folder}/lock", timeout_s=LOCK_S)
            yield BuildLock(path=f"{folder}/lock", age_s=float(found["age_s"]), is_held=bool(found["pids"]))
        except (FactUnavailable, KeyError, TypeError, ValueError):
            continue
