"""Reports of very many nodes: bounded, with all that is in trouble, and with numbers that stay right."""

import msgspec
import pytest
from msgspec.structs import replace

from allready.messaging import wire
from allready.messaging.channel import convert
from allready.model import DatagramProbe, Fleet, PathProbe, Reachability, Report, World, WorldNode
from allready.model.fill import in_english
from allready.preflight.check import thinning
from allready.preflight.check.report_series import ReportSeries, plain
from allready.preflight.check.thinning import thin
from allready.report import html, json_report
from allready.report.matrix import matrix
from allready.report.words import paths_ok, summary
from tests.fleets import healthy_path, healthy_reach

pytestmark = pytest.mark.thorough

NUM_NODES = 512
MAX_ROWS = thinning.MAX_GOOD + thinning.MAX_BAD
PAIRS = [(a, (a + d) % NUM_NODES) for a in range(NUM_NODES) for d in range(1, 65)]


@pytest.fixture(scope="module")
def large() -> Reachability:
    """512 nodes, 64 partners each, two ports of everyone: 65,536 rows, as after 64 rounds."""
    paths = tuple(replace(healthy_path(a, b), port=40_000 + port) for a, b in PAIRS for port in (0, 1))
    sizes = (92, 1428, 1500, 9000)
    return Reachability(
        paths=paths,
        datagrams=tuple(
            DatagramProbe(src=a, dst=b, address="10.0.0.1", sent_bytes=sizes, received_bytes=sizes) for a, b in PAIRS
        ),
        num_pairs_all=NUM_NODES * (NUM_NODES - 1) // 2,
        num_pairs_planned=len(PAIRS),
        num_pairs_done=len(PAIRS),
    )


def with_bad(reach: Reachability, bad: dict[int, str]) -> Reachability:
    """`bad`: place in `paths` -> outcome."""
    paths = list(reach.paths)
    for place, outcome in bad.items():
        paths[place] = replace(paths[place], outcome=outcome, rtt_s=None, throughput_gb_per_s=None)
    return replace(reach, paths=tuple(paths))


def report_of(reach: Reachability) -> Report:
    nodes = tuple(WorldNode(node_rank=n, name=f"gpu{n}", ranks=(n,)) for n in range(NUM_NODES))
    fleet = Fleet(world=World(num_nodes=NUM_NODES, world_size=NUM_NODES, nodes=nodes), nodes={}, reach=reach)
    return ReportSeries().judge(fleet, waiting=False, visible_since=None)


def test_a_small_job_is_left_as_it_is() -> None:
    reach = healthy_reach(16)
    assert thin(reach) == (reach, ())


def test_the_good_are_bounded_and_the_counts_stay_right(large: Reachability) -> None:
    thinned, [phrase] = thin(large)
    note = in_english(phrase)
    assert len(thinned.paths) <= thinning.MAX_GOOD
    assert len(thinned.datagrams) <= thinning.MAX_GOOD
    assert str(len(large.paths)) in note
    assert str(len(thinned.paths)) in note
    assert (thinned.num_pairs_done, thinned.num_pairs_all) == (large.num_pairs_done, large.num_pairs_all)
    before, after = matrix(large), matrix(thinned)
    assert (after.num_cells, after.num_bad, after.num_nodes) == (before.num_cells, before.num_bad, before.num_nodes)


def test_everything_in_trouble_stays(large: Reachability) -> None:
    bad = {i: ("filtered", "refused", "stuck", "no_route", "error", "not_run")[i % 6] for i in range(0, 60_000, 7)}
    reach = with_bad(large, bad)
    thinned, _ = thin(reach)
    kept = [(p.src, p.dst, p.port, p.outcome) for p in thinned.paths if p.outcome != "ok"]
    assert kept == [(p.src, p.dst, p.port, p.outcome) for p in reach.paths if p.outcome != "ok"]
    before, after = matrix(reach), matrix(thinned)
    assert (after.num_cells, after.num_bad, after.bad) == (before.num_cells, before.num_bad, before.bad)


