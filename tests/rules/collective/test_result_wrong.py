from msgspec.structs import replace

from allready.judging.loading import load
from allready.model import BenchPoint, Collectives, Confidence, FaultClass, Severity
from tests.fleets import check, fleet, healthy_collectives
from tests.rules.collective.made_up import stage, state, stopped_at

POINT = BenchPoint(
    size_bytes=2**20, time_s=1e-4, algbw_gb_per_s=1.0, busbw_gb_per_s=1.5, num_errors=3, num_iterations=20
)


def test_names_the_one_rank_that_got_another_result() -> None:
    wrong = stage("sweep", "wrong", state(2, error="size 1048576: 3 wrong"), size_bytes=2**20, iteration=0)
    [hit] = check("COL010", fleet(2, collectives=stopped_at(wrong))).hits
    assert (hit.culprits.ranks, hit.confidence) == ((2,), Confidence.LIKELY)
    assert hit.values["sizes"] == "1 MiB"
    assert load()["COL010"].severity is Severity.ERROR


def test_blames_nobody_when_half_of_them_are_wrong() -> None:
    wrong = stage("nccl_small", "wrong", state(0), state(1))
    [hit] = check("COL010", fleet(2, collectives=stopped_at(wrong))).hits
    assert not hit.culprits
    assert hit.confidence is Confidence.POSSIBLE


def test_ranks_with_right_results_are_not_named() -> None:
    wrong = stage("nccl_small", "wrong", state(3), state(0), state(1), culprits=(3,))
    [hit] = check("COL010", fleet(2, collectives=stopped_at(wrong))).hits
    assert hit.culprits.ranks == (3,)


def test_counts_the_errors_of_the_sweep() -> None:
    healthy = healthy_collectives(4).runs[0]
    bad = Collectives(runs=(replace(healthy, points=(*healthy.points, POINT)),))
    [hit] = check("COL010", fleet(2, collectives=bad)).hits
    assert hit.values["sizes"] == "1 MiB"
    assert any("3 wrong" in e.text for e in hit.evidence)


def test_with_gloo_between_nodes_it_is_the_network() -> None:
    wrong = stage("gloo_small", "wrong", state(0))
    [hit] = check("COL010", fleet(2, collectives=stopped_at(wrong, backend="gloo"))).hits
    assert hit.fault_class is FaultClass.NET_BROKEN


def test_a_stage_that_hangs_has_no_result_at_all() -> None:
    assert check("COL010", fleet(2, collectives=stopped_at(stage("sweep", "hung", state(0))))).state == "clear"


def test_is_clear_when_all_results_are_right() -> None:
    assert check("COL010", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL010", fleet(2, collectives=None)).state == "not_checked"
