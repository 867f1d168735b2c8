"""How ranks ended: deaths reported by several sources made one, consequences distinguished from causes, and who ended
well."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.join.identity import Identities
from allready.evidence.log.names import place_of_agent
from allready.model import CRASHES, BenchRun, Death, Event, Origin, ProcessRecord
from allready.patterns import compiled
from allready.signatures.names import OF_RESULTS
from allready.signatures.watchdog import ERRORS, TIMEOUTS

SAME_DEATH_S = 120.0
"""Two reports of one rank's end within this time are one death (the agent's table comes after the traceback)."""

UNLOADING = "cuda.unloading"
"""A thread used CUDA while its process was exiting: the script had ended before."""

MAX_NEAR = 64
"""Reports of one rank or pid that a new one is compared with."""

_KERNELS = r"[Kk]ill(?:ed)? process \d+ \(|\[\d+\]:? (?:segfault at|general protection)"
_STRENGTH = {"oom": 4, "exception": 3, "signal": 2, "abort": 2, "exit": 1}

_CODES, _OF_CALLS = "nccl.back_trace", r"(?:^|/)(?:init|enqueue|group|collectives)\.(?:cc|cu):"
"""Files of NCCL's in which a call of the program's returns: it got the code."""

MAX_ABOVE_A_CRASH, _MAX_NAMELESS_ABOVE = 100, 12
"""Lines from what failed in a process to what a handler of signals prints of its crash; where nothing tells that it is
one process."""

MAX_LOCAL_RANKS = 64
Victims = frozenset[tuple[str, int]]
"""Source and pid of processes that a kernel log speaks of and that were ranks of this job."""


def merge_deaths(
    deaths: Sequence[Death], identities: Identities, events: Sequence[Event]
) -> tuple[tuple[Death, ...], Victims]:
    """One death per process, with the most telling kind; ends that a launcher or a watchdog brought are marked.

    Also whom the kernel's own lines are about.
    """
    stopped = {
        (e.origin.source, int(e.values["pid"]))
        for e in events
        if e.signature == "elastic.closing_signal" and e.values.get("pid", "").isdecimal()
    }
    gave_up = [e for e in events if e.signature in TIMEOUTS | ERRORS | {"torch.heartbeat_abort"}]
    timed_out = {rank for e in gave_up if (rank := identities.rank(e.origin)) is not None}
    nameless = {e.origin.source for e in gave_up if identities.rank(e.origin) is None}
    exiting = {identities.rank(e.origin) for e in events if e.signature == UNLOADING} - {None}
    failed = [e.origin for e in events if e.signature.startswith(OF_RESULTS) or _is_callers(e)]
    thrown = {e.origin.source for e in events if e.family == "gloo" and "enforce fail" in e.text}
    seen = [*((d.origin, d.rank) for d in deaths), *((e.origin, None) for e in events)]
    first_ranks = _of_table(deaths, events) | _first_ranks(seen, identities)
    kept = _Merged()
    for death in sorted(deaths, key=lambda d: (d.time_s is None, d.time_s or 0.0)):
        rank = death.rank
        if rank is None and death.pid is not None and not _is_kernels(death):
            rank = identities.rank_of(death.host, death.pid)
        if rank is None and death.local_rank is not None and death.pid is None and _is_one_node(identities):
            rank = death.local_rank if death.local_rank < identities.world_size else None
        if rank is None and death.local_rank is not None and not death.is_agents:
            rank = _beside(death, first_ranks)
        if rank is None and death.pid is None and not death.is_agents and not _is_kernels(death):
            rank = identities.alone(replace(death.origin, node=death.node or death.origin.node))
        one = replace(death, rank=rank)
        if death.pid is not None and (death.origin.source, death.pid) in stopped and death.signal == "SIGTERM":
            one = replace(one, by_launcher=True)
        if one.kind in {"abort", "signal"} and one.signal in {"SIGABRT", "6"}:
            # The watchdog ends its process by SIGABRT, and so does an exception in a thread of a library.
            library = (
                rank in timed_out or one.origin.source in thrown or (rank is None and one.origin.source in nameless)
            )
            one = replace(one, is_collective_error=one.is_collective_error or library)
        if one.signal in CRASHES and one.exit_code is None and any(_failed_above(line, one) for line in failed):
            one = replace(one, is_collective_error=True)  # it crashed on its way out
        if one.signal in CRASHES and rank in exiting:
            one = replace(one, while_exiting=True)
        kept.add(one)
    return _with_kernels(_with_words(kept.deaths), identities)


def is_right_above(line: Origin, death: Death, num_lines: int) -> bool:
    """Whether a line stands at most so far above a process's end, and nothing says that it is of another process."""
    if line.source != death.origin.source or line.line is None or death.origin.line is None:
        return False
    is_near = 0 < death.origin.line - line.line <= num_lines
    return is_near and all(one == other or None in (one, other) for one, other in _ids(line, death))


