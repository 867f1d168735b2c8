"""Slow for a reason that no single rank has."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.live_status import named
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said, stated
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Live,
    NodeStatus,
    RemedyStep,
    RunEvidence,
    Severity,
    World,
)
from allready.rules.slow._blame import blame, rank_hit
from allready.rules.slow._pace import has_stopped, percent, share_in
from allready.rules.slow._traffic import flow_evidence


@Rule(
    code="SLW012",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="One rank has slightly more work than the others (load imbalance)",
    message="{who} {who:has/have} more work per step; the others wait for {who:it/them} {share} of the time, which is "
    "no fault",
    remedy=RemedyStep(
        explanation="if this time matters, move work away from {who}: logging, checkpoints, evaluation, a larger share "
        "of the data"
    ),
)
def load_imbalance(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the others wait for one rank steadily, for less than a fifth of the time, or while that rank saves,
    evaluates or compiles.
    ## Why it matters
    It is the cost of a rank that logs or saves; nothing is broken.
    ## Check by hand
    Profile that rank against another one.
    ## When it is harmless
    Always; it is a hint for the last tenth of speed.
    """
    slow = case.of(blame).heavier
    if slow:
        yield replace(rank_hit(case, slow, Confidence.LIKELY), culprits=Culprits())


TOGETHER = 0.35
"""Share of the time that ranks wait for one another, whichever it is."""


