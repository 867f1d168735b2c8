"""From evidence to a report: what must not change between two judgements, and what an interruption leaves."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from allready.judging.bisection import search
from allready.model import (
    BenchPoint,
    CollectiveRun,
    Collectives,
    EnvFacts,
    Fleet,
    GroupPoint,
    LimitFacts,
    RollCall,
    StageResult,
    Status,
    UncheckedKind,
    World,
)
from allready.preflight.check.report_series import FACTS_OF_NODES_IN_REPORT, ReportSeries, plain, world_of
from allready.text.reasons import not_checked, reason
from tests.fleets import claim, fleet, healthy_collectives, healthy_node, healthy_roll
from tests.rules.bench.made_up import point


def roll_without(num_nodes: int, *absent: int, **changes: object) -> RollCall:
    claims = tuple(claim(r, num_nodes) for r in range(num_nodes) if r not in absent)
    return replace(RollCall(num_nodes=num_nodes, claims=claims, waited_s=5.0, finished=True), **changes)


def job_without(num_nodes: int, *absent: int, **changes: object) -> Fleet:
    whole = fleet(num_nodes, roll=roll_without(num_nodes, *absent, **changes))
    return replace(whole, nodes={n: f for n, f in whole.nodes.items() if n not in absent}, reach=None, collectives=None)


NOT_TRIED = reason(UncheckedKind.PAIRS_UNTRIED, done=1, planned=3)


def test_a_healthy_fleet_is_healthy() -> None:
    report = ReportSeries().judge(fleet(2), waiting=False, visible_since=None)
    assert (report.status, report.verdict, report.not_checked) == (Status.HEALTHY, None, ())
    assert report.world.num_nodes == 2
    assert set(report.facts) == {0, 1}


def test_a_stage_that_was_asked_for_and_not_done_forbids_healthy() -> None:
    report = ReportSeries().judge(fleet(2), waiting=False, visible_since=None, unchecked_stages={"reach": NOT_TRIED})
    assert report.status is Status.UNKNOWN
    assert report.not_checked == (not_checked("reach", NOT_TRIED),)
    assert report.not_checked[0].why == "only 1 of 3 pairs were tried"


def test_while_it_waits_the_status_is_waiting_whatever_is_known() -> None:
    report_series = ReportSeries()
    assert report_series.judge(fleet(2), waiting=True, visible_since=None).status is Status.WAITING
    report = report_series.judge(job_without(2, 1), waiting=True, visible_since=None)
    assert (report.status, report.verdict and report.verdict.culprits.nodes) == (Status.WAITING, (1,))


def test_the_first_detection_is_kept_while_the_verdict_accuses_the_same() -> None:
    report_series = ReportSeries()
    since = datetime.now(UTC) - timedelta(seconds=2)
    first = report_series.judge(job_without(3, 2, waited_s=2.0), waiting=True, visible_since=since).verdict
    later = report_series.judge(
        job_without(3, 2, waited_s=60.0), waiting=False, visible_since=since - timedelta(seconds=50)
    ).verdict
    assert first is not None
    assert later is not None
    assert (later.detect_s, later.detected_time) == (first.detect_s, first.detected_time)
    assert later.sentence != first.sentence, "the words are today's"


def test_another_culprit_is_a_new_detection() -> None:
    report_series = ReportSeries()
    first = report_series.judge(job_without(3, 2), waiting=True, visible_since=datetime.now(UTC)).verdict
    other = report_series.judge(
        job_without(3, 1), waiting=False, visible_since=datetime.now(UTC) - timedelta(seconds=9)
    ).verdict
    assert first is not None
    assert other is not None
    assert other.detect_s is not None
    assert 9.0 <= other.detect_s < 10.0


def test_a_verdict_that_went_away_is_forgotten() -> None:
    report_series = ReportSeries()
    report_series.judge(job_without(2, 1), waiting=True, visible_since=None)
    report = report_series.judge(fleet(2), waiting=False, visible_since=None)
    assert (report.status, report.verdict) == (Status.HEALTHY, None)


def test_an_interruption_before_anything_is_known_is_told_as_one() -> None:
    report = ReportSeries().interrupted("start", reason(UncheckedKind.INTERRUPTED, signal="SIGINT", stage="start"))
    assert (report.status, report.verdict, report.findings) == (Status.INTERRUPTED, None, ())
    assert (report.not_checked[0].code, report.not_checked[0].why) == (
        "start",
        "interrupted by SIGINT during stage start",
    )
    assert report.world.num_nodes == 0


def test_an_interruption_of_a_healthy_check_is_never_healthy() -> None:
    report_series = ReportSeries()
    report_series.judge(fleet(2), waiting=True, visible_since=None)
    assert report_series.failed("sweep", reason(UncheckedKind.FAILED, error="a bug")).status is Status.UNKNOWN
    report = report_series.interrupted("sweep", reason(UncheckedKind.CANCELLED))
    assert report.status is Status.INTERRUPTED
    assert report.roll == healthy_roll(2)
    assert report_series.last is report


def test_an_interruption_keeps_the_fault_that_stood() -> None:
    report_series = ReportSeries()
    stood = report_series.judge(job_without(2, 1), waiting=True, visible_since=None)
    report = report_series.interrupted("roll", reason(UncheckedKind.CANCELLED))
    assert (report.status, report.verdict, report.findings) == (Status.FAULT, stood.verdict, stood.findings)
    assert report.not_checked == (report.not_checked[0], *stood.not_checked)
    assert report.duration_s >= stood.duration_s


def test_ranks_are_numbered_node_by_node_with_what_each_node_brings() -> None:
    claims = tuple(claim(n, 3, nproc_per_node=nproc) for n, nproc in ((2, 4), (0, 1), (1, 8)))
    world = world_of(RollCall(num_nodes=3, claims=claims), nproc_default=99)
    assert world.world_size == 13
    assert [(n.node_rank, n.ranks) for n in world.nodes] == [(0, (0,)), (1, tuple(range(1, 9))), (2, (9, 10, 11, 12))]
    assert world.node_of(8) == 1


def test_nodes_that_have_not_come_are_counted_with_the_default_and_have_no_name() -> None:
    claims = (claim(0, 4, nproc_per_node=2), claim(3, 4, nproc_per_node=2))
    world = world_of(RollCall(num_nodes=4, claims=claims), nproc_default=8)
    assert world.world_size == 20
    assert [(n.node_rank, n.name, n.ranks) for n in world.nodes] == [(0, "gpu0", (0, 1)), (3, "gpu3", (18, 19))]


def test_a_refused_claim_is_no_member() -> None:
    claims = (claim(0, 2), claim(1, 2, name="first"), claim(1, 2, name="second", refused="duplicate_rank"))
    world = world_of(RollCall(num_nodes=2, claims=claims), nproc_default=2)
    assert [n.name for n in world.nodes] == ["gpu0", "first"]


def test_nobody_here_is_a_world_all_the_same() -> None:
    world = world_of(RollCall(num_nodes=2, claims=()), nproc_default=3)
    assert world == World(num_nodes=2, world_size=6, nodes=())


def many(num_nodes: int) -> Fleet:
    nodes = {n: healthy_node(n, num_nodes) for n in range(num_nodes)}
    return replace(fleet(2, roll=healthy_roll(num_nodes), reach=None, collectives=None), nodes=nodes)


@pytest.mark.parametrize("num_nodes", [FACTS_OF_NODES_IN_REPORT, FACTS_OF_NODES_IN_REPORT + 1, 100])
def test_the_facts_of_many_nodes_are_those_of_node_0_and_of_nodes_that_are_named(num_nodes: int) -> None:
    strange = replace(healthy_node(50, num_nodes), env=EnvFacts(variables={"NCCL_ALGO": "Ring"}))
    whole = many(num_nodes)
    report = ReportSeries().judge(replace(whole, nodes={**whole.nodes, 50: strange}), waiting=False, visible_since=None)
    if num_nodes <= FACTS_OF_NODES_IN_REPORT:
        assert set(report.facts) == set(range(num_nodes))
    else:
        named = {n for f in report.findings for n in f.culprits.nodes}
        assert 50 in named
        assert set(report.facts) == {0, *named}


@pytest.mark.thorough
def test_more_named_nodes_than_places_leave_exactly_as_many_as_there_are_places() -> None:
    whole = many(300)
    assert isinstance(whole.nodes[0].limits, LimitFacts)
    small = replace(whole.nodes[0].limits, nofile_soft=64, nofile_hard=64)
    nodes = {n: replace(facts, limits=small) for n, facts in whole.nodes.items()}
    report = ReportSeries().judge(replace(whole, nodes=nodes), waiting=False, visible_since=None)
    assert len({n for f in report.findings for n in f.culprits.nodes}) > FACTS_OF_NODES_IN_REPORT
    assert len(report.facts) == FACTS_OF_NODES_IN_REPORT
    assert 0 in report.facts


def test_what_travels_is_plain_data_with_text_keys() -> None:
    body = plain(ReportSeries().judge(fleet(2), waiting=False, visible_since=None))
    assert set(body["facts"]) == {"0", "1"}
    assert isinstance(body["findings"], (list, tuple))


def bisected(shares: dict[int, float], num_members: int, most_rounds: int = 9) -> Collectives:
    members, rounds = list(range(num_members)), list[list[GroupPoint]]()
    while (groups := search(members, rounds).groups) and len(rounds) < most_rounds:
        number = len(rounds)
        rounds.append(
            [
                GroupPoint(round=number, members=g, size_bytes=1, gb_per_s=min(shares.get(m, 1.0) for m in g))
                for g in groups
            ]
        )
    ended = StageResult(name="bisect", outcome="ok", deadline_s=1.0, duration_s=1.0)
    points = tuple(g for groups in rounds for g in groups)
    run = CollectiveRun(label="all", backend="gloo", ranks=tuple(members), stages=(ended,), groups=points)
    return Collectives(runs=(run,))


def test_a_bisection_without_an_answer_says_why() -> None:
    def left(collectives: Collectives) -> list[object]:
        whole = replace(fleet(8), collectives=collectives)
        report = ReportSeries().judge(whole, waiting=False, visible_since=None)
        return [n for n in report.not_checked if n.code == "bisect"]

    assert left(bisected({5: 0.5}, 8)) == left(bisected({}, 8)) == []
    rounds = not_checked("bisect", reason(UncheckedKind.ROUNDS_LEFT, done=2))
    assert left(bisected({5: 0.5}, 8, most_rounds=2)) == [rounds]
    assert left(bisected({}, 3)) == [not_checked("bisect", reason(UncheckedKind.FEW_MEMBERS, least=4))]


def test_a_baseline_of_other_sizes_is_said_to_compare_with_nothing() -> None:
    def judged(*baseline: BenchPoint) -> list[object]:
        run = replace(healthy_collectives(4).runs[0], points=(point(2**20, 1.0),))
        collectives = Collectives(runs=(run,), baseline=baseline, baseline_source="good")
        report = ReportSeries().judge(replace(fleet(2), collectives=collectives), waiting=False, visible_since=None)
        return [n for n in report.not_checked if n.code == "BEN002"]

    assert judged() == judged(point(2**20, 1.0), point(64, 1.0)) == []
    nothing = not_checked("BEN002", reason(UncheckedKind.NOTHING_COMMON, source="good"))
    assert judged(point(64, 1.0)) == judged(replace(point(2**20, 1.0), dtype="int8")) == [nothing]