def _ids(line: Origin, death: Death) -> tuple[tuple[int | None, int | None], ...]:
    return (line.pid, death.pid), (line.rank, death.rank)


def _is_callers(event: Event) -> bool:
    """Whether NCCL says that a call of the program's returned an error."""
    is_code = event.signature == _CODES and event.values.get("result") not in {"0", "7"}  # 7: still at work
    return is_code and compiled(_OF_CALLS).search(event.values.get("file", "")) is not None


def _failed_above(line: Origin, crash: Death) -> bool:
    """Whether a process says that NCCL failed right before it tells of its own crash."""
    is_known = any(one is not None and one == other for one, other in _ids(line, crash))
    return is_right_above(line, crash, MAX_ABOVE_A_CRASH if is_known else _MAX_NAMELESS_ABOVE)


def _first_ranks(seen: Iterable[tuple[Origin, int | None]], identities: Identities) -> dict[str, set[int]]:
    """Global rank of local rank 0, by the folder of a node's agent: an agent numbers its ranks without a gap, therefore
    one rank that gives its number tells those of all others."""
    found: dict[str, set[int]] = {}
    for origin, stated_rank in seen:
        place = place_of_agent(origin.source)
        rank = identities.rank(origin) if stated_rank is None else stated_rank
        if place is not None and rank is not None:
            found.setdefault(place[0], set()).add(rank - place[1])
    return found


def _of_table(deaths: Sequence[Death], events: Sequence[Event]) -> dict[str, set[int]]:
    """The same by a launcher's table, where there is one folder and one table, and the one whom the table calls the
    first raised in that folder: the table of another node would call another one so."""
    sources = {*(d.origin.source for d in deaths), *(e.origin.source for e in events)}
    places = [place for source in sources if (place := place_of_agent(source)) is not None]
    rows = [d for d in deaths if d.rank is not None and d.local_rank is not None and d.pid is not None]
    rows = [d for d in rows if place_of_agent(d.origin.source) is None]
    first_ranks = {d.rank - d.local_rank for d in rows if d.rank is not None and d.local_rank is not None}
    raised = {place_of_agent(d.origin.source) for d in deaths if d.kind == "exception"}
    folders = {folder for folder, _ in places}
    firsts = {(folder, d.local_rank) for folder in folders for d in rows if d.first}
    return dict.fromkeys(folders, first_ranks) if len(folders) == 1 and firsts and firsts <= raised else {}


def _beside(death: Death, first_ranks: Mapping[str, set[int]]) -> int | None:
    """The global rank of a death that is known by its folder only; None where the others of that folder disagree."""
    place = place_of_agent(death.origin.source)
    first = first_ranks.get(place[0], set()) if place is not None and place[1] == death.local_rank else set()
    return min(first) + place[1] if place is not None and len(first) == 1 and min(first) >= 0 else None


def _with_words(deaths: list[Death]) -> list[Death]:
    """The deaths, an exit code joined with the exception that stood last before it, where only one such was raised: a
    launcher names the process and the traceback the rank, and nothing may say which is which."""
    raised: dict[tuple[str, str], list[int]] = {}
    for at, death in enumerate(deaths):
        if death.kind == "exception" and death.pid is None:
            raised.setdefault((death.origin.source, death.text), []).append(at)
    joined: dict[int, Death] = {}
    gone = set()
    for at, death in enumerate(deaths):
        same = raised.get((death.origin.source, death.last_words), [])
        if death.kind == "exit" and death.rank is None and len(same) == 1 and same[0] not in joined:
            joined[same[0]] = _together(deaths[same[0]], death)
            gone.add(at)
    return [joined.get(at, death) for at, death in enumerate(deaths) if at not in gone]


