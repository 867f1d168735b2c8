"""What a machine with an H200 measured, as it was recorded: the numbers of the documents, and the readings of them."""

from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from allready.bench.files import read_curves
from allready.judging.bandwidth import slow_alone
from allready.judging.bisection import search
from allready.judging.pair_matrix import read_matrix
from allready.model import BenchPoint, CollectiveRun, GroupPoint, PairPoint
from allready.model.operations import OPERATIONS
from allready.report.bench import pair_matrices

FILE = Path(__file__).parents[1] / "fixtures" / "bench" / "h200_shared.json"


def recorded() -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(FILE.read_bytes())
    return body


NCCL_TESTS = FILE.with_name("h200_nccl_tests.json")


def test_beside_nccl_tests_we_are_within_its_own_spread_from_64_kib_on() -> None:
    """Whole runs in turn.  Below 64 KiB a process with torch in it is slower, by less than 10 us."""
    body = msgspec.json.decode(NCCL_TESTS.read_bytes())
    outside, small = [], {}
    for part in ("first", "second"):
        for row in body[part]:
            theirs, ours = sorted(row["nccl_tests_each_s"]), median(row["allready_each_s"])
            assert len(theirs) == len(row["allready_each_s"]) == row["runs"] >= 6
            if row["size_bytes"] < 2**16:
                small[row["size_bytes"]] = ours - median(theirs)
            elif abs(ours / median(theirs) - 1) > theirs[-1] / theirs[0] - 1:
                outside.append((part, row["size_bytes"]))
    assert outside == []
    assert sorted(small) == [1024, 4096, 16384]
    assert 0 < max(small.values()) < 10e-6


ONE_HOST = FILE.with_name("h200_one_host.json")


def _apart(part: str) -> dict[int, tuple[float, float]]:
    """Size -> how far we are from nccl-tests, and how far it is from itself."""
    found = {}
    for row in msgspec.json.decode(ONE_HOST.read_bytes())[part]["rows"]:
        theirs, again = row["nccl_tests_each_s"], row["again_each_s"]
        assert len(theirs) == len(again) == len(row["allready_each_s"]) == row["runs"]
        ours = median(row["allready_each_s"])
        found[row["size_bytes"]] = (ours / median(theirs + again) - 1, median(again) / median(theirs) - 1)
    assert sorted(found) == [1024 * 4**n for n in range(11)]
    return found


def test_two_ranks_of_one_gpu_are_within_2_percent_of_nccl_tests_with_graphs_from_4_kib_on() -> None:
    apart = _apart("graphs")
    assert [size for size, (ours, _) in apart.items() if abs(ours) > 0.02] == [1024]
    assert apart[1024][0] < 0.025
    assert max(abs(control) for _, control in apart.values()) < 0.015


def test_call_by_call_they_are_from_4_mib_on_and_one_rank_from_16_mib_on() -> None:
    """Below, one call takes longer than the GPU does, and ours is made by Python."""
    for part, least in (("plain", 2**22), ("one_rank", 2**24)):
        assert min(size for size, (ours, _) in _apart(part).items() if abs(ours) < 0.02) == least
        assert all(abs(ours) < 0.02 for size, (ours, _) in _apart(part).items() if size >= least)


def test_nccl_without_torch_is_not_faster_in_the_same_communicator() -> None:
    rows = msgspec.json.decode(NCCL_TESTS.read_bytes())["raw"]
    assert [row["size_bytes"] for row in rows] == [1024 * 4**n for n in range(8)]
    assert [row["size_bytes"] for row in rows if row["raw_median_s"] < row["plain_median_s"]] == [1024]
    assert all(abs(row["ours_median_s"] / row["plain_median_s"] - 1) < 0.03 for row in rows[:-1])  # 16 MiB: 5 turns


