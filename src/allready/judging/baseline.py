"""A bad run against a good one: what differs in settings, versions, interfaces, transports, operations and times."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median

from allready.judging.majority import majority
from allready.judging.stated import Text, said
from allready.model import Difference, ProcessRecord, RunEvidence
from allready.model.fill import texts

TIME_RATIO = 1.3
"""A phase that takes this much longer, and at least `MIN_TIME_S` more, is worth a word."""

MIN_TIME_S = 0.5

NOT_SET = said("(not set)")

OWN = {"NCCL_HOSTID", "NCCL_DEBUG_FILE"}
"""Settings that name a place or a file of the run."""


def compare(good: RunEvidence, bad: RunEvidence) -> tuple[Difference, ...]:
    """What differs, the most telling first.

    Values are compared as sets over ranks, so that runs of different size compare too; where both have the same ranks,
    a difference names the ranks that have it.
    """
    found = [
        *_world(good, bad),
        *_by_rank("version", good, bad, lambda p: dict(p.versions), weight=2),
        *_by_rank("setting", good, bad, lambda p: {k: v for k, v in p.env.items() if k not in OWN}, weight=2),
        *_by_rank("network", good, bad, lambda p: {"network": p.network} if p.network else {}, weight=2),
        *_by_rank("interface", good, bad, _interfaces, weight=2),
        *_by_rank("topology", good, bad, _topology, weight=1),
        *_by_rank("transport", good, bad, _transports, weight=1),
        *_operations(good, bad),
        *_times(good, bad),
    ]
    return tuple(sorted(found, key=lambda d: (-d.weight, d.area, d.what)))


def _world(good: RunEvidence, bad: RunEvidence) -> Iterator[Difference]:
    if good.expected_ranks and bad.expected_ranks and good.expected_ranks != bad.expected_ranks:
        yield Difference(
            area="topology", what="world size", good=str(good.expected_ranks), bad=str(bad.expected_ranks), weight=2
        )
    nodes = [len(set(a.node_of_rank.values())) for a in (good, bad)]
    if all(nodes) and nodes[0] != nodes[1]:
        yield Difference(area="topology", what="nodes", good=str(nodes[0]), bad=str(nodes[1]), weight=2)


def _interfaces(process: ProcessRecord) -> Mapping[str, str]:
    found = {}
    if process.interfaces:
        found["interfaces"] = ", ".join(name for name, _ in process.interfaces)
    if process.oob:
        found["bootstrap interface"] = process.oob[0]
    if process.hcas:
        found["HCAs"] = ", ".join(process.hcas)
    if process.plugins:
        found["plugins"] = ", ".join(sorted(process.plugins))
    return found


def _topology(process: ProcessRecord) -> Mapping[str, str]:
    found = {f"{kind} channels": str(n) for kind, n in process.num_channels.items()}
    if process.num_nodes is not None:
        found["nodes that NCCL sees"] = str(process.num_nodes)
    if process.algorithms:
        found["algorithms"] = ", ".join(sorted(process.algorithms))
    return found


def _transports(process: ProcessRecord) -> Mapping[str, str]:
    kinds: dict[tuple[int, int], set[str]] = {}
    for transport in process.transports:
        kinds.setdefault((transport.src, transport.dst), set()).add(transport.how)
    return {f"{a} -> {b}": ", ".join(sorted(how)) for (a, b), how in sorted(kinds.items())}


def _by_rank(
    area: str, good: RunEvidence, bad: RunEvidence, read: Callable[[ProcessRecord], Mapping[str, str]], *, weight: int
) -> Iterator[Difference]:
    before, now = _table(good, read), _table(bad, read)
    if not before or not now:
        return
    same_ranks = set(before) == set(now)
    for name in sorted({n for row in (*before.values(), *now.values()) for n in row}):
        old = {r: row.get(name) for r, row in before.items()}
        new = {r: row.get(name) for r, row in now.items()}
        if set(old.values()) == set(new.values()) and (not same_ranks or old == new):
            continue
        ranks = tuple(sorted(r for r in new if same_ranks and old[r] != new[r]))
        # A connection concerns its two ends only; everywhere else, not having a value is one.
        is_everywhere = area != "transport"
        yield Difference(
            area=area,
            what=name,
            weight=weight,
            ranks=() if len(ranks) == len(new) else ranks,
            **texts(
                good=_counted(v for v in old.values() if v is not None or is_everywhere),
                bad=_counted(v for v in new.values() if v is not None or is_everywhere),
            ),
        )


def _table(run: RunEvidence, read: Callable[[ProcessRecord], Mapping[str, str]]) -> dict[int, Mapping[str, str]]:
    return {p.rank: read(p) for p in run.processes if p.rank is not None and p.comms}


def _counted(values: Iterable[str | None]) -> Text:
    """The values that most ranks have, and how many have each where they differ."""
    counts = [(NOT_SET if value is None else value, num) for value, num in Counter(values).most_common(4)]
    if len(counts) < 2:
        return next((value for value, _ in counts), NOT_SET)
    return tuple(
        said("{value} (1 rank)" if num == 1 else "{value} ({num} ranks)", value=value, num=num) for value, num in counts
    )


def _operations(good: RunEvidence, bad: RunEvidence) -> Iterator[Difference]:
    before = {p.rank: p.op_counts for p in good.processes if p.rank is not None and p.op_counts}
    now = {p.rank: p.op_counts for p in bad.processes if p.rank is not None and p.op_counts}
    if not before or not now:
        return
    for name in sorted({n for counts in (*before.values(), *now.values()) for n in counts}):
        old = {r: counts.get(name, 0) for r, counts in before.items()}
        new = {r: counts.get(name, 0) for r, counts in now.items()}
        if sorted(set(old.values())) == sorted(set(new.values())):
            continue
        most = majority(new)
        yield Difference(
            area="operations",
            what=name,
            **texts(good=_counted(map(str, old.values())), bad=_counted(map(str, new.values()))),
            ranks=most.odd if most is not None else (),
            weight=2 if len(set(new.values())) > 1 else 1,
        )


def _times(good: RunEvidence, bad: RunEvidence) -> Iterator[Difference]:
    before, now = _durations(good), _durations(bad)
    for name in sorted(set(before) & set(now)):
        old, new = median(before[name].values()), median(now[name].values())
        usual, worst = max(before[name].values()), max(now[name].values())
        limit = max(usual * TIME_RATIO, usual + MIN_TIME_S)
        if worst > limit or worst < min(before[name].values()) / TIME_RATIO - MIN_TIME_S:
            slow = tuple(sorted(r for r, t in now[name].items() if t > limit))
            yield Difference(
                area="time",
                what=name,
                **texts(
                    good=f"{old:.3f} s",
                    bad=said("{time} s (largest {largest} s)", time=f"{new:.3f}", largest=f"{worst:.3f}"),
                ),
                ranks=() if len(slow) == len(now[name]) else slow,
                weight=1,
            )


def _durations(run: RunEvidence) -> dict[str, dict[int, float]]:
    """Phase -> rank -> seconds."""
    found: dict[str, dict[int, float]] = {}
    for process in run.processes:
        if process.rank is None:
            continue
        for name, seconds in process.phases_s.items():
            found.setdefault(name, {})[process.rank] = seconds
        for comm in process.comms:
            if comm.parent is None and comm.started_s is not None and comm.completed_s is not None:
                found.setdefault("communicator init", {})[process.rank] = max(0.0, comm.completed_s - comm.started_s)
        if process.first_time_s is not None and process.last_time_s is not None:
            found.setdefault("whole run", {})[process.rank] = process.last_time_s - process.first_time_s
    for lag in run.lags:
        if lag.median_period_s:
            found.setdefault("operation to operation", {})[min(lag.median_late_s, default=0)] = lag.median_period_s
    return found