def _is_one_node(identities: Identities) -> bool:
    """Whether the whole job is known to be on one node, where every rank has the GPU of its number: then local ranks
    are those of the job.  Two launchers on one machine count from 0 each."""
    everybody = range(min(identities.world_size, MAX_LOCAL_RANKS))
    devices = {p.rank: p.cuda_dev for p in identities.processes if p.rank is not None}
    return (
        0 < identities.world_size <= MAX_LOCAL_RANKS
        and {identities.node_of_rank.get(rank) for rank in everybody} == {0}
        and all(devices.get(rank) == rank for rank in everybody)
    )


class _Merged(Struct):
    """Deaths so far, found again by rank, process or place."""

    deaths: list[Death] = []
    places: dict[tuple[str, object], list[int]] = {}

    def add(self, death: Death) -> None:
        keys = _keys(death)
        near = sorted({at for key in keys for at in self.places.get(key, ())[-MAX_NEAR:]})
        at = next((at for at in near if _is_same(self.deaths[at], death)), None)
        if at is None:
            at = len(self.deaths)
            self.deaths.append(death)
        else:
            self.deaths[at] = _together(self.deaths[at], death)
        for key in (*keys, *_keys(self.deaths[at])):
            known = self.places.setdefault(key, [])
            if at not in known[-MAX_NEAR:]:
                known.append(at)


def _keys(death: Death) -> list[tuple[str, object]]:
    keys: list[tuple[str, object]] = []
    if death.rank is not None:
        keys.append(("rank", death.rank))
    if death.pid is not None:
        keys.append(("pid", death.pid))
    if death.local_rank is not None:
        keys.append(("local", (death.origin.source, death.local_rank)))
    return keys


def _is_kernels(death: Death) -> bool:
    """The kernel speaks of any process of the machine, by the machine's own pids."""
    return compiled(_KERNELS).search(death.text) is not None


def _with_kernels(deaths: Sequence[Death], identities: Identities) -> tuple[tuple[Death, ...], Victims]:
    """What the kernel says joined with the rank that vanished; of processes that are no rank's nothing is kept.

    A container's pids are not the kernel's, so beside the pid the node, the signal and the moment decide.
    """
    reported = [d for d in deaths if _is_kernels(d) and d.rank is None]
    victims: set[tuple[str, int]] = set()
    rest = [d for d in deaths if not (_is_kernels(d) and d.rank is None)]
    for one in reported:
        node = _node_of(one, identities)
        rank = identities.rank_of(one.host, one.pid) if one.pid is not None else None
        fitting = [
            at
            for at, d in enumerate(rest)
            if d.signal == one.signal
            and not d.by_launcher
            and (rank is None or d.rank is None or d.rank == rank)
            and _agree(node, _node_of(d, identities))
            and (one.time_s is None or d.time_s is None or abs(d.time_s - one.time_s) <= SAME_DEATH_S)
        ]
        exact = [at for at in fitting if rank is not None or (one.pid is not None and rest[at].pid == one.pid)]
        if exact or len(fitting) == 1:
            at = (exact or fitting)[0]
            rest[at] = replace(_together(rest[at], one), by_launcher=False)
        elif rank is not None and not any(d.rank == rank for d in rest):
            rest.append(replace(one, rank=rank))
        else:
            continue
        if one.pid is not None:
            victims.add((one.origin.source, one.pid))
    return tuple(rest), frozenset(victims)


def _node_of(death: Death, identities: Identities) -> int | None:
    if death.rank is not None and death.rank in identities.node_of_rank:
        return identities.node_of_rank[death.rank]
    names = (death.node, death.origin.node, death.host)
    return next((identities.node_numbers[n] for n in names if n and n in identities.node_numbers), None)


def _agree(a: int | None, b: int | None) -> bool:
    return a is None or b is None or a == b


def _is_same(a: Death, b: Death) -> bool:
    if a.pid is not None and b.pid is not None and a.pid != b.pid:
        return False  # another process: another attempt of the same rank, or another rank
    if a.time_s is not None and b.time_s is not None and abs(a.time_s - b.time_s) > SAME_DEATH_S:
        return False
    if a.rank is not None and b.rank is not None:
        return a.rank == b.rank
    if a.pid is not None and b.pid is not None:
        return a.host is None or b.host is None or a.host == b.host
    return a.origin.source == b.origin.source and a.local_rank is not None and a.local_rank == b.local_rank