def test_a_file_that_nccl_tests_wrote_there_is_read() -> None:
    """Version 3, with -I 1; nccl-tests prints #wrong 0 and a p50 of each iteration."""
    curves = read_curves(FILE.with_name("nccl_tests_h200.json"))
    assert curves.num_ranks == 2
    assert [p.size_bytes for p in curves.points] == [1024 * 4**n for n in range(8)]
    for p in curves.points:
        assert (p.operation, p.dtype, p.num_errors, p.num_iterations) == ("all_reduce", "float32", 0, 100)
        assert p.busbw_gb_per_s == pytest.approx(p.size_bytes / p.time_s / 1e9, rel=1e-3)
        assert p.spread is not None
        assert p.spread.min_s <= p.spread.median_s <= p.spread.p99_s


def test_our_loop_takes_as_long_as_a_plain_one() -> None:
    ratios = {row["size_bytes"]: row["ours_median_s"] / row["plain_median_s"] for row in recorded()["loops"]}
    assert sorted(ratios) == [1024 * 4**n for n in range(11)]
    apart = {size: ratio for size, ratio in ratios.items() if abs(ratio - 1) > 0.02}
    assert list(apart) == [4 * 2**20]  # 0.961 with 27 rounds; the median of the ratios of neighbours is 0.973
    assert 0.95 < apart[4 * 2**20] < 1.0


def test_at_4_mib_that_was_noise_by_a_second_run_with_a_control() -> None:
    """A plain loop beside itself differs as much as ours does from it."""
    rows = {row["size_bytes"]: row for row in recorded()["loops_again"]}
    assert sorted(rows) == [2**20, 4 * 2**20, 16 * 2**20]
    for row in rows.values():
        assert abs(row["ratio_of_medians"] - 1) < 0.01
        assert abs(row["median_of_ratios"] - row["control_median_of_ratios"]) < 0.01
    low, _, high = rows[4 * 2**20]["plain_quartiles_s"]
    assert high / low - 1 > 0.05


def test_every_operation_was_right_at_every_size_and_has_its_factor() -> None:
    points = msgspec.convert(recorded()["points"], tuple[BenchPoint, ...])
    assert {p.operation for p in points} == set(OPERATIONS)
    for p in points:
        assert p.num_errors == 0
        factor = OPERATIONS[p.operation].bus_factor(2)
        assert abs(p.busbw_gb_per_s / p.algbw_gb_per_s - factor) < 1e-9


def test_copies_are_those_of_an_h200_with_pcie_5() -> None:
    [speeds] = recorded()["speeds"].values()
    assert 0.85 * 63 < speeds["h2d"] < 63
    assert 0.85 * 63 < speeds["d2h"] < 63
    assert 0.85 * 4800 < speeds["memory"] < 4800


def test_healthy_pairs_groups_and_copies_name_no_rank() -> None:
    body = recorded()
    reading = read_matrix(msgspec.convert(body["pairs"], tuple[PairPoint, ...]))
    assert reading.is_clear
    assert reading.failed == ()
    groups = msgspec.convert(body["groups"], list[GroupPoint])
    assert search(range(4), [groups]).culprits == {}
    assert slow_alone({int(rank): each for rank, each in body["speeds"].items()}) == {}


def test_the_matrices_show_bandwidth_and_latency_and_mark_what_is_slow() -> None:
    pairs = msgspec.convert(recorded()["pairs"], tuple[PairPoint, ...])
    run = CollectiveRun(label="all", backend="nccl", ranks=(0, 1, 2, 3), stages=(), pairs=pairs)
    tables = pair_matrices(run)
    assert [table.title for table in tables] == ["pairs_title", "latency_title"]
    assert all(level == 0 for table in tables for row in table.rows for text, level in row if text == "")
    slow, dead = pairs[0], pairs[-1]
    changed = (replace(slow, latency_s=0.25), *pairs[1:-1], replace(dead, gb_per_s=None, latency_s=None))
    rates, times = pair_matrices(replace(run, pairs=changed))
    assert times.rows[slow.sender][slow.receiver] == ("250 ms", 4)
    assert rates.rows[dead.sender][dead.receiver] == times.rows[dead.sender][dead.receiver] == ("\u2717", 4)
    assert rates.rows[slow.sender][slow.receiver] == tables[0].rows[slow.sender][slow.receiver]
    bare = tuple(replace(p, latency_s=None) for p in pairs)
    assert len(pair_matrices(replace(run, pairs=bare))) == 1
    assert pair_matrices(replace(run, pairs=())) == ()
