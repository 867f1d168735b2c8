"""The writer of a line: by the line, by other lines of the same process, by the file's name; in this order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from allready.evidence.log.line import Line
from allready.evidence.log.names import Hints
from allready.evidence.prefix import Prefix

_AGENT_FILES = (
    "torch/distributed/elastic/", "torch/distributed/run.py", "torch/distributed/launcher/", "torch.distributed.run",
    "torch.distributed.elastic", "torch.distributed.launcher", "torch/distributed/launch.py", "launch.py:",
)  # fmt: skip
_AGENT_FRAMES = ('bin/torchrun"', 'torch/distributed/run.py"', "distributed/elastic/agent/", "elastic/rendezvous/")
MAX_WRITERS = 20_000

_UNNAMED = (None,) * 6
_AFTER_TIMES = Prefix._fields.index("outer_time_s") + 1

Process = tuple[str, int]
WriterKey = tuple[int | None, int | None, str | None]


class Writer(NamedTuple):
    """The writer of a line as far as it is known."""

    host: str | None = None
    pid: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    task: int | None = None
    is_agent: bool = False


def is_agent(prefix: Prefix) -> bool:
    """Whether a launcher wrote it, for its node, not a rank."""
    file = prefix.file
    return file is not None and prefix.kind in ("glog", "python") and file.startswith(_AGENT_FILES)


def _is_agents_frame(line: Line) -> bool:
    """Whether it is a line of a traceback of torchrun itself."""
    text = line.text
    return 'File "' in text and any(mark in text for mark in _AGENT_FRAMES)


class WriterResolver:
    """Everything a file says of its writers, to be asked line by line."""

    def __init__(
        self,
        lines: Sequence[Line],
        ranks: Mapping[Process, int],
        nodes: Mapping[Process, str],
        tables: Iterable[tuple[WriterKey, int | None, int | None, int | None]],
        local_to_global: Mapping[tuple[WriterKey, int], int],
        hints: Hints,
    ) -> None:
        """`tables`: (writer, rank, local rank, pid) as launchers wrote them down."""
        self._hints = hints
        self._resolved: dict[tuple[object, ...], Writer] = {}
        self._ranks = dict(ranks)
        self._nodes = dict(nodes)
        self._local_to_global = dict(local_to_global)
        self._rank_of_pid: dict[int, set[int]] = {}
        self._local_of_rank: dict[int, set[int]] = {}
        self._local_of_pid: dict[int, set[int]] = {}
        self.named_ranks: set[int] = set()
        self.processes: set[Process] = set()
        self._tasks: dict[Process, set[int]] = {}
        self._agents: set[WriterKey] = set()
        self._nodes_seen: set[str] = set()
        by_task: dict[int, list[set[int]]] = {}
        seen: set[tuple[object, ...]] = set()
        for line in lines:
            if line.prefix.kind == "nccl":  # all that matters stands in front of its words
                key = line.prefix[_AFTER_TIMES:]
                if key in seen:
                    continue
                seen.add(key)
            self._note_writer(line, by_task)
        for process, rank in self._ranks.items():
            self._rank_of_pid.setdefault(process[1], set()).add(rank)
        for _, table_rank, local_rank, pid in tables:
            _note(self._rank_of_pid, pid, table_rank)
            _note(self._local_of_rank, table_rank, local_rank)
            _note(self._local_of_pid, pid, local_rank)
        self.tasks_are = self._meaning_of_tasks(by_task)
        self.tasks_are_ranks = self.tasks_are == "rank" or (self.tasks_are is None and not by_task and not self._agents)
        self._sole = self._only_writer()

    def _note_writer(self, line: Line, by_task: dict[int, list[set[int]]]) -> None:
        p = line.prefix
        if p.kind == "nccl" and p.host is not None and p.pid is not None and len(self.processes) < MAX_WRITERS:
            self.processes.add((p.host, p.pid))
            if p.task is not None:
                self._tasks.setdefault((p.host, p.pid), set()).add(p.task)
        if p.rank is not None and len(self.named_ranks) < MAX_WRITERS:
            self.named_ranks.add(p.rank)
            _note(self._local_of_rank, p.rank, p.local_rank)
        if p.node is not None and len(self._nodes_seen) < MAX_WRITERS:
            self._nodes_seen.add(p.node)
        if is_agent(p) or "ChildFailedError" in line.text or _is_agents_frame(line):
            self._agents.add(p.writer)
        if p.task is not None and (p.task in by_task or len(by_task) < MAX_WRITERS):
            pids, ranks, locals_ = by_task.setdefault(p.task, [set(), set(), set()])
            if p.kind == "nccl" and p.pid is not None:
                pids.add(p.pid)
                world = self._ranks.get((p.host or "", p.pid))
                if world is not None:
                    ranks.add(world)
            if p.rank is not None:
                ranks.add(p.rank)
            if p.local_rank is not None:
                locals_.add(p.local_rank)

    def _meaning_of_tasks(self, by_task: Mapping[int, list[set[int]]]) -> str | None:
        """Whether the number in front of lines is the "rank" or the "node" (one launcher on each); None: not known."""
        if not by_task:
            return None
        if any(writer[0] is not None for writer in self._agents):
            return "node"
        if any(len(numbers) > 1 for sets in by_task.values() for numbers in sets):
            return "node"
        return "rank" if all(ranks <= {task} for task, (_, ranks, _) in by_task.items()) else None

    def _only_writer(self) -> Writer | None:
        """The process that wrote everything, if the lines name one only and no launcher speaks."""
        if self._agents or self.tasks_are is not None or len(self._nodes_seen) > 1:
            return None
        if len(self.processes) > 1 or len(self.named_ranks) > 1:
            return None
        if len(self.processes) == 1:
            host, pid = next(iter(self.processes))
            rank = self.rank_of(host, pid)
            if rank is None:
                rank = next(iter(self.named_ranks), None)
            elif not self.named_ranks <= {rank}:
                return None
            return Writer(host, pid, rank, None, self._nodes.get((host, pid)))
        if self.named_ranks:
            return Writer(rank=next(iter(self.named_ranks))) if self._hints.rank in self.named_ranks else None
        hints = self._hints
        if hints.rank is None and hints.pid is None and hints.local_rank is None:
            return None
        return Writer(hints.host, hints.pid, hints.rank, hints.local_rank, hints.node)

    def rank_of(self, host: str | None, pid: int | None) -> int | None:
        """The rank of a process, where NCCL, a launcher's table or the number before its lines tells."""
        if pid is None:
            return None
        rank = None if host is None else self._ranks.get((host, pid))
        if rank is None:
            rank = _only(self._rank_of_pid.get(pid))
        if rank is None and host is not None and self.tasks_are == "rank":
            rank = _only(self._tasks.get((host, pid)))
        return rank

    def of(self, prefix: Prefix) -> Writer:
        """Who wrote a line with such a prefix."""
        key = prefix[_AFTER_TIMES:]
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = self._resolve(prefix)
        return found

    def _resolve(self, p: Prefix) -> Writer:
        if p.kind in ("kernel", "syslog"):
            return Writer(host=p.host, pid=p.pid, rank=p.rank, node=p.node or self._hint_node(), task=p.task)
        node = p.node
        if node is None and p.task is not None and self.tasks_are == "node":
            node = str(p.task)
        if is_agent(p):
            return Writer(pid=p.pid, node=node or self._hint_node(), task=p.task, is_agent=True)
        sole = self._sole
        if (p.host, p.pid, p.rank, p.local_rank, p.task, node) == _UNNAMED:
            if sole is None or sole.node is None:
                return (sole or Writer())._replace(node=self._hint_node())
            return sole
        rank = self._rank(p)
        host, pid, local_rank = p.host, p.pid, p.local_rank
        if pid is None and sole is not None and (rank is None or rank == sole.rank):
            host, pid = host or sole.host, sole.pid
        if local_rank is None and rank is not None:
            local_rank = _only(self._local_of_rank.get(rank))
        if local_rank is None and pid is not None:
            local_rank = _only(self._local_of_pid.get(pid))
        if host is not None and pid is not None:
            node = self._nodes.get((host, pid)) or node
        return Writer(host, pid, rank, local_rank, node or self._hint_node(), p.task)

    def _rank(self, p: Prefix) -> int | None:
        """The rank of the writer of a line with such a prefix."""
        rank = self.rank_of(p.host, p.pid) if p.rank is None else p.rank
        if rank is None and p.task is not None and self.tasks_are == "rank":
            rank = p.task
        if rank is None and p.local_rank is not None:
            rank = self._local_to_global.get(((p.task, None, p.node), p.local_rank))
        if rank is None and self._sole is not None:
            rank = self._sole.rank
        return rank

    def _hint_node(self) -> str | None:
        """The name in the file's name, unless the lines name nodes themselves."""
        named = self._nodes_seen | set(self._nodes.values())
        if self._hints.node is None or (named and named != {self._hints.node}) or self.tasks_are == "node":
            return None
        return self._hints.node


def _note(table: dict[int, set[int]], key: int | None, value: int | None) -> None:
    if key is not None and value is not None and len(table) < MAX_WRITERS:
        table.setdefault(key, set()).add(value)


def _only(values: set[int] | None) -> int | None:
    return next(iter(values)) if values is not None and len(values) == 1 else None
