"""Recorded words of agents, reported again as the judge would have received them."""

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from allready.judging.engine import judge
from allready.judging.loading import load
from allready.judging.registry import Rule
from allready.live.monitor.pace import PaceBook
from allready.model import Finding, Fleet, Live, NodeStatus, RunEvidence, Severity, World, WorldNode

FIXTURES = Path(__file__).parents[2] / "fixtures" / "live_pace"
AREAS = {"link", "slow"}
NONE = frozenset({"roll", "reach", "collectives"})
HISTORY_S = 30.0
SUSPECTED_S = 1.5


@dataclass(frozen=True)
class Recording:
    """`fault_s`: when the fault was put in; `statuses`: node -> its words, oldest first."""

    name: str
    fault_s: float
    statuses: Mapping[int, tuple[NodeStatus, ...]]


def load_recording(path: Path) -> Recording:
    data = json.loads(lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes())
    return Recording(
        name=data["name"],
        fault_s=data["fault_s"],
        statuses={int(n): tuple(msgspec.convert(s, NodeStatus) for s in words) for n, words in data["history"].items()},
    )


@dataclass
class Judged:
    """What the rules said, `after_s` seconds after the fault."""

    after_s: float
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Finding | None:
        return next((f for f in self.findings if f.severity.weight >= Severity.ERROR.weight), None)


def told_again(
    recording: Recording, *, silent: frozenset[int] = frozenset(), every_s: float = 1.0, until_s: float = 99.0
) -> Iterator[Judged]:
    """The rules' answers once a second.  Nodes in `silent` send no more once the fault is in."""
    heard: dict[int, float] = {}
    history: dict[int, list[NodeStatus]] = {}
    book = PaceBook()
    arrivals = [kept.time_s for kept in recording.statuses[min(recording.statuses)]]
    words = sorted(
        ((arrivals[min(i, len(arrivals) - 1)], s) for kept in recording.statuses.values() for i, s in enumerate(kept)),
        key=lambda word: word[0],
    )  # nodes were looked at in turn: the same look of all of them arrives together, whatever their clocks say
    next_s = words[0][0] + every_s
    rules = [rule for rule in load().values() if rule.area in AREAS]
    for arrival_s, status in words:
        if arrival_s > next_s:
            if next_s >= recording.fault_s - 1.0:
                yield Judged(next_s - recording.fault_s, _judge(rules, history, heard, book, next_s))
            next_s += every_s
        if next_s - recording.fault_s > until_s:
            return
        node = status.node_rank
        if node in silent and arrival_s >= recording.fault_s:
            continue
        heard[node] = arrival_s
        history.setdefault(node, []).append(status)
        book.add(status)


def _judge(
    rules: Sequence[Rule],
    history: Mapping[int, list[NodeStatus]],
    heard: Mapping[int, float],
    book: PaceBook,
    now_s: float,
) -> tuple[Finding, ...]:
    statuses = {n: words[-1] for n, words in history.items()}
    ranks = {r.rank: n for n, s in statuses.items() for r in s.ranks}
    moved = [g.moved_s for s in statuses.values() for r in s.ranks for g in r.groups if g.moved_s is not None]
    stands_s = now_s - max(moved, default=now_s)
    live = Live(
        since_s=now_s - stands_s if stands_s > SUSPECTED_S else None,
        now_s=now_s,
        statuses=statuses,
        heard_s={n: now_s - t for n, t in heard.items()},
        world_size=len(ranks),
        history={n: tuple(s for s in words if s.time_s >= now_s - HISTORY_S) for n, words in history.items()},
    )
    world = World(
        num_nodes=len(statuses),
        world_size=len(ranks),
        nodes=tuple(
            WorldNode(node_rank=n, name=s.name, ranks=tuple(r.rank for r in s.ranks)) for n, s in statuses.items()
        ),
    )
    run = RunEvidence(expected_ranks=len(ranks), node_of_rank=ranks, lags=book.lags())
    findings, unchecked = judge(Fleet(world=world, live=live, run_evidence=run, inapplicable=NONE), rules)
    assert not unchecked, unchecked
    return findings
