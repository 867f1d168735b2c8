"""What a machine with an H200 measured, as it was recorded: the numbers of the documents, and the readings of them."""

from pathlib import Path
from typing import Any

import msgspec

from allready.judging.bandwidth import slow_alone
from allready.judging.bisection import search
from allready.judging.pair_matrix import read_matrix
from allready.model import BenchPoint, GroupPoint, PairPoint
from allready.model.operations import OPERATIONS

FILE = Path(__file__).parents[1] / "fixtures" / "bench" / "h200_shared.json"


def recorded() -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(FILE.read_bytes())
    return body


def test_our_loop_takes_as_long_as_a_plain_one() -> None:
    ratios = {row["size_bytes"]: row["ours_median_s"] / row["plain_median_s"] for row in recorded()["loops"]}
    assert sorted(ratios) == [1024 * 4**n for n in range(11)]
    apart = {size: ratio for size, ratio in ratios.items() if abs(ratio - 1) > 0.02}
    assert list(apart) == [4 * 2**20]  # 0.961 with 27 rounds; the median of the ratios of neighbours is 0.973
    assert 0.95 < apart[4 * 2**20] < 1.0


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
