"""Reports of a run that is over, made up by hand: rank 1 made no progress, or no rank did, or there are very many."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from allready.model import (
    Absence,
    BenchRow,
    BenchRun,
    ClockOffset,
    Confidence,
    Culprits,
    Difference,
    Evidence,
    FaultClass,
    Finding,
    GroupPosition,
    Happening,
    IterationCounts,
    Origin,
    RankRow,
    Report,
    RunEvent,
    RunSummary,
    Severity,
    SourceRecord,
    Status,
    TimelineEvent,
    Verdict,
    World,
    WorldNode,
)

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
ONSET = "2026-01-02T03:04:15"


STUCK = RunEvent(kind=Happening.WAITS, operation="all_reduce", seq=64, group="default_pg")

WELL = RunEvent(kind=Happening.ENDED_WELL)


def died(text: str, **changes: Any) -> RunEvent:
    """A rank that ended so."""
    return RunEvent(kind=Happening.DIED, text=text, shape=text, **changes)


def row(rank: int, **changes: Any) -> RankRow:
    """A rank that waits in the operation that rank 1 never entered."""
    usual = RankRow(
        rank=rank,
        node=rank // 4,
        host=f"gpu{rank // 4}",
        pid=1000 + rank,
        gpu=f"{rank % 4} (1b000)",
        gpu_index=rank % 4,
        versions={"nccl": "2.28.9", "cuda-driver": "13000"},
        init="completed",
        network="IB",
        plugins=("libnccl-net.so",),
        interfaces=("eth0 10.0.0.1",),
        available=("docker0",),
        hcas=("mlx5_0:1/RoCE",),
        transports=(f"-> {rank + 1} P2P/CUMEM x2", f"<- {rank - 1} NET/IB/0/GDRDMA"),
        num_channels={"coll": 2, "nvls": 0},
        algorithms={"AllReduce RING/SIMPLE": 12},
        op_counts={"all_reduce": 34, "all_gather": 31},
        positions=(
            GroupPosition(
                group="default_pg",
                source="flight recorder",
                enqueued=65,
                completed=63,
                waits=STUCK,
                counts={"all_reduce": 34, "all_gather": 31},
            ),
        ),
        phases_s={"init total": 0.37},
        activity_kind="gpu_wait",
        site="torch/cuda/__init__.py:1162 synchronize",
        end=STUCK,
        last_line="AllGather: opCount 40",
        last_line_class="operation",
        last_source=f"run/nccl.{rank}.log:148",
    )
    return replace(usual, **changes)


def culprit_row(rank: int = 1) -> RankRow:
    """The rank that made no progress in the user's own code."""
    return row(
        rank,
        op_counts={"all_reduce": 33, "all_gather": 30},
        positions=(GroupPosition(group="default_pg", source="flight recorder", absent=Absence.NO_DUMP),),
        activity_kind="user_idle",
        site="train.py:20 <module>",
        end=None,
    )


def timeline(num_ranks: int = 8) -> tuple[TimelineEvent, ...]:
    """Harmless start-up, operations that got stuck, a watchdog, a death, consequences, clearing away."""
    others = [n for n in range(num_ranks) if n != 1]
    return (
        *(
            TimelineEvent(
                time_s=BEGIN + n / 1000,
                role="harmless",
                text="Warning: NCCL_X is deprecated",
                rank=n,
                node=n // 4,
                code="TCH023",
                source=f"run/out.{n}:5",
            )
            for n in range(num_ranks)
        ),
        *(
            TimelineEvent(
                time_s=BEGIN + 10 + n / 1000,
                role="operation",
                text="enters all_reduce #64 of default_pg and never completes it",
                event=STUCK,
                rank=n,
                node=n // 4,
                source=f"run/fr_{n}",
                duration_s=25.0,
            )
            for n in others
        ),
        TimelineEvent(
            time_s=BEGIN + 0.5,
            role="operation",
            text="init of 0xabc",
            event=RunEvent(kind=Happening.INITIALISED, group="0xabc"),
            rank=0,
            node=0,
            duration_s=0.4,
        ),
        TimelineEvent(
            time_s=BEGIN + 11,
            role="root",
            text="Xid 79: GPU has fallen off the bus",
            node=0,
            code="KRN001",
            source="run/dmesg:7",
            count=3,
        ),
        TimelineEvent(
            time_s=BEGIN + 22.25,
            role="record",
            text="Watchdog caught collective operation timeout",
            rank=0,
            node=0,
            code="TCH002",
            source="run/out.0:9",
        ),
        TimelineEvent(
            time_s=BEGIN + 30,
            role="cascade",
            text="Connection closed by remote peer",
            rank=2,
            node=0,
            code="NLG019",
            source="run/nccl.2.log:9",
        ),
        TimelineEvent(
            time_s=BEGIN + 31,
            role="death",
            text="Signal 6 (SIGABRT)",
            event=died("Signal 6 (SIGABRT)", signal="SIGABRT"),
            rank=2,
            node=0,
            source="run/out.2:99",
        ),
        TimelineEvent(
            time_s=BEGIN + 32,
            role="death",
            text="Sending process 1003 closing signal SIGTERM (ended by its launcher)",
            event=died("Sending process 1003 closing signal SIGTERM", by_launcher=True),
            rank=3,
            node=0,
            source="run/out.0:101",
        ),
        TimelineEvent(time_s=None, role="teardown", text="ChildFailedError:", code="ELA017", source="run/out.0:120"),
    )


