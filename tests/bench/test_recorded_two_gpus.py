"""What two H200 with NVLink measured (`benchmarks/record_gpu_bench.py`), and what is said about it."""

from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from allready import model
from allready.judging.isolation import isolated
from allready.model.operations import OPERATIONS
from tests.fleets import check, fleet

FOLDER = Path(__file__).parents[1] / "fixtures" / "bench" / "h200_two"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def recorded(scene: str) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode((FOLDER / f"{scene}.json").read_bytes())
    return body


def collectives(scene: str) -> model.Collectives:
    return msgspec.convert(recorded(scene)["collectives"], model.Collectives, str_keys=True, strict=False)


def judged(code: str, scene: str) -> Any:
    body = recorded(scene)
    facts = body["facts"]["0"]
    return check(
        code,
        fleet(
            1,
            world=msgspec.convert(body["world"], model.World),
            collectives=collectives(scene),
            gpu={0: msgspec.convert(facts["gpu"], model.GpuFacts)},
            env={0: msgspec.convert(facts["env"], model.EnvFacts)},
        ),
    )


def test_without_p2p_the_lost_nvlink_is_named_with_the_variable_that_took_it() -> None:
    [hit] = judged("BEN010", "no_p2p").hits
    assert (hit.severity, hit.culprits.variables) == (None, ("NCCL_P2P_DISABLE",))
    assert (hit.values["name"], hit.values["up"]) == ("NVLink 4", "GPU 0: 18 of 18, GPU 1: 18 of 18")
    [low] = judged("BEN001", "no_p2p").hits
    assert low.severity == "error"


@pytest.mark.parametrize("scene", ["all", "no_nvls", "isolate"])
def test_with_nvlink_nothing_is_wrong(scene: str) -> None:
    assert judged("BEN010", scene).hits == ()
    assert [hit.severity for hit in judged("BEN001", scene).hits] == ["info"]


def test_only_p2p_makes_a_difference() -> None:
    found = isolated(collectives("isolate"))
    assert found is not None
    assert [w.transport for w in found.carrying()] == ["P2P"]
    assert len(found.indifferent()) == 5
    assert found.failing() == found.slowing() == ()


def test_every_operation_was_right_and_nccl_named_its_algorithms() -> None:
    points = collectives("all").runs[0].points
    assert {p.operation for p in points} == set(OPERATIONS)
    assert sum(p.num_errors for p in points) == 0
    assert {p.algorithm for p in points if p.operation == "all_reduce"} == {"RING"}


def test_our_loop_is_within_half_a_percent_of_a_plain_one_from_16_mib_on() -> None:
    rows = {row["size_bytes"]: row for row in recorded("plain")["rows"]}
    assert sorted(rows) == [1024 * 4**n for n in range(11)]
    assert all(abs(row["ratio_of_medians"] - 1) < 0.005 for size, row in rows.items() if size >= 2**24)
    # Below, an operation takes as long as torch needs to launch it.
    assert all(0 < row["ours_median_s"] - row["plain_median_s"] < 2.5e-6 for size, row in rows.items() if size < 2**24)


def test_two_gpus_are_within_2_percent_of_nccl_tests_with_graphs_and_call_by_call_from_4_mib_on() -> None:
    """`benchmarks/against_nccl_tests.py`.  Below 4 MiB a call takes longer than the GPU, by the CPU that makes it."""
    for kind, sizes, least in (("graphs", 8, 2**10), ("calls", 11, 2**22)):
        rows = msgspec.json.decode((RESULTS / f"against_nccl_tests.h200_x2.{kind}.json").read_bytes())["rows"]
        assert [row["size_bytes"] for row in rows] == [1024 * 4**n for n in range(sizes)]
        for row in rows:
            theirs, ours = row["nccl_tests_each_s"], row["allready_each_s"]
            assert len(theirs) == len(ours) == row["runs"] >= 3
            if row["size_bytes"] >= least:
                assert abs(median(ours) / median(theirs) - 1) < 0.015, (kind, row["size_bytes"])
            else:  # not slower than the slowest run of nccl-tests
                assert max(ours) < max(*theirs, *row["again_each_s"])