@Rule(
    code="SLW010",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="Load imbalance rotates between ranks; no rank is consistently slower",
    message="ranks of group {group} wait for one another {share} of the time, each for a different one from step to "
    "step: the work per step is unevenly divided, and no rank is at fault",
    remedy=RemedyStep(
        explanation="balance the work within a step (bucket sequences by length, pack them), schedule garbage "
        "collection (`gc.freeze()`, `gc.collect()` at the same step on all ranks); no node needs to be replaced"
    ),
)
def imbalance_rotates(case: Analysis, live: Live, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Whether different ranks are late in different steps: together for a good part of the time, and none more than its
    share.
    ## Why it matters
    It looks like a slow rank at every single step; removing any of them from the job would not help.
    ## Check by hand
    Which rank enters last in each of the last hundred operations.
    ## When it is harmless
    It is expected with data of different lengths.
    """
    found = case.of(blame)
    if live.is_starting or has_stopped(live) or found.any_at_fault or found.heavier:
        return
    for lag in run.lags:
        shares = sorted(lag.waited_share.values())
        if len(shares) < 2 or sum(shares) < TOGETHER:
            continue
        if shares[-1] <= 2.5 * max(shares[0], shares[len(shares) // 2 - 1]):
            yield Hit(
                culprits=Culprits(),
                values={"share": percent(min(1.0, sum(shares))), "group": lag.group},
                confidence=Confidence.LIKELY,
                evidence=tuple(
                    stated(
                        said("{source}, group {group}", source=lag.source, group=lag.group),
                        "rank {rank}: waited for {share} of the time",
                        rank=r,
                        share=f"{s:.0%}",
                    )
                    for r, s in sorted(lag.waited_share.items(), key=lambda item: -item[1])[:8]
                ),
            )
            return


INPUT = 0.5
"""Share of the samples in which ranks wait for their data, at the median, from which on that is why the job is slow."""


@Rule(
    code="SLW015",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="All ranks wait for their data",
    message="ranks are in data loading in {loading} of samples at the median: the input slows the job, and no rank is "
    "at fault[[; the others wait for {who} longest]]",
    remedy=(
        RemedyStep(
            explanation="load faster on all ranks: more workers (num_workers), persistent_workers, prefetch_factor, "
            "cheaper transforms, a faster disk or format"
        ),
        RemedyStep(
            explanation="see whether the disk or the CPUs are the limit",
            where="every node",
            command="iostat -x 1 5; cat /proc/pressure/io /proc/pressure/cpu",
        ),
    ),
)
def all_load(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    At what share of the last samples the main thread of each rank was waiting for its DataLoader; and whether a rank
    that the others wait for is late by nothing else, while they load nearly as long as it does.
    ## Why it matters
    Then every rank takes its turn in being last, and looks slow for a moment; replacing one would not help.
    ## Check by hand
    `py-spy dump --pid PID` of several ranks, a few times each.
    ## When it is harmless
    When the job's speed is accepted.
    """
    found = case.of(blame)
    if live.is_starting or has_stopped(live) or found.any_at_fault:
        return
    shares = [share for rank in live.ranks() if (share := share_in(live, rank, "loading")) is not None]
    if len(shares) < max(2, len(live.ranks())) or not (median(shares) >= INPUT or found.input):
        return
    yield Hit(
        culprits=Culprits(),
        confidence=Confidence.LIKELY,
        values={
            "loading": percent(median(shares)),
            "who": named(live, world, (s.rank for s in found.input)) if found.input else None,
        },
        evidence=tuple(
            stated(f"rank {rank}", "in data loading in {share} of samples", share=percent(share))
            for rank in sorted(live.ranks())[:8]
            if (share := share_in(live, rank, "loading")) is not None
        ),
    )


FACTOR = 1.6
MIN_S = 3.0
MIN_OPERATIONS = 10
MIN_SPAN_S = 0.2


@Rule(
    code="SLW011",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="All ranks slowed down together; no rank stands out",
    message="the job runs {now} operations per second, {before} some seconds ago: all ranks and links slowed down "
    "alike, or the work grew; no rank and no link is at fault",
    remedy=RemedyStep(
        explanation="check what all ranks share: the program's phase, the file system, a switch, the power limit, "
        "other jobs",
        where="every node",
        command="cat /proc/pressure/io; nvidia-smi -q -d PERFORMANCE",
    ),
)
def all_slower(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    The number of operations per second over the last seconds against the half minute before, on all ranks, where
    neither a rank nor a link is slower than the others.
    ## Why it matters
    A shared resource is slow; replacing a node would not help.
    ## Check by hand
    The step time in the job's own log.
    ## When it is harmless
    When the program does something else now, such as longer sequences or evaluation.
    """
    if live.is_starting or has_stopped(live) or case.of(blame).any_at_fault:
        return
    speeds = [s for n in live.statuses for s in _speeds(live, n)]
    factors = [before / max(now, 1e-9) for before, now in speeds]
    if len(speeds) >= max(2, len(live.ranks())) and min(factors) >= FACTOR:
        yield Hit(
            culprits=Culprits(),
            values={"now": f"{median(s for _, s in speeds):.3g}", "before": f"{median(s for s, _ in speeds):.3g}"},
            confidence=Confidence.POSSIBLE,
            evidence=(
                stated(
                    "flight recorder",
                    "{num} ranks, slower by {least} to {most}",
                    num=len(speeds),
                    least=f"{min(factors):.1f}",
                    most=f"{max(factors):.1f}",
                ),
            ),
        )


def _speeds(live: Live, node: int) -> Iterator[tuple[float, float]]:
    """Operations per second of each rank of a node: in the first third of its history, and in the last."""
    newest = live.statuses[node]
    statuses = [s for s in live.history.get(node, ()) if s.attempt == newest.attempt]
    if not statuses or statuses[-1].time_s - statuses[0].time_s < 3 * MIN_S:
        return
    third = (statuses[-1].time_s - statuses[0].time_s) / 3
    first = [s for s in statuses if s.time_s <= statuses[0].time_s + third]
    last = [s for s in statuses if s.time_s >= statuses[-1].time_s - third]
    for rank in newest.ranks:
        before, now = _speed(first, rank.rank), _speed(last, rank.rank)
        if before is not None and before * third >= MIN_OPERATIONS and now:
            yield before, now


def _speed(statuses: Iterable[NodeStatus], rank: int) -> float | None:
    counts = [(s.time_s, r.num_operations) for s in statuses for r in s.ranks if r.rank == rank]
    if len(counts) < 2 or counts[-1][0] - counts[0][0] < MIN_S / 2:
        return None
    # The median of the spans: in some of them a rank may have saved while the others waited.
    spans = [(n - m) / (t - s) for (s, m), (t, n) in pairwise(counts) if t - s >= MIN_SPAN_S]
    return median(spans) if spans else None


@Rule(
    code="SLW009",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_MIXED,
    layer=Layer.PACE,
    explains=("SLW002", "SLW003", "SLW004", "SLW005", "SLW006", "SLW007", "SLW008", "SLW013"),
    title="A slow rank and a slow link at the same time",
    message="two faults slow the job: the others wait for {who} {share} of the time, and the network of {where} "
    "carries only {rate} Mbit/s",
    remedy=RemedyStep(
        explanation="fix both, as the findings SLW002 to SLW008 describe; after one of them the job is still slow"
    ),
)
def slow_mixed(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether one rank is late because it computes longer, and at the same time a link is slower than the others.
    ## Why it matters
    Each hides the other: when one is fixed, the job hardly gets faster.
    ## Check by hand
    As in the findings of the two.
    ## When it is harmless
    Never for both; see there.
    """
    found = case.of(blame)
    path = found.path or found.lossy
    if not found.ranks or path is None or not path.is_sure:
        return
    rate = f"{min(f.rate_bit_per_s for f in path.flows) / 1e6:.3g}"
    hit = rank_hit(case, found.ranks, Confidence.LIKELY, where=path.where(live), rate=rate)
    yield replace(
        hit,
        culprits=Culprits(nodes=path.nodes, ranks=hit.culprits.ranks, links=path.links),
        evidence=(*hit.evidence, *flow_evidence(path.flows[:4])),
    )
