"""Curves in files: what is written can be read again, and what nccl-tests writes is read."""

import csv
import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from allready.bench.files import csv_text, history, nccl_json, read_curves
from allready.errors import UsageError
from allready.model import BenchPoint, BenchSpread, CollectiveRun, Collectives, Report, Status, World, WorldNode
from allready.model.operations import OPERATIONS
from allready.report import json_report

SPREAD = BenchSpread(min_s=1e-3, median_s=2e-3, p99_s=3e-3, max_s=4e-3, cv_share=0.25)


def point(operation: str, size_bytes: int, **changes: object) -> BenchPoint:
    values = {"time_s": 2e-3, "algbw_gb_per_s": 1.5, "busbw_gb_per_s": 2.0, "num_errors": 0, "num_iterations": 20}
    return BenchPoint(size_bytes=size_bytes, operation=operation, spread=SPREAD, **(values | changes))  # type: ignore[arg-type]


POINTS = (point("all_reduce", 4096), point("all_gather", 4080, dtype="float16"), point("sendrecv", 64, num_errors=3))
RUN = CollectiveRun(label="all", backend="nccl", ranks=(0, 1, 2), stages=(), points=POINTS)
REPORT = Report(
    tool_version="0.1",
    command="bench",
    started="2026-11-24T04:00:00+00:00",
    duration_s=1.0,
    world=World(num_nodes=1, world_size=3, nodes=(WorldNode(node_rank=0, name="gpu01", ranks=(0, 1, 2)),)),
    status=Status.HEALTHY,
    verdict=None,
    findings=(),
    not_checked=(),
    collectives=Collectives(runs=(RUN,)),
    facts={0: {"software": {"versions": {"nccl": "2.28.9"}}}},
)


def test_the_json_has_the_shape_of_nccl_tests() -> None:
    body = nccl_json(REPORT, ["allready", "bench"])
    assert (body["version"], body["nccl_version"]) == (3, 22809)
    reduce, gather, exchange = body["results"]
    assert (reduce["size"], reduce["count"], reduce["type"], reduce["redop"]) == (4096, 1024, "float", "sum")
    assert reduce["out_of_place"] is None
    assert reduce["in_place"] == {"time": 2000.0, "alg_bw": 1.5, "bus_bw": 2.0, "nwrong": 0.0}
    assert (gather["count"], gather["type"], gather["redop"], gather["in_place"]) == (680, "half", "none", None)
    assert gather["out_of_place_per_iter"]["p99_us"] == pytest.approx(3000)
    assert exchange["out_of_place"]["nwrong"] == 3
    assert body["out_of_bounds"] == {"count": 3, "okay": "false"}
    assert [d["hostname"] for d in body["devices"]] == ["gpu01"] * 3


def test_what_jax_measures_is_out_of_place() -> None:
    report = replace(REPORT, collectives=Collectives(runs=(replace(RUN, backend="jax"),)))
    reduce = nccl_json(report, [])["results"][0]
    assert reduce["in_place"] is None
    assert reduce["out_of_place"]["time"] == 2000.0


def test_both_forms_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text(json.dumps(nccl_json(REPORT, [])))
    (tmp_path / "ours.json").write_bytes(json_report.encode(REPORT))
    ours, theirs = read_curves(tmp_path / "ours.json"), read_curves(tmp_path / "theirs.json")
    assert ours.points == POINTS
    assert (ours.num_ranks, theirs.num_ranks, theirs.name) == (3, 3, "theirs")
    for written, read in zip(POINTS, theirs.points, strict=True):
        for name in ("size_bytes", "operation", "dtype", "num_errors", "num_iterations", "busbw_gb_per_s"):
            assert getattr(read, name) == getattr(written, name)
        assert read.time_s == pytest.approx(written.time_s)
        assert read.spread is not None
        assert read.spread.cv_share == pytest.approx(0.25)


def test_of_two_forms_of_nccl_tests_the_faster_counts(tmp_path: Path) -> None:
    fast, slow = (
        {"time": 10.0, "alg_bw": 4.0, "bus_bw": 7.0, "nwrong": 0.0},
        {"time": 20.0, "alg_bw": 2.0, "bus_bw": 3.5},
    )
    result = {"size": 1024, "count": 256, "type": "float", "redop": "sum", "out_of_place": slow, "in_place": fast}
    path = tmp_path / "n.json"
    path.write_text(json.dumps({"version": 3, "args": ["./build/all_gather_perf", "-J", "x"], "results": [result]}))
    [point] = read_curves(path).points
    assert (point.operation, point.busbw_gb_per_s) == ("all_gather", 7.0)
    assert point.time_s == pytest.approx(1e-5)


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    bad = {
        "empty": "",
        "list": "[1, 2]",
        "nothing measured": '{"version": 3, "results": []}',
        "no sizes": '{"results": [{"in_place": {"time": 1}}]}',
        "words": '{"results": [{"size": 1, "in_place": {"time": "x", "alg_bw": 1, "bus_bw": 1}}]}',
        "report without a run": json.dumps({"schema": "allready.report/1"}),
    }
    accepted = []
    for name, text in bad.items():
        path = tmp_path / "f.json"
        path.write_text(text)
        try:
            read_curves(path)
            accepted.append(name)
        except UsageError:
            pass
    assert accepted == []
    with pytest.raises(UsageError):
        read_curves(tmp_path / "absent.json")


def test_the_csv_has_a_row_for_each_size() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(RUN))))
    assert [(r["operation"], int(r["size_bytes"]), int(r["count"])) for r in rows] == [
        ("all_reduce", 4096, 1024),
        ("all_gather", 4080, 680),
        ("sendrecv", 64, 16),
    ]
    assert float(rows[0]["median_us"]) == 2000


def test_one_rank_has_the_busbw_of_nccl_tests() -> None:
    """Nothing where the factor counts the other ranks; the root of the others still sends its size."""
    factors = {name: operation.bus_factor(1) for name, operation in OPERATIONS.items()}
    nothing = {name for name, factor in factors.items() if factor == 0}
    assert nothing == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert {factors[name] for name in factors.keys() - nothing} == {1.0}


def test_a_folder_and_several_files_are_a_history_of_which_the_median_counts(tmp_path: Path) -> None:
    body = json.loads((Path(__file__).parents[1] / "fixtures" / "bench" / "nccl_tests_h200.json").read_text())
    for name, factor in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        for row in body["results"]:
            for form in ("in_place", "out_of_place"):
                if row.get(form):
                    row[form]["bus_bw"] = 100.0 * factor
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    whole = history([tmp_path])
    assert {p.busbw_gb_per_s for p in whole.points} == {200.0}
    assert whole.name == "a … c (3)"
    assert {p.busbw_gb_per_s for p in history([tmp_path / "b.json"]).points} == {300.0}
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no"):
        history([tmp_path / "empty"])
