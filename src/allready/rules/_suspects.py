"""Why a rank that others wait for is late: what its stack, its end, RAS and its silence say."""

from collections.abc import Sequence
from dataclasses import dataclass

from allready.model import Aftermath, Confidence, Evidence, FaultClass, Role, clock_time
from allready.rules._ruins import evidence
from allready.rules._waits import Picture

STUCK = {
    "stopped", "lock", "sleep", "io", "data_loading", "subprocess_wait", "network_wait", "user_idle", "user_code"
}  # fmt: skip
BUSY = {"cpu_work", "tokenize", "import_or_compile"}
WAITING = {"in_collective", "gpu_wait"}
LEAVING = {"exit"}
CLOSED = {"nccl.peer_closed", "nccl.peer_reset", "gloo.peer_closed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One rank, and what is known of it.

    `doing`: a word for what its main thread did, "" when no stack shows it; `site`: where.
    """

    rank: int
    fault_class: FaultClass
    confidence: Confidence
    doing: str = ""
    site: str = ""
    evidence: tuple[Evidence, ...] = ()


def suspect(after: Aftermath, rank: int, picture: Picture) -> Suspect:
    """What is known of one rank that others wait for."""
    found: list[Evidence] = []
    doing = site = ""
    for stack in after.stacks:
        if stack.rank != rank or stack.role not in {"rank", "other"}:
            continue
        doing, site = stack.activity, stack.site
        main = next((t for t in stack.threads if t.is_main), stack.threads[0] if stack.threads else None)
        frames = " < ".join(f"{f.function} ({f.file}:{f.line})" for f in main.frames[:4]) if main else stack.error
        found.append(evidence(stack.origin, f"rank {rank} main thread: {frames}", stack.time_s))
    silent = {p.absent[rank] for p in after.progress if rank in p.absent}
    found += [
        evidence(p.origin, f"RAS: rank {rank} is {p.absent[rank]}")
        for p in after.progress
        if p.absent.get(rank) in {"unresponsive", "considered dead"}
    ]
    fault_class, confidence = FaultClass.CPU_STUCK, Confidence.LIKELY
    if doing in BUSY or (not doing and _works_alone(after, rank, picture)):
        fault_class = FaultClass.CPU_BUSY
    elif doing in LEAVING or rank in after.ended_well:
        fault_class = FaultClass.DESYNC_FLOW
    elif not doing and peer_ended(after):
        fault_class = FaultClass.DEAD  # somebody's connection was closed from the other end
    elif doing in STUCK or "unresponsive" in silent:
        confidence = Confidence.CERTAIN if doing in STUCK - {"user_idle", "user_code"} else Confidence.LIKELY
    elif rank in picture.unseen:
        # A rank whose other files are here and that left no trace beside its peers is silent; else files may lack.
        confidence = Confidence.LIKELY if picture.frozen and _has_files(after, rank) else Confidence.POSSIBLE
    elif not picture.frozen:  # a glance at a moving job looks the same
        confidence = Confidence.POSSIBLE
    return Suspect(
        rank=rank, fault_class=fault_class, confidence=confidence, doing=doing, site=site, evidence=tuple(found[:4])
    )


def peer_ended(after: Aftermath) -> bool:
    """Somebody lost a connection because the process at the other end was gone; a stopped one closes nothing."""
    return any(e.signature in CLOSED and e.role is Role.CASCADE for e in after.events) or any(
        position.error is not None and "remote process exited" in position.error
        for progress in after.progress
        for position in progress.positions.values()
    )


def _works_alone(after: Aftermath, rank: int, picture: Picture) -> bool:
    """Its output shows it tokenising, indexing or saving; or that of an untold rank, while others wait in a barrier."""
    barrier = any((w.operation.num_elements or 2) == 1 for w in picture.waits_for(rank))
    return any(
        e.signature == "torch.single_rank_work" and (e.origin.rank == rank or (e.origin.rank is None and barrier))
        for e in after.events
    )


def _has_files(after: Aftermath, rank: int) -> bool:
    """Whether something that this very rank wrote was read, or somebody looked for it and did not find it."""
    return (
        any(p.rank == rank and (p.sources or p.last_line) for p in after.processes)
        or any(e.origin.rank == rank for e in after.events)
        or any(s.rank == rank for s in after.stacks)
        or any(p.source == "ras" and rank in p.absent for p in after.progress)
        or _shares_a_log(after, rank)
    )


def _shares_a_log(after: Aftermath, rank: int) -> bool:
    """One log has the words of ranks before and after it, so that it would have had its own."""
    found: dict[str, set[int]] = {}
    for event in after.events:
        if event.origin.rank is not None:
            found.setdefault(event.origin.source, set()).add(event.origin.rank)
    return any(len(ranks) > 2 and min(ranks) < rank < max(ranks) for ranks in found.values())


def positions(picture: Picture, shown: Sequence[int]) -> tuple[Evidence, ...]:
    """How far ranks came, as evidence."""
    found = []
    for wait in picture.waits[:4]:
        if wait.progress is None:
            continue
        for rank in (*shown, *wait.waiting[:3]):
            position = wait.progress.positions.get(rank)
            name = wait.label or wait.group
            if position is None:
                why = wait.why_unseen.get(rank)
                if why is not None:
                    text = f"rank {rank}, group {name}: {why}"
                    found.append(Evidence(source=wait.source, text=text))
                continue
            stuck = f", not through {position.stuck.name} #{position.stuck.seq}" if position.stuck else ""
            done = "" if position.completed is None else f", last completed {position.completed}"
            found.append(
                Evidence(
                    source=str(position.origin) if position.origin else wait.source,
                    text=f"rank {rank}, group {name}: last enqueued {position.enqueued}{done}{stuck}",
                    time=clock_time(position.time_s),
                )
            )
    return tuple(dict.fromkeys(found))[:8]