def _together(a: Death, b: Death) -> Death:
    """One death of two reports.  Who had ended itself was not ended by the launcher that stopped it afterwards."""
    strong, weak = (a, b) if _weight(a) >= _weight(b) else (b, a)
    stopped = strong.by_launcher or (
        weak.by_launcher and strong.signal in {None, weak.signal} and strong.kind == "exit"
    )
    if weak.by_launcher and not stopped and strong.signal != weak.signal:
        weak = replace(weak, signal=None, exit_code=None)
    return replace(
        strong,
        rank=strong.rank if strong.rank is not None else weak.rank,
        local_rank=strong.local_rank if strong.local_rank is not None else weak.local_rank,
        node=strong.node or weak.node,
        host=strong.host or weak.host,
        pid=strong.pid if strong.pid is not None else weak.pid,
        signal=strong.signal or weak.signal,
        exit_code=strong.exit_code if strong.exit_code is not None else weak.exit_code,
        text=strong.text or weak.text,
        site=strong.site or weak.site,
        call=strong.call or weak.call,
        time_s=min((t for t in (a.time_s, b.time_s) if t is not None), default=None),
        by_launcher=stopped or (weak.by_launcher and strong.signal == weak.signal and strong.signal == "SIGTERM"),
        first=a.first or b.first,
        # The words of a library that ended its process explain the signal that others saw.
        is_collective_error=strong.is_collective_error
        or (weak.is_collective_error and weak.kind == "abort" and strong.signal in {"SIGABRT", "6"}),
        while_exiting=strong.while_exiting or weak.while_exiting,
        last_words=strong.last_words or weak.last_words,
        is_open=a.is_open and b.is_open,
    )


def _weight(death: Death) -> tuple[bool, int]:
    return (not death.by_launcher or death.kind in {"exception", "oom"}, _STRENGTH.get(death.kind, 0))


def ended_well(
    processes: Sequence[ProcessRecord],
    events: Sequence[Event],
    deaths: Sequence[Death],
    identities: Identities,
    benches: Sequence[BenchRun] = (),
    *,
    has_output: bool,
) -> frozenset[int]:
    """Ranks that show an orderly end: every communicator destroyed, their launcher says that its group succeeded, or
    all tables of nccl-tests are whole and right.

    A rank that died, was aborted or that a later line of its own contradicts is not among them.

    Args:
        has_output: what the job itself printed was read too, so that an exception would be known.
    """
    well: set[int] = set()
    bad = {d.rank for d in deaths if d.rank is not None and not d.earlier and not d.is_open}
    for process in processes:
        if process.rank is None or not process.comms:
            continue
        if any(c.aborted for c in process.comms):
            bad.add(process.rank)
        elif all(c.destroyed for c in process.comms if c.init_completed) and any(c.destroyed for c in process.comms):
            well.add(process.rank)
    # torch says that groups were not destroyed after an exception as well, whose rank may not be known.
    is_disturbed = any(d.rank is None and not d.earlier for d in deaths) or any(
        e.signature in {"elastic.closing_signal", "elastic.death_signal"} for e in events
    )
    for event in events:
        if event.signature == "torch.not_destroyed":
            rank = identities.rank(event.origin)
            if rank is not None and not is_disturbed:
                well.add(rank)
        elif event.signature == "elastic.success":
            node = identities.node_numbers.get(event.origin.node or event.origin.host or "")
            well |= {r for r, n in identities.node_of_rank.items() if n == node}
    if benches and all(b.is_good for b in benches):
        num_ranks = max(b.num_ranks for b in benches)
        well |= set(range(num_ranks)) if num_ranks >= identities.world_size else set()
    # A process that unloads the library left by the door, but an exception leaves by it as well: it is an orderly end
    # only where every rank did and the job's own output, which would have the traceback, shows no death.
    left = {p.rank for p in processes if p.rank is not None and p.last_line_class == "teardown"} - bad
    everybody = set(range(identities.world_size))
    died = any(not d.by_launcher and not d.earlier for d in deaths)
    if has_output and everybody and not bad and not died and everybody <= well | left:
        well |= everybody
    return frozenset(well - bad)
