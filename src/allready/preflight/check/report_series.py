"""From evidence to a report, again and again while evidence comes in."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from allready.facts.exchange import to_json
from allready.judging.bisection import MIN_MEMBERS, in_rounds, search
from allready.judging.conclude import Known, conclude
from allready.judging.engine import crashed, each_once, judge
from allready.judging.loading import load_for
from allready.judging.rank_traffic import traffic_findings
from allready.judging.report_builder import ReportBuilder, status_of, status_when_interrupted
from allready.model import (
    Collectives,
    Finding,
    Fleet,
    GpuFacts,
    NodeFacts,
    NotChecked,
    Reason,
    Report,
    RollCall,
    Status,
    UncheckedKind,
    Verdict,
    World,
    WorldNode,
    ranges,
)
from allready.model.fill import said
from allready.preflight.check.thinning import thin
from allready.text.reasons import not_checked, reason
from allready.units import size, time

FACTS_OF_NODES_IN_REPORT = 64  # beyond this only nodes that a finding names keep their facts in the report


class ReportSeries:
    """Keeps what must not change between two judgements: when it began, and since when a verdict has stood."""

    def __init__(self, *, command: str = "check") -> None:
        self._reports = ReportBuilder(command=command)
        self._verdict: Verdict | None = None
        self.last: Report | None = None

    def judge(
        self,
        fleet: Fleet,
        *,
        waiting: bool,
        visible_since: datetime | None,
        unchecked_stages: Mapping[str, Reason] | None = None,
    ) -> Report:
        """Judge the fleet as it stands.

        Args:
            waiting: the roll call is still open.
            visible_since: when a fault could first be seen (the start of the last node present).
            unchecked_stages: stages that were asked for and not done -> why; they forbid "healthy".
        """
        rules = load_for(fleet)
        found, unchecked = judge(fleet, rules.values())
        traffic = traffic_findings(fleet.collectives, fleet.world)
        stages = tuple(not_checked(name, why) for name, why in (unchecked_stages or {}).items())
        now = datetime.now(UTC)
        done = conclude(
            found, Known(rules=rules, now=now, visible_since=visible_since, previous=self._verdict, traffic=traffic)
        )
        self._verdict, findings = done.verdict, done.findings
        unanswered = _bisect_left(fleet.collectives)
        reach, left_out = thin(fleet.reach) if fleet.reach is not None else (None, ())
        self.last = self._reports.build(
            now=now,
            world=fleet.world,
            status=status_of(findings, (*stages, *unanswered, *crashed(unchecked)), waiting=waiting),
            verdict=self._verdict,
            findings=findings,
            not_checked=each_once(
                (
                    *stages,
                    *_sizes_left(fleet.collectives),
                    *_pairs_left(fleet.collectives),
                    *unanswered,
                    *_not_compared(fleet.collectives),
                    *_no_expectation(fleet, findings),
                    *unchecked,
                )
            ),
            roll=fleet.roll,
            reach=reach,
            collectives=_without_traffic(fleet.collectives),
            facts=_facts_of(fleet.nodes, findings),
            odd=_odd(findings),
            notes=left_out,
        )
        return self.last

    @property
    def started(self) -> datetime:
        return self._reports.started

    def interrupted(self, stage: str, why: Reason) -> Report:
        """The report when a signal ended the command: what stood, and what was not checked."""
        report = self._so_far()
        return self._ended(report, status_when_interrupted(report.verdict, report.findings), stage, why)

    def failed(self, stage: str, why: Reason) -> Report:
        """The report when the command itself failed: a report that stood before must not pass for the result."""
        report = self._so_far()
        return self._ended(report, Status.UNKNOWN if report.verdict is None else Status.FAULT, stage, why)

    def _so_far(self) -> Report:
        nothing = Fleet(world=World(num_nodes=0, world_size=0))
        return self.last or self.judge(nothing, waiting=False, visible_since=None)

    def _ended(self, report: Report, status: Status, stage: str, why: Reason) -> Report:
        self.last = replace(
            report,
            status=status,
            duration_s=self._reports.duration_s(datetime.now(UTC)),
            not_checked=(not_checked(stage, why), *report.not_checked),
        )
        return self.last


def world_of(roll: RollCall, *, nproc_default: int) -> World:
    """The members of the roll with their ranks, numbered node by node as torchrun does.

    `nproc_default`: ranks per node to assume for nodes that have not come.
    """
    claims = {c.node_rank: c for c in roll.claims if c.refused is None}
    nodes: list[WorldNode] = []
    offset = 0
    for node_rank in range(roll.num_nodes):
        claim = claims.get(node_rank)
        nproc = claim.nproc_per_node if claim else nproc_default
        if claim:
            ranks = tuple(range(offset, offset + nproc))
            nodes.append(WorldNode(node_rank=node_rank, name=claim.name, ranks=ranks))
        offset += nproc
    return World(num_nodes=roll.num_nodes, world_size=offset, nodes=tuple(nodes))


def _without_traffic(collectives: Collectives | None) -> Collectives | None:
    """For the report: what is seen in the connections stands in the findings, and there are very many."""
    if collectives is None:
        return None
    return replace(collectives, runs=tuple(replace(run, traffic=None) for run in collectives.runs))


def _sizes_left(collectives: Collectives | None) -> tuple[NotChecked, ...]:
    """The sizes of the sweep that did not fit into its time; a slow network is no fault by itself."""
    run = collectives.first if collectives is not None else None
    if run is None or not run.sizes_left:
        return ()
    ends = dict.fromkeys((run.sizes_left[0], run.sizes_left[-1]))
    why = reason(
        UncheckedKind.SIZES_LEFT,
        sizes=" … ".join(size(num_bytes) for num_bytes in ends),
        first=size(run.sizes_left[0]),
        time=time(run.left_s),
    )
    return (not_checked("sweep", why),)


def _pairs_left(collectives: Collectives | None) -> tuple[NotChecked, ...]:
    """The pairs of `bench pairs` that did not fit into its time, or that a sample of many nodes leaves out."""
    run = collectives.first if collectives is not None else None
    if run is None or run.bad is not None:
        return ()
    done = len({(p.rail, *sorted((p.sender, p.receiver))) for p in run.pairs})
    if done >= run.num_pairs_planned:
        return ()
    return (not_checked("pairs", reason(UncheckedKind.PAIRS_UNTRIED, done=done, planned=run.num_pairs_planned)),)


def _bisect_left(collectives: Collectives | None) -> tuple[NotChecked, ...]:
    """That a bisection ended before it had its answer, or had too few members."""
    run = collectives.first if collectives is not None else None
    if run is None or not any(s.name == "bisect" and s.outcome == "ok" for s in run.stages):
        return ()
    if not run.groups:
        return (not_checked("bisect", reason(UncheckedKind.FEW_MEMBERS, least=MIN_MEMBERS)),)
    rounds = in_rounds(run.groups)
    found = search(sorted({m for g in rounds[0] for m in g.members}), rounds)
    if found.groups:
        return (not_checked("bisect", reason(UncheckedKind.ROUNDS_LEFT, done=len(rounds))),)
    if found.suspects:
        return (not_checked("bisect", reason(UncheckedKind.ALL_SLOW, ranks=ranges(found.suspects))),)
    return ()


def _not_compared(collectives: Collectives | None) -> tuple[NotChecked, ...]:
    """That a baseline has none of the operations, types and sizes of this run."""
    run = collectives.first if collectives is not None else None
    if collectives is None or run is None or not collectives.baseline or not run.points:
        return ()
    from allready.rules.bench.slower_than_baseline import slower_than_baseline

    own, before = ({(p.operation, p.dtype, p.size_bytes) for p in of} for of in (run.points, collectives.baseline))
    if own & before:
        return ()
    return (
        not_checked(
            slower_than_baseline.code, reason(UncheckedKind.NOTHING_COMMON, source=collectives.baseline_source)
        ),
    )


def _no_expectation(fleet: Fleet, findings: Sequence[Finding]) -> tuple[NotChecked, ...]:
    """That it is not published what this hardware should give, where a benchmark measured it."""
    from allready.rules.bench.expected import busbw_expected  # no check of one machine alone needs it

    run = fleet.collectives.first if fleet.collectives is not None else None
    is_measured = run is not None and any(p.spread is not None and p.operation == "all_reduce" for p in run.points)
    if run is None or not is_measured or any(f.code == busbw_expected.code for f in findings):
        return ()
    gpus = [n.gpu for n in fleet.nodes.values() if isinstance(n.gpu, GpuFacts)]
    names = sorted({g.name for facts in gpus for g in facts.gpus if g.index in facts.visible})
    one = "{backend}, {num} x {device}, 1 node"
    several = "{backend}, {num} x {device}, {nodes} nodes"
    hardware = said(
        one if fleet.world.num_nodes == 1 else several,
        backend=run.backend,
        num=len(run.ranks),
        device=", ".join(names) or "CPU",
        nodes=fleet.world.num_nodes,
    )
    return (not_checked(busbw_expected.code, reason(UncheckedKind.NO_EXPECTATION, hardware=hardware)),)


def _odd(findings: Sequence[Finding]) -> dict[int, tuple[str, ...]]:
    odd: dict[int, list[str]] = {}
    for finding in findings:
        for node in finding.culprits.nodes:
            odd.setdefault(node, []).append(finding.code)
    return {node: tuple(codes) for node, codes in sorted(odd.items())}


def _facts_of(nodes: Mapping[int, NodeFacts], findings: Sequence[Finding]) -> dict[int, dict[str, Any]]:
    chosen = sorted(nodes)
    if len(chosen) > FACTS_OF_NODES_IN_REPORT:
        named = {n for f in findings for n in f.culprits.nodes}
        chosen = sorted([0, *(n for n in chosen if n in named and n != 0)][:FACTS_OF_NODES_IN_REPORT])
    return {n: to_json(nodes[n]) for n in chosen if n in nodes}


def plain(report: Report) -> Any:
    """The report as it travels to the other nodes."""
    return msgspec.to_builtins(report, str_keys=True)
