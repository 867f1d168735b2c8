"""Made-up evidence of a run of four ranks on two nodes, for the tests of rules."""

from collections.abc import Mapping
from typing import Any

from allready.judging.engine import RuleOutcome
from allready.model import (
    CallSite,
    Death,
    Event,
    Fleet,
    Frame,
    GroupProgress,
    Operation,
    Origin,
    Position,
    ProcessRecord,
    ProcessStack,
    Role,
    RunEvidence,
    ThreadStack,
    World,
)
from tests.fleets import check

NODES = {0: 0, 1: 0, 2: 1, 3: 1}
NONE = frozenset({"roll", "reach", "collectives"})


def run_fleet(**changes: Any) -> Fleet:
    """Four ranks on two nodes; nothing is known of them but what `changes` say."""
    known: dict[str, Any] = {"expected_ranks": 4, "node_of_rank": NODES, "node_numbers": {"node0": 0, "node1": 1}}
    return Fleet(
        world=World(num_nodes=2, world_size=4), run_evidence=RunEvidence(**(known | changes)), inapplicable=NONE
    )


def ask(code: str, **changes: Any) -> RuleOutcome:
    """One rule over made-up evidence."""
    return check(code, run_fleet(**changes))


def with_site(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with a place that is written as sentences have it."""
    return fields | ({"site": CallSite.known(fields["site"])} if isinstance(fields.get("site"), str) else {})


def operation(seq: int, name: str = "all_reduce", **changes: Any) -> Operation:
    known: dict[str, Any] = {"seq": seq, "name": name, "num_elements": 1024, "dtype": "float32"}
    return Operation(**with_site(known | changes))


def at(enqueued: int, stuck: int | None = None, **changes: Any) -> Position:
    """A rank that enqueued so many and waits in number `stuck`."""
    known: dict[str, Any] = {
        "enqueued": enqueued,
        "completed": enqueued if stuck is None else stuck - 1,
        "stuck": None if stuck is None else operation(stuck),
    }
    return Position(**(known | changes))


def group(positions: Mapping[int, Position], source: str = "flight recorder", **changes: Any) -> GroupProgress:
    known: dict[str, Any] = {
        "group": "0",
        "label": "default_pg",
        "source": source,
        "members": (0, 1, 2, 3),
        "size": 4,
        "positions": positions,
        "complete": True,
    }
    return GroupProgress(**(known | changes))


def one_missing(rank: int = 2, source: str = "flight recorder") -> GroupProgress:
    """All ranks wait in number 64, but for one rank that is through 63 and did not enter 64."""
    return group({r: at(63) if r == rank else at(65, 64) for r in range(4)}, source)


def death(rank: int | None, kind: str = "exception", **changes: Any) -> Death:
    known: dict[str, Any] = {
        "kind": kind,
        "rank": rank,
        "pid": 100 + (rank or 0),
        "origin": Origin(source="out.log", line=10),
        "text": "ValueError: bad sample" if kind == "exception" else "",
        "time_s": 1000.0,
    }
    return Death(**with_site(known | changes))


def event(
    signature: str, rank: int | None = None, text: str = "a line", role: Role = Role.RECORD, **changes: Any
) -> Event:
    known: dict[str, Any] = {
        "signature": signature,
        "origin": Origin(source="out.log", line=1, rank=rank),
        "text": text,
        "role": role,
    }
    return Event(**(known | changes))


def stack(rank: int | None, activity: str, pid: int = 1, **changes: Any) -> ProcessStack:
    thread = ThreadStack(name="MainThread", is_main=True, frames=(Frame(function="step", file="train.py", line=12),))
    known: dict[str, Any] = {
        "origin": Origin(source=f"pyspy.{pid}.txt"),
        "role": "rank",
        "rank": rank,
        "pid": pid,
        "threads": (thread,),
        "activity": activity,
        "site": "train.py:12 step",
    }
    return ProcessStack(**with_site(known | changes))


def process(rank: int, **changes: Any) -> ProcessRecord:
    known: dict[str, Any] = {
        "rank": rank,
        "host": f"gpu{NODES[rank]}",
        "pid": 100 + rank,
        "sources": (f"nccl.{rank}.log",),
    }
    return ProcessRecord(**(known | changes))
