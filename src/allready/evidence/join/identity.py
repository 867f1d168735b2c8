"""Who is who: one record per process, global ranks for pids, nodes numbered as the job numbers them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.reading import RasAnswer
from allready.model import Death, Event, Origin, ProcessRecord
from allready.patterns import compiled

MAX_RANKS = 1 << 18
"""No job is larger; a line that says so is damaged, and sets of ranks shall not fill the memory."""
_ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]*:[0-9a-fA-F:.%\w]*"
"""The numbers in an address number no nodes."""
_NODE_STEMS = frozenset({"node", "node-", "node_", "noderank", "node_rank", "node-rank"})
"""node0, node1 are numbers, as files are named; worker-3 is a host of that name, unless rank 0 lives on worker-0."""


class Identities(Struct):
    """What is known of ranks, processes and nodes; answers None wherever evidence is missing or disagrees."""

    processes: tuple[ProcessRecord, ...] = ()
    rank_of_pid: dict[tuple[str | None, int], int] = {}
    rank_of_lone_pid: dict[int, int] = {}
    node_key_of_rank: dict[int, str] = {}
    node_of_rank: dict[int, int] = {}
    node_numbers: dict[str, int] = {}
    is_numbered: bool = False
    """Whether the nodes' numbers are the job's own, and not only ours to distinguish them."""
    rank_of_node: dict[str, int] = {}
    """Of nodes that have one rank each, where every rank's node is known."""
    peers: dict[str, tuple[int, ...]] = {}
    world_size: int = 0

    def rank(self, origin: Origin) -> int | None:
        """The global rank of who wrote a line."""
        if origin.rank is not None or origin.pid is None:
            return origin.rank
        return self.rank_of(origin.host, origin.pid)

    def rank_of(self, host: str | None, pid: int) -> int | None:
        """The global rank of a process; without its host only if no two hosts have that pid."""
        if host is not None and (host, pid) in self.rank_of_pid:
            return self.rank_of_pid[host, pid]
        return self.rank_of_lone_pid.get(pid)

    def alone(self, origin: Origin) -> int | None:
        """The only rank of the node that wrote a line that names no rank; for lines that a rank wrote, no launcher."""
        if origin.rank is not None or origin.pid is not None or origin.local_rank not in {None, 0}:
            return None
        return self.rank_of_node.get(origin.node or "")

    def completed(self, origin: Origin, *, is_ranks: bool = False) -> Origin:
        """The origin with its rank filled in.  `is_ranks`: some rank wrote the line."""
        if origin.rank is not None:
            return origin
        rank = self.rank(origin)
        if rank is None and is_ranks:
            rank = self.alone(origin)
        return origin if rank == origin.rank else replace(origin, rank=rank)


def identify(
    processes: Iterable[ProcessRecord], events: Sequence[Event], deaths: Sequence[Death], answers: Sequence[RasAnswer]
) -> Identities:
    """Put together what every source says about ranks and nodes."""
    found = Identities(processes=merge_processes(processes))
    _pids(found, deaths, answers)
    _world_size(found, events, answers)
    _nodes(found, events, deaths, answers)
    _peers(found, answers)
    return found


def merge_processes(records: Iterable[ProcessRecord]) -> tuple[ProcessRecord, ...]:
    """One record per process: those of equal host and pid, unless their ranks or nodes differ."""
    merged: dict[tuple[Any, ...], ProcessRecord] = {}
    for record in records:
        key: tuple[Any, ...] = (record.host, record.pid, record.node)
        if record.pid is None:
            key = (record.host, None, record.node, record.rank)
        if key in merged and (None in (merged[key].rank, record.rank) or merged[key].rank == record.rank):
            merged[key] = _merged(merged[key], record)
        else:
            merged[(*key, record.rank) if key in merged else key] = record
    return tuple(sorted(merged.values(), key=lambda r: (r.rank is None, r.rank or 0, r.host or "", r.pid or 0)))


def _merged(a: ProcessRecord, b: ProcessRecord) -> ProcessRecord:
    """The union; of single values the first that is known, of times the outer ones."""
    changes: dict[str, Any] = {}
    for name in a.__struct_fields__:
        x, y = getattr(a, name), getattr(b, name)
        if name == "op_counts":
            changes[name] = {k: x.get(k, 0) + y.get(k, 0) for k in {**x, **y}}
        elif name == "comms":
            changes[name] = _merged_comms(x, y)
        elif isinstance(x, Mapping):
            changes[name] = {**y, **x}
        elif isinstance(x, tuple) and name != "oob":
            changes[name] = tuple(dict.fromkeys((*x, *(y or ()))))
        elif name == "first_time_s":
            changes[name] = min((t for t in (x, y) if t is not None), default=None)
        elif x is None:
            changes[name] = y
    if _later(b, a):
        changes |= {n: getattr(b, n) for n in ("last_time_s", "last_line", "last_line_class", "last_origin")}
    return replace(a, **changes)


