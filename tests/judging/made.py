"""Made-up readings of a run for the tests of the join."""

from typing import Any

from allready.evidence.join.identity import Identities, identify
from allready.evidence.reading import Reading
from allready.model import CommRecord, Death, Event, Origin, ProcessRecord, Role, SourceRecord
from allready.signatures import load


def event(signature: str, line: int = 1, source: str = "out.node0.log", **changes: Any) -> Event:
    origin = {k: changes.pop(k) for k in ("rank", "host", "pid", "node") if k in changes}
    known = load().get(signature)
    role = known.role if known is not None else Role.RECORD
    return Event(
        signature=signature, origin=Origin(source=source, line=line, **origin), text="a line", role=role, **changes
    )


def death(kind: str = "exception", line: int = 1, source: str = "out.node0.log", **changes: Any) -> Death:
    return Death(kind=kind, origin=Origin(source=source, line=line, node=changes.get("node")), **changes)


def comm(rank: int, nranks: int = 4, **changes: Any) -> CommRecord:
    known: dict[str, Any] = {"comm": "0x1", "rank": rank, "nranks": nranks, "init_completed": True}
    return CommRecord(**(known | changes))


def process(rank: int | None, node: str = "node0", **changes: Any) -> ProcessRecord:
    known: dict[str, Any] = {"host": "vm", "pid": 100 + (rank or 0), "rank": rank, "node": node}
    if rank is not None:
        known["comms"] = (comm(rank),)
    return ProcessRecord(**(known | changes))


def four() -> tuple[ProcessRecord, ...]:
    return tuple(process(r, f"node{r // 2}") for r in range(4))


def known(*processes: ProcessRecord) -> Identities:
    return identify(processes or four(), [], [], [])


def reading(source: str, first_s: float, last_s: float, *events: Event, kind: str = "log", **parts: Any) -> Reading:
    return Reading(
        source=SourceRecord(path=source, kind=kind, num_understood=1, first_time_s=first_s, last_time_s=last_s),
        events=list(events),
        **parts,
    )