def test_the_order_of_the_paths_is_kept(large: Reachability) -> None:
    thinned, _ = thin(with_bad(large, {5: "filtered", 60_001: "filtered"}))
    places = {(p.src, p.dst, p.port): i for i, p in enumerate(large.paths)}
    order = [places[p.src, p.dst, p.port] for p in thinned.paths]
    assert order == sorted(order)


def test_the_slowest_stay_in_sight(large: Reachability) -> None:
    paths = list(large.paths)
    paths[31_337] = replace(paths[31_337], rtt_s=0.5)
    paths[12_345] = replace(paths[12_345], throughput_gb_per_s=0.001)
    thinned, _ = thin(replace(large, paths=tuple(paths)))
    assert paths[31_337] in thinned.paths
    assert paths[12_345] in thinned.paths


def test_every_direction_between_nodes_in_trouble_is_listed(large: Reachability) -> None:
    bad = {i: "filtered" for i, p in enumerate(large.paths) if p.src == 7 and p.dst < 40}
    thinned, _ = thin(with_bad(large, bad))
    listed = {(p.src, p.dst) for p in thinned.paths}
    in_trouble = {7, *(large.paths[i].dst for i in bad)}
    assert {(a, b) for a, b in PAIRS if a in in_trouble and b in in_trouble} <= listed


def test_lost_datagrams_stay(large: Reachability) -> None:
    lossy = [replace(p, received_bytes=(92,)) if i % 100 == 0 else p for i, p in enumerate(large.datagrams)]
    thinned, _ = thin(replace(large, datagrams=tuple(lossy)))
    assert [p for p in thinned.datagrams if p.received_bytes == (92,)] == [
        p for p in lossy if len(p.received_bytes) == 1
    ]


def test_even_where_all_is_filtered_the_report_can_be_sent_and_counts_right(large: Reachability) -> None:
    reach = with_bad(large, dict.fromkeys(range(len(large.paths)), "filtered"))
    lossy = tuple(replace(p, received_bytes=()) for p in large.datagrams)
    report = report_of(replace(reach, datagrams=lossy))
    assert report.reach is not None
    assert len(report.reach.paths) == thinning.MAX_BAD
    assert paths_ok(report) == (0, len(large.paths))
    assert matrix(report.reach).num_bad == len(PAIRS)
    frame = wire.encode("result", plain(report))
    kind, body = wire.decode(frame[5:], frame[4])
    body = wire.plain(body)
    assert kind == "result"
    assert convert(body, Report).reach == report.reach
    assert len(msgspec.json.encode(plain(report))) < wire.MAX_FRAME_BYTES
    assert len(html.render(report, language="en")) < 5_000_000


def test_the_report_of_a_healthy_large_job_is_a_few_megabytes_and_says_what_it_leaves_out(large: Reachability) -> None:
    report = report_of(large)
    data = json_report.encode(report)
    assert len(data) < 10_000_000
    assert json_report.decode(data).reach == report.reach
    assert paths_ok(report) == (len(large.paths), len(large.paths))
    assert any(f"{len(large.paths)} of {len(large.paths)}" in part for part in summary(report, "en"))
    assert "are listed here" in report.notes[0]
    assert "every one was judged" in report.notes[0]


def test_rules_judge_what_the_report_leaves_out(large: Reachability) -> None:
    assert len([i for i, p in enumerate(large.paths) if p.outcome == "ok"]) > MAX_ROWS
    reach = with_bad(large, {i: "filtered" for i, p in enumerate(large.paths) if p.dst == 99})
    report = report_of(reach)
    assert report.verdict is not None
    assert {dst for _, dst in report.verdict.culprits.links} == {99}
    assert len(report.verdict.culprits.links) == 64


def test_paths_to_the_master_are_kept_in_a_job_of_many_nodes() -> None:
    masters = tuple(
        PathProbe(src=n, dst=0, kind="master", address="10.0.0.1", port=29500, outcome="ok") for n in range(1, 4096)
    )
    reach = Reachability(paths=masters)
    assert thin(reach) == (reach, ())
