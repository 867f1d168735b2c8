"""Reports made from made-up fleets by the same path as real ones: facts, rules, verdict."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from allready.facts.exchange import to_json
from allready.judging.engine import judge
from allready.judging.report_builder import status_of, verdict_of
from allready.model import (
    BenchPoint,
    Caller,
    CollectiveRun,
    Collectives,
    Confidence,
    Culprits,
    EnvFacts,
    Evidence,
    FaultClass,
    Finding,
    Fleet,
    NotChecked,
    ProcessState,
    RankState,
    Report,
    Severity,
    StageResult,
    Status,
)
from allready.model.fill import said, texts
from allready.rules.job.nodes import node_absent
from tests.fleets import claim, fleet, healthy_collectives, healthy_node, healthy_reach, healthy_roll

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def report_of(made_up: Fleet, *, more: tuple[Finding, ...] = (), **changes: Any) -> Report:
    """The report that `check` would make of this fleet, with `more` findings as if other rules had hit."""
    # One rule is enough: these tests are about showing, and should not change when a rule is added.
    findings, not_checked = judge(made_up, [node_absent])
    findings = tuple(sorted((*findings, *more), key=lambda f: -f.severity.weight))
    verdict = verdict_of(findings, now=STARTED + timedelta(seconds=3.1), visible_since=STARTED + timedelta(seconds=1))
    odd: dict[int, tuple[str, ...]] = {}
    for finding in findings:
        for node in finding.culprits.nodes:
            odd[node] = (*odd.get(node, ()), finding.code)
    report = Report(
        tool_version="0.1.0",
        command="check --nnodes 4 --node-rank 0",
        started=STARTED.isoformat(),
        duration_s=4.1,
        world=made_up.world,
        status=status_of(findings, (), waiting=False),
        verdict=verdict,
        findings=findings,
        not_checked=not_checked,
        roll=made_up.roll,
        reach=made_up.reach,
        collectives=made_up.collectives,
        facts={n: to_json(node) for n, node in made_up.nodes.items()},
        odd=odd,
        notes=("probing 12 paths took 0.4 s",),
    )
    return replace(report, **changes)


def sweep(num_ranks: int = 8, peak: float = 370.0) -> tuple[BenchPoint, ...]:
    """A plausible all_reduce sweep from 8 B to 1 GiB."""
    points = []
    for power in range(3, 31, 3):
        size = 2**power
        time_s = 2e-5 + size / (peak * 1e9)
        alg = size / time_s / 1e9
        points.append(
            BenchPoint(
                size_bytes=size,
                time_s=time_s,
                algbw_gb_per_s=alg,
                busbw_gb_per_s=alg * 2 * (num_ranks - 1) / num_ranks,
                num_errors=0,
                num_iterations=20,
            )
        )
    return tuple(points)


def healthy_report(num_nodes: int = 4) -> Report:
    """Nothing wrong."""
    runs = healthy_collectives(2 * num_nodes).runs
    measured = Collectives(runs=(replace(runs[0], points=sweep(2 * num_nodes)),))
    return report_of(fleet(num_nodes, collectives=measured))


def absent_report() -> Report:
    """Node 2 of 4 never came; the rest was not looked at."""
    roll = healthy_roll(4)
    roll = replace(
        roll,
        waited_s=5.0,
        claims=(*(c for c in roll.claims if c.node_rank not in {2, 3}), claim(3, 4, arrival_s=3.4)),
        callers=(Caller(kind="stranger", address="10.0.0.77", detail="spoke HTTP"),),
    )
    return report_of(fleet(4, roll=roll, reach=None, collectives=None, why_not={"reach": "node 2 is absent"}))


def faulty_report(num_nodes: int = 4) -> Report:
    """Filtered data ports from and to node 2, another variable on it, a rank stopped before nccl_init."""
    filtered: dict[tuple[int, int], dict[str, Any]] = {}
    for other in range(num_nodes):
        if other != 2:
            lost = {"outcome": "filtered", "passed_bytes": (), "rtt_s": None, "throughput_gb_per_s": None}
            filtered[2, other] = dict(lost)
            filtered[other, 2] = {**lost, **texts(detail=said("no answer within {seconds} s", seconds="2.0"))}
    if num_nodes > 3:
        filtered[0, 3] = {"outcome": "stuck", "stuck_bytes": 9000, "passed_bytes": (64, 1400)}
    ranks = tuple(range(2 * num_nodes))
    entered = tuple(r for r in ranks if r != 5)
    ok = healthy_collectives(2 * num_nodes).runs[0].stages[:5]
    hung = StageResult(
        name="nccl_init",
        outcome="hung",
        deadline_s=5.0,
        duration_s=5.0,
        entered=entered,
        detail="rank 5 did not enter",
        ranks=(
            RankState(
                rank=5,
                node_rank=2,
                local_rank=1,
                pid=4711,
                step="entered gloo_barrier",
                state=ProcessState.STOPPED,
                cpu_s=0.0,
                wchan="do_signal_stop",
                stack=("train.py:12 main", "train.py:40 <module>"),
            ),
        ),
    )
    skipped = StageResult(name="sweep", outcome="skipped", deadline_s=60.0, duration_s=0.0, detail="nccl_init hung")
    run = CollectiveRun(label="all", backend="nccl", ranks=ranks, stages=(*ok, hung, skipped))
    env = EnvFacts(variables={"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "docker0"})
    made_up = fleet(
        num_nodes, reach=healthy_reach(num_nodes, filtered), collectives=Collectives(runs=(run,)), env={2: env}
    )
    return report_of(made_up, more=(data_ports_filtered(num_nodes), variable_differs()), status=Status.FAULT)


def data_ports_filtered(num_nodes: int) -> Finding:
    """As a rule about reachability would say it."""
    return Finding(
        code="NET901",
        severity=Severity.BLOCKER,
        fault_class=FaultClass.START_PATH,
        confidence=Confidence.CERTAIN,
        culprits=Culprits(nodes=(2,), links=((0, 2), (1, 2))),
        title="Data ports are filtered",
        message="TCP ports above 1024 of node 2 (gpu2) are filtered: 3 of 3 nodes reach its address, none its ports",
        remedy="open the ephemeral ports between the nodes: iptables -I INPUT -s 10.0.0.0/24 -p tcp -j ACCEPT",
        evidence=tuple(
            Evidence(
                source="TCP probe",
                node_rank=n,
                text=f"10.0.0.3:40002 silent for 2.0 s ({i} of 12)",
                time="2026-01-02T03:04:07+00:00",
            )
            for i, n in enumerate([0, 1, 3] * 4)
            if n < num_nodes
        ),
    )


def variable_differs() -> Finding:
    """As a rule about variables would say it."""
    return Finding(
        code="ENV901",
        severity=Severity.WARNING,
        fault_class=FaultClass.ENV_MISMATCH,
        confidence=Confidence.LIKELY,
        culprits=Culprits(nodes=(2,), variables=("NCCL_SOCKET_IFNAME",)),
        title="A variable differs between nodes",
        message="NCCL_SOCKET_IFNAME differs: (not set) [0,1,3], docker0 [2]",
        remedy="unset NCCL_SOCKET_IFNAME",
        evidence=(Evidence(source="environment", node_rank=2, text="NCCL_SOCKET_IFNAME=docker0"),),
    )


def unknown_report() -> Report:
    """Something necessary was not looked at."""
    return replace(
        healthy_report(2),
        status=Status.UNKNOWN,
        reach=None,
        not_checked=(NotChecked(code="NET001", node=None, why="the probes were interrupted"),),
    )


__all__ = ["absent_report", "faulty_report", "healthy_node", "healthy_report", "report_of", "unknown_report"]
