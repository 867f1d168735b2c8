"""How ranks ended: deaths told by several sources made one, consequences told from causes, and who ended well."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from allready.evidence.join.identity import Identities
from allready.model import Death, Event, ProcessRecord

SAME_DEATH_S = 120.0
"""Two reports of one rank's end within this time are one death (the agent's table comes after the traceback)."""

_STRENGTH = {"oom": 4, "exception": 3, "signal": 2, "abort": 2, "exit": 1}


def merge_deaths(deaths: Iterable[Death], identities: Identities, events: Sequence[Event]) -> tuple[Death, ...]:
    """One death per process, with the most telling kind; ends that a launcher or a watchdog brought are marked."""
    stopped = {
        (e.origin.source, int(e.values["pid"]))
        for e in events
        if e.signature == "elastic.closing_signal" and e.values.get("pid", "").isdecimal()
    }
    timed_out = {
        identities.rank(e.origin)
        for e in events
        if e.signature in {"torch.watchdog_timeout", "torch.async_exception", "torch.heartbeat_abort"}
    }
    thrown = {e.origin.source for e in events if e.signature.startswith("gloo.") and "enforce fail" in e.text}
    merged: list[Death] = []
    for death in sorted(deaths, key=lambda d: (d.time_s is None, d.time_s or 0.0)):
        rank = death.rank
        if rank is None and death.pid is not None:
            rank = identities.rank_of(death.host, death.pid)
        one = replace(death, rank=rank)
        if death.pid is not None and (death.origin.source, death.pid) in stopped and death.signal == "SIGTERM":
            one = replace(one, by_launcher=True)
        if one.kind in {"abort", "signal"} and one.signal in {"SIGABRT", "6"}:
            # The watchdog ends its process by SIGABRT, and so does an exception in a thread of a library.
            library = rank in timed_out or one.origin.source in thrown
            one = replace(one, is_collective_error=one.is_collective_error or library)
        same = next((i for i, old in enumerate(merged) if _is_same(old, one)), None)
        if same is None:
            merged.append(one)
        else:
            merged[same] = _together(merged[same], one)
    return tuple(merged)


def _is_same(a: Death, b: Death) -> bool:
    if a.time_s is not None and b.time_s is not None and abs(a.time_s - b.time_s) > SAME_DEATH_S:
        return False
    if a.rank is not None and b.rank is not None:
        return a.rank == b.rank
    if a.pid is not None and b.pid is not None:
        return a.pid == b.pid and (a.host is None or b.host is None or a.host == b.host)
    return a.origin.source == b.origin.source and a.local_rank is not None and a.local_rank == b.local_rank


def _together(a: Death, b: Death) -> Death:
    strong, weak = (a, b) if _STRENGTH.get(a.kind, 0) >= _STRENGTH.get(b.kind, 0) else (b, a)
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
        time_s=min((t for t in (a.time_s, b.time_s) if t is not None), default=None),
        by_launcher=a.by_launcher or b.by_launcher,
        first=a.first or b.first,
        is_collective_error=strong.is_collective_error,
    )


def ended_well(
    processes: Sequence[ProcessRecord], events: Sequence[Event], deaths: Sequence[Death], identities: Identities
) -> frozenset[int]:
    """Ranks that show an orderly end: every communicator destroyed, or their launcher says that its group succeeded.

    A rank that died, was aborted or that a later line of its own contradicts is not among them.
    """
    well: set[int] = set()
    bad = {d.rank for d in deaths if d.rank is not None}
    for process in processes:
        if process.rank is None or not process.comms:
            continue
        if any(c.aborted for c in process.comms):
            bad.add(process.rank)
        elif all(c.destroyed for c in process.comms if c.init_completed) and any(c.destroyed for c in process.comms):
            well.add(process.rank)
    for event in events:
        rank = identities.rank(event.origin)
        if event.signature == "torch.not_destroyed" and rank is not None:
            well.add(rank)
        elif event.signature == "elastic.success":
            node = identities.node_numbers.get(event.origin.node or event.origin.host or "")
            well |= {r for r, n in identities.node_of_rank.items() if n == node}
    # A process that unloads the library left by the door: alone that proves little, of all ranks it is an orderly end.
    left = {p.rank for p in processes if p.rank is not None and p.last_line_class == "teardown"} - bad
    everybody = set(range(identities.world_size))
    if everybody and not bad and everybody <= well | left:
        well |= everybody
    return frozenset(well - bad)
