"""Which process is which rank of which communicator."""

from collections.abc import Sequence

from msgspec import Struct

from allready.evidence.reading import OpStream
from allready.model import CommRecord, ProcessRecord

DEEPEST = 16

Key = tuple[object, ...]


class Process(Struct):
    """One process with its communicators and their operations."""

    record: ProcessRecord
    streams: dict[str, OpStream] = {}  # by pointer
    rank: int | None = None
    _comms: dict[str, list[CommRecord]] = {}  # by pointer, once it was asked for
    _whole: dict[CommRecord, int] = {}  # communicators of the whole job, likewise

    def comms_of(self, pointer: str) -> list[CommRecord]:
        """All communicators that had this pointer, one after another."""
        if not self._comms:
            for comm in self.record.comms:
                self._comms.setdefault(comm.comm, []).append(comm)
        return self._comms.get(pointer, [])

    def place_among_whole(self, comm: CommRecord, world: int) -> int:
        """Which of the communicators of `world` ranks that are no children it is, in the order of their making."""
        if not self._whole:
            alike = [c for c in self.record.comms if c.parent is None and c.nranks == world]
            for place, one in enumerate(alike):
                self._whole.setdefault(one, place)
        return self._whole[comm]


class LoggedGroup(Struct):
    """One communicator over all processes: rank in it -> process, its record and its operations."""

    name: str
    nranks: int
    is_child: bool
    is_whole: bool  # as large as the largest that is no child
    members: dict[int, tuple[Process, CommRecord, OpStream | None]] = {}


def gather_processes(streams: Sequence[OpStream], records: Sequence[ProcessRecord]) -> list[Process]:
    """Every stream with its process; of two copies of one stream the longer one counts."""
    processes = [Process(record=r, rank=r.rank) for r in records]
    by_key: dict[tuple[str | None, int | None], list[Process]] = {}
    for process in processes:
        by_key.setdefault((process.record.host, process.record.pid), []).append(process)
    for stream in streams:
        origin = stream.origin
        choices = by_key.setdefault((origin.host, origin.pid), [])
        chosen = _choose(choices, stream)
        if chosen is None:
            record = ProcessRecord(host=origin.host, pid=origin.pid, rank=origin.rank, sources=(origin.source,))
            chosen = Process(record=record, rank=origin.rank)
            choices.append(chosen)
            processes.append(chosen)
        old = chosen.streams.get(stream.comm)
        if old is None or old.num_operations < stream.num_operations:
            chosen.streams[stream.comm] = stream
    return processes


def _choose(choices: Sequence[Process], stream: OpStream) -> Process | None:
    """The process that wrote a stream; of several with one host and pid, the one with its file or its pointer."""
    if len(choices) <= 1:
        return choices[0] if choices else None
    by_file = [p for p in choices if stream.origin.source in p.record.sources]
    by_pointer = [p for p in by_file or choices if p.comms_of(stream.comm)]
    for found in (by_file, by_pointer):
        if len(found) == 1:
            return found[0]
    return None


def gather_groups(processes: Sequence[Process]) -> list[LoggedGroup]:
    """All communicators that can be joined; sets the processes' global ranks."""
    groups: dict[Key, LoggedGroup] = {}
    world = max((c.nranks for p in processes for c in p.record.comms if c.parent is None), default=0)
    for process in processes:
        pointers = {c.comm for c in process.record.comms} | set(process.streams)
        for pointer in sorted(pointers):
            comms = process.comms_of(pointer)
            keys = [_key(process, c, world) for c in comms]
            if not comms or any(k is None for k in keys):
                continue
            key = (*keys, "in turn") if len(set(keys)) > 1 else keys[0]
            assert key is not None
            stream, comm = process.streams.get(pointer), comms[-1]
            is_whole = comm.parent is None and comm.nranks == world
            new = LoggedGroup(_name(key), comm.nranks, is_child=comm.parent is not None, is_whole=is_whole)
            group = groups.setdefault(key, new)
            old = group.members.get(comm.rank)
            if old is None or _num(old[2]) < _num(stream):
                group.members[comm.rank] = (process, comm, stream)
    found = list(groups.values())
    _set_ranks(processes, found)
    _join_lonely(processes, found)
    return found


def _num(stream: OpStream | None) -> int:
    return -1 if stream is None else stream.num_operations


def _key(process: Process, comm: CommRecord, world: int, depth: int = 0) -> Key | None:
    """The same on all ranks of the communicator: its id, or its parent with the number of the split and the colour."""
    if comm.comm_id is not None:
        return ("id", comm.comm_id.lower(), comm.nranks)
    if comm.parent is not None:
        parents = process.comms_of(comm.parent)
        if not parents or depth >= DEEPEST or comm.color is None:
            return None
        parent = _key(process, parents[-1], world, depth + 1)
        return None if parent is None else ("split", parent, comm.split_count, comm.color, comm.nranks)
    if comm.nranks == world:
        # Before NCCL 2.16 there is no id: communicators of the whole job are made in the same order by all.
        return ("whole", process.place_among_whole(comm, world), world)
    return None


def _name(key: Key) -> str:
    if key[0] == "id":
        return str(key[1])
    if key[0] == "split":
        assert isinstance(key[1], tuple)
        return f"{_name(key[1])}/split {key[2]} color {key[3]}"
    if key[0] == "whole":
        return f"whole job #{key[1]}"
    return " then ".join(_name(k) for k in key if isinstance(k, tuple))


def _set_ranks(processes: Sequence[Process], groups: Sequence[LoggedGroup]) -> None:
    """Global ranks from communicators of the whole job; none if two processes claim one rank: it is not the whole."""
    claims: dict[int, set[int]] = {}
    for group in groups:
        if group.is_whole:
            for rank, (process, _, _) in group.members.items():
                claims.setdefault(rank, set()).add(id(process))
    if any(len(owners) > 1 for owners in claims.values()):
        return
    owner = {next(iter(owners)): rank for rank, owners in claims.items()}
    taken = {p.rank for p in processes}
    for process in processes:
        claimed = owner.get(id(process))
        if process.rank is None and claimed is not None and claimed not in taken:
            process.rank = claimed


def _join_lonely(processes: Sequence[Process], groups: list[LoggedGroup]) -> None:
    """Logs without Init lines: one communicator of equal size in every process, whose ranks are known otherwise."""
    lonely = [p for p in processes if p.streams and not p.record.comms]
    sizes = {s.nranks for p in lonely for s in p.streams.values()}
    ranks = {p.rank for p in lonely}
    nranks = next(iter(sizes), None)
    if groups or nranks is None or len(sizes) > 1 or None in ranks or len(ranks) < len(lonely):
        return
    if any(len(p.streams) > 1 or p.rank is None or p.rank >= nranks for p in lonely):
        return
    group = LoggedGroup("whole job", nranks, is_child=False, is_whole=True)
    for process in lonely:
        assert process.rank is not None
        stream = next(iter(process.streams.values()))
        group.members[process.rank] = (process, CommRecord(comm=stream.comm, rank=process.rank, nranks=nranks), stream)
    groups.append(group)