def _later(b: ProcessRecord, a: ProcessRecord) -> bool:
    return b.last_line is not None and (
        a.last_line is None or (b.last_time_s is not None and (a.last_time_s or 0.0) < b.last_time_s)
    )


def _merged_comms(x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
    by_key = {(c.comm, c.rank, c.nranks): c for c in x}
    for comm in y:
        key = (comm.comm, comm.rank, comm.nranks)
        old = by_key.get(key)
        if old is None:
            by_key[key] = comm
            continue
        by_key[key] = replace(
            old,
            comm_id=old.comm_id or comm.comm_id,
            parent=old.parent or comm.parent,
            init_started=old.init_started or comm.init_started,
            init_completed=old.init_completed or comm.init_completed,
            destroyed=old.destroyed or comm.destroyed,
            aborted=old.aborted or comm.aborted,
        )
    return tuple(by_key.values())


def _pids(found: Identities, deaths: Sequence[Death], answers: Sequence[RasAnswer]) -> None:
    claims: dict[tuple[str | None, int], set[int]] = {}
    for process in found.processes:
        if process.pid is not None and process.rank is not None:
            claims.setdefault((process.host, process.pid), set()).add(process.rank)
    for death in deaths:
        if death.pid is not None and death.rank is not None:
            claims.setdefault((death.host, death.pid), set()).add(death.rank)
    for answer in answers:
        world = max((g.size for g in answer.groups), default=0)
        sizes = {g.group: g.size for g in answer.groups}
        for (group, rank), (host, pid) in answer.hosts.items():
            if pid is not None and sizes.get(group) == world:
                claims.setdefault((host, pid), set()).add(rank)
    for key, ranks in claims.items():
        if len(ranks) == 1:
            found.rank_of_pid[key] = next(iter(ranks))
    by_pid: dict[int, set[int]] = {}
    for (_, pid), ranks in claims.items():
        by_pid.setdefault(pid, set()).update(ranks)
    found.rank_of_lone_pid = {pid: next(iter(ranks)) for pid, ranks in by_pid.items() if len(ranks) == 1}
    found.processes = tuple(
        replace(p, rank=found.rank_of(p.host, p.pid)) if p.rank is None and p.pid is not None else p
        for p in found.processes
    )


def _world_size(found: Identities, events: Sequence[Event], answers: Sequence[RasAnswer]) -> None:
    sizes = [c.nranks for p in found.processes for c in p.comms]
    sizes += [g.size for a in answers for g in a.groups]
    for event in events:
        if event.family not in {"store", "elastic", "jax", "torch"}:
            continue
        for name in ("world_size", "expected", "global_world_size"):
            text = event.values.get(name, "")
            if text.isdecimal():
                sizes.append(int(text) if len(text) < 10 else 0)
    found.world_size = max((s for s in sizes if 0 <= s <= MAX_RANKS), default=0)


def _nodes(found: Identities, events: Sequence[Event], deaths: Sequence[Death], answers: Sequence[RasAnswer]) -> None:
    best, named = _best_keys(found, events, deaths)
    addresses = dict(_ras_hosts(found, answers))
    by_address: dict[str, str] = {}
    for rank, host in addresses.items():
        if rank in best:
            by_address.setdefault(host, best[rank])
    for rank, host in addresses.items():
        best.setdefault(rank, by_address.get(host, host))
    found.node_key_of_rank = best
    numbers, found.is_numbered = _numbered(best, named, events, found.world_size)
    found.node_numbers = dict(numbers)
    found.node_of_rank = _filled({rank: numbers[key] for rank, key in best.items() if key in numbers})
    if set(best) == set(range(found.world_size)):  # more than the size says: it is that of a smaller group
        num_ranks = Counter(best.values())
        found.rank_of_node = {key: rank for rank, key in best.items() if num_ranks[key] == 1}
    shared: dict[str, set[int]] = {}
    for process in found.processes:
        if process.host and process.rank is not None and process.rank in found.node_of_rank:
            shared.setdefault(process.host, set()).add(found.node_of_rank[process.rank])
    of_host = {host: next(iter(nodes)) for host, nodes in shared.items() if len(nodes) == 1}
    of_address = {host: numbers[key] for host, key in by_address.items() if key in numbers}
    for name, number in (*of_host.items(), *of_address.items()):
        found.node_numbers.setdefault(name, number)


def _best_keys(found: Identities, events: Sequence[Event], deaths: Sequence[Death]) -> tuple[dict[int, str], set[str]]:
    """Each rank's node by what logs call it, and all such names.

    A hint from a file's name or NCCL_HOSTID is worth more than a host name that several nodes share.
    """
    keys: dict[int, dict[str, int]] = {}

    def vote(rank: int | None, node: str | None, host: str | None = None) -> None:
        for key, weight in ((node, 3), (host, 1)):
            if rank is not None and key:
                votes = keys.setdefault(rank, {})
                votes[key] = max(votes.get(key, 0), weight)

    named = {process.node or process.host for process in found.processes}
    for process in found.processes:
        vote(process.rank, process.node, process.host)
    for rank, node, host in {(found.rank(e.origin), e.origin.node, e.origin.host) for e in events}:
        vote(rank, node, host)
        named.add(node)
    for death in deaths:
        vote(death.rank, death.node or death.origin.node)
        named.add(death.node or death.origin.node)
    best = {rank: max(sorted(votes), key=votes.__getitem__) for rank, votes in keys.items()}
    return best, {name for name in named if name}


def _ras_hosts(found: Identities, answers: Sequence[RasAnswer]) -> Iterator[tuple[int, str]]:
    """(global rank, host) of every process that RAS names."""
    for answer in answers:
        sizes = {group.group: group.size for group in answer.groups}
        for (group, rank), (host, pid) in answer.hosts.items():
            is_world = sizes.get(group, 0) == found.world_size
            world = rank if is_world else None if pid is None else found.rank_of(host, pid)
            if world is not None:
                yield world, host


def _filled(node_of_rank: dict[int, int]) -> dict[int, int]:
    """Ranks between known ones, where all that is known fits one number of ranks per node in order of rank."""
    if not node_of_rank or max(node_of_rank) > MAX_RANKS:
        return node_of_rank
    sizes = [k for k in range(1, 129) if all(r // k == n for r, n in node_of_rank.items())]
    if len(sizes) != 1:
        return node_of_rank
    return {rank: rank // sizes[0] for rank in range(max(node_of_rank) + 1)}


def _numbered(
    best: Mapping[int, str], lone: set[str], events: Sequence[Event], world_size: int
) -> tuple[dict[str, int], bool]:
    """Node key -> node rank: torchelastic's own message, else numbers in the names, else the order of lowest ranks.

    And whether the job itself numbers its nodes so, as far as the evidence says.
    """
    by_torch: dict[str, int] = {}
    for event in events:
        if event.signature == "elastic.rendezvous_complete":
            group_rank, key = event.values.get("group_rank", ""), event.origin.node or event.origin.host
            if group_rank.isdecimal() and key:
                by_torch[key] = int(group_rank)
    keys = set(best.values()) | (lone if not best else {k for k in lone if re.search(r"\d$", k)})
    if by_torch and keys <= set(by_torch) and len(set(by_torch.values())) == len(by_torch):
        return by_torch, True
    tails = {key: re.search(r"(\d{1,6})$", key) for key in keys}
    if keys and all(tails.values()) and not any(compiled(_ADDRESS).fullmatch(key) for key in keys):
        by_name = {key: int(match.group(1)) for key, match in tails.items() if match is not None}
        stems = {key[: -len(match.group(1))] for key, match in tails.items() if match is not None}
        is_confirmed = by_name.get(best.get(0, "")) == 0 or stems <= _NODE_STEMS
        is_like_it = 0 not in best and len(keys) > 1 and max(by_name.values()) < 2 * len(keys) + 2
        if len(stems) == 1 and len(set(by_name.values())) == len(keys) and (is_confirmed or is_like_it):
            return by_name, is_confirmed
    keys = set(best.values()) or lone
    lowest = {key: min((r for r, k in best.items() if k == key), default=1 << 30) for key in keys}
    natural = {
        k: [(0, int(t), "") if t.isdecimal() else (1, 0, t) for t in re.findall(r"\d{1,9}|\D+", k)] for k in keys
    }
    numbers = {key: number for number, key in enumerate(sorted(keys, key=lambda k: (lowest[k], natural[k], k)))}
    return numbers, bool(best) and set(best) == set(range(world_size))


def _peers(found: Identities, answers: Sequence[RasAnswer]) -> None:
    peers: dict[str, set[int]] = {}
    for process in found.processes:
        if process.rank is None:
            continue
        for _, address in (*process.interfaces, *((process.oob,) if process.oob else ())):
            peers.setdefault(re.sub(r"<\d+>$", "", address), set()).add(process.rank)
    for rank, host in _ras_hosts(found, answers):
        peers.setdefault(host, set()).add(rank)
    found.peers = {address: tuple(sorted(ranks)) for address, ranks in peers.items()}