def findings(rank: int = 1) -> tuple[Finding, ...]:
    """The verdict's, one of an error line, and three that explain nothing."""

    def of(code: str, severity: Severity, title: str, **changes: Any) -> Finding:
        usual = Finding(
            code=code,
            severity=severity,
            fault_class=FaultClass.CPU_STUCK,
            confidence=Confidence.LIKELY,
            culprits=Culprits(),
            title=title,
            message=f"{title} (message)",
            remedy=f"mend {code}",
            evidence=(Evidence(source="run/out.0:9", text="a line", time=ONSET),),
        )
        return replace(usual, **changes)

    return (
        of("HNG901", Severity.BLOCKER, "A rank did not come", culprits=Culprits(ranks=(rank,)), fault_time=ONSET),
        of("TCH902", Severity.ERROR, "A collective did not finish"),
        of("HNG907", Severity.INFO, "The bytes need far less"),
        of("TCH023", Severity.INFO, "A variable has a newer name"),
        of("NLG019", Severity.INFO, "A peer closed its connection"),
        of("ELA017", Severity.INFO, "A table of failures"),
    )


def stuck_run(num_ranks: int = 8) -> RunSummary:
    """Rank 1 of `num_ranks` made no progress."""
    return RunSummary(
        ranks=tuple(culprit_row() if n == 1 else row(n) for n in range(num_ranks)),
        timeline=timeline(num_ranks),
        clocks=(
            ClockOffset(node="gpu1", offset_s=0.12, uncertainty_s=0.004, num_matches=63),
            ClockOffset(node="gpu2", offset_s=-0.001, uncertainty_s=0.02, num_matches=1),
        ),
        sources=(
            SourceRecord(
                path="run/ras.json", kind="ras", size_bytes=2350, num_lines=98, problem="broken JSON, repaired"
            ),
            SourceRecord(
                path="run/out.0",
                kind="log",
                size_bytes=90_000,
                num_lines=700,
                num_understood=690,
                num_unknown=7,
                unknown_examples=("what is this",),
            ),
        ),
        num_sources=2,
        num_bytes=92_350,
        num_lines=798,
        num_understood=690,
        num_unknown=7,
        num_operations=1234,
    )


def stuck_report(num_ranks: int = 8, **changes: Any) -> Report:
    """The report about it; `changes` are of the summary."""
    found = findings()
    verdict = Verdict(
        code="HNG901",
        fault_class=FaultClass.CPU_STUCK,
        confidence=Confidence.LIKELY,
        culprits=Culprits(ranks=(1,)),
        sentence=found[0].message,
        remedy=found[0].remedy,
        fault_time=ONSET,
        detected_time=ONSET,
        detect_s=None,
    )
    num_nodes = max(1, num_ranks // 4)
    nodes = tuple(
        WorldNode(node_rank=n, name=f"gpu{n}", ranks=tuple(range(4 * n, 4 * n + 4))) for n in range(num_nodes)
    )
    return Report(
        tool_version="0.1.0",
        command="diagnose",
        started="2026-01-02T04:00:00+00:00",
        duration_s=0.9,
        world=World(num_nodes=num_nodes, world_size=num_ranks, nodes=nodes),
        status=Status.FAULT,
        verdict=verdict,
        findings=found,
        not_checked=(),
        summary=replace(stuck_run(num_ranks), **changes),
    )


def whole_report() -> Report:
    """Every part of the summary is there."""
    bench = BenchRun(
        origin=Origin(source="run/perf.txt"),
        operation="all_reduce",
        rows=(BenchRow(8, 21.5, 0.01, 0.02, 0), BenchRow(1 << 30, 5e3, 214.0, 375.0, 2)),
        in_place_rows=(BenchRow(8, 20.0, 0.01, 0.02, -1),),
        avg_busbw_gb_per_s=187.5,
        out_of_bounds=2,
    )
    return stuck_report(
        baseline="good",
        differences=(
            Difference(area="time", what="init total", good="0.3 s", bad="0.9 s", ranks=(1,), weight=1),
            Difference(area="setting", what="NCCL_P2P_DISABLE", good="(not set)", bad="1", weight=2),
        ),
        benches=(bench,),
        iterations=IterationCounts(
            marker=r"step (\d+)",
            num_iterations={0: 12, 1: 11},
            usual={"all_reduce": 2},
            odd=((0, 7, {"all_reduce": 3}),),
        ),
    )


def well_report() -> Report:
    """Every rank ended well, and only harmless lines were seen."""
    rows = tuple(row(n, end=WELL, activity_kind="", positions=(), last_line_class="teardown") for n in range(8))
    harmless = tuple(m for m in timeline() if m.role == "harmless")
    report = stuck_report(ranks=rows, timeline=harmless, clocks=(), sources=())
    return replace(report, status=Status.HEALTHY, verdict=None, findings=findings()[3:4])
