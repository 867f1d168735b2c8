"""Curves in files: what is written can be read again, and what nccl-tests writes is read."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allready.bench.files import RequestedRun, csv_text, history, nccl_json, read_curves
from allready.errors import UsageError
from allready.model import (
    BenchForm,
    BenchPoint,
    BenchSpread,
    CollectiveRun,
    Collectives,
    Report,
    Status,
    World,
    WorldNode,
)
from allready.model.operations import OPERATIONS
from allready.report import json_report
from tests.cases import cases

SPREAD = BenchSpread(min_s=1e-3, median_s=2e-3, p95_s=2.5e-3, p99_s=3e-3, max_s=4e-3, cv_share=0.25, mean_s=2.2e-3)


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
    facts={
        0: {
            "software": {"versions": {"nccl": "2.28.9"}},
            "env": {"variables": {"NCCL_DEBUG": "INFO"}},
            "gpu": {
                "gpus": [
                    {"index": 0, "name": "NVIDIA H200", "pci_bus_id": "00000000:00:06.0"},
                    {"index": 1, "name": "NVIDIA H200", "pci_bus_id": "00000000:3B:00.0"},
                ],
                "visible": [1, 0],
            },
        }
    },
)


def test_the_json_has_the_shape_of_nccl_tests() -> None:
    body = nccl_json(REPORT, RequestedRun(args=("allready", "bench"), num_warmup=7))
    assert (body["version"], body["nccl_version"]) == (3, 22809)
    reduce, gather, exchange = body["results"]
    assert (reduce["size"], reduce["count"], reduce["type"], reduce["redop"]) == (4096, 1024, "float", "sum")
    assert reduce["out_of_place"] is None
    assert reduce["in_place"] == {"time": 2000.0, "alg_bw": 1.5, "bus_bw": 2.0, "nwrong": 0.0}
    assert (gather["count"], gather["type"], gather["redop"], gather["in_place"]) == (680, "half", "none", None)
    assert gather["out_of_place_per_iter"]["p99_us"] == pytest.approx(3000)
    assert exchange["out_of_place"]["nwrong"] == 3
    assert body["out_of_bounds"] == {"count": 3, "okay": "false"}
    assert [d["hostname"] for d in body["config"]["devices"]] == ["gpu01"] * 3


def test_the_json_has_every_key_that_nccl_tests_writes() -> None:
    """Recorded from nccl-tests 2.19.6; single times are the next test's."""
    theirs = json.loads((Path(__file__).parents[1] / "fixtures" / "bench" / "nccl_tests_h200.json").read_text())
    ours = nccl_json(REPORT, RequestedRun(num_iterations=9, num_warmup=7))
    assert theirs.keys() | {"env"} == ours.keys()
    assert theirs["config"].keys() == ours["config"].keys()
    assert theirs["config"]["devices"][0].keys() == ours["config"]["devices"][0].keys()
    row, own = theirs["results"][0], ours["results"][0]
    assert row.keys() - own.keys() == {"out_of_place_per_iter"}  # torch's all_reduce is in place only
    assert row["in_place_per_iter"].keys() - own["in_place_per_iter"].keys() == {"per_process_max_times_us"}
    for theirs_value, value in ((theirs, ours), (theirs["config"], ours["config"]), (row["in_place"], own["in_place"])):
        kinds = {k: (type(v), type(value[k])) for k, v in theirs_value.items() if v is not None}
        assert {k: pair for k, pair in kinds.items() if pair[0] is not pair[1]} == {}
    assert (ours["config"]["warmup_iters"], ours["config"]["iterations"], ours["config"]["step_factor"]) == (7, 9, 2)
    assert "step_factor" not in nccl_json(REPORT, RequestedRun(step_bytes=64))["config"]
    assert nccl_json(REPORT, RequestedRun(step_bytes=64))["config"]["step_bytes"] == 64
    assert [d["device_hex"] for d in ours["config"]["devices"]] == ["0000:3b:00", "0000:00:06", ""]
    assert [d["device_info"] for d in ours["config"]["devices"]] == ["NVIDIA H200", "NVIDIA H200", "CPU"]
    assert (ours["start_time"], ours["end_time"]) == ("2026-11-24 04:00:00", "2026-11-24 04:00:01")
    assert ours["env"] == ["NCCL_DEBUG=INFO"]
    per = own["in_place_per_iter"]
    assert (per["p95_us"], per["avg_us"], per["stdev_us"]) == pytest.approx((2500, 2200, 550))


def timed(*, both: bool) -> Report:
    """Two ranks with single times: in the third iteration the other one is the longer."""
    times = ((1e-3, 2e-3, 5e-3), (2e-3, 3e-3, 4e-3))
    other = ((7e-3,) * 3, (6e-3, 6e-3, 9e-3))
    form = BenchForm(in_place=False, time_s=7e-3, algbw_gb_per_s=1.0, busbw_gb_per_s=1.0, num_errors=0, times_s=other)
    measured = point("all_reduce", 4096, times_s=times, other_form=form if both else None)
    run = replace(RUN, ranks=(0, 1), pids={0: 4711, 1: 4712}, points=(measured,))
    return replace(REPORT, collectives=Collectives(runs=(run,)))


def test_single_times_of_both_forms_and_process_ids_are_written_as_nccl_tests_does_and_read_again(
    tmp_path: Path,
) -> None:
    body = nccl_json(timed(both=True), RequestedRun())
    assert [d["pid"] for d in body["config"]["devices"]] == [4711, 4712]
    theirs = json.loads((Path(__file__).parents[1] / "fixtures" / "bench" / "nccl_tests_h200.json").read_text())
    own, row = body["results"][0], theirs["results"][0]
    assert own.keys() == row.keys()
    assert own["in_place_per_iter"].keys() == row["in_place_per_iter"].keys() | {"times_us"}
    per = own["in_place_per_iter"]
    assert per["times_us"] == [2000.0, 3000.0, 5000.0]
    assert per["per_process_max_times_us"] == [[1000.0, 2000.0, 5000.0], [2000.0, 3000.0, 4000.0]]
    assert (per["min_us"], per["p50_us"], per["max_us"]) == pytest.approx((2000, 3000, 5000))
    assert per["avg_us"] == pytest.approx(10_000 / 3)
    assert own["out_of_place_per_iter"]["times_us"] == [7000.0, 7000.0, 9000.0]
    path = tmp_path / "n.json"
    path.write_text(json.dumps(body))
    [read] = read_curves(path).points
    [written] = timed(both=True).collectives.runs[0].points  # type: ignore[union-attr]
    assert len(read.times_s) == len(written.times_s)
    assert hash(written)  # rules look points up
    assert read.times_s[1] == pytest.approx(written.times_s[1])
    assert read.other_form is not None
    assert not read.other_form.in_place
    assert read.other_form.times_s[1] == pytest.approx((6e-3, 6e-3, 9e-3))


def test_one_process_has_its_times_once() -> None:
    report = timed(both=False)
    assert report.collectives is not None
    [run] = report.collectives.runs
    alone = replace(run, ranks=(0,), points=(replace(run.points[0], times_s=((1e-3, 2e-3),)),))
    per = nccl_json(replace(report, collectives=Collectives(runs=(alone,))), RequestedRun())["results"][0][
        "in_place_per_iter"
    ]
    assert per["times_us"] == [1000.0, 2000.0]
    assert "per_process_max_times_us" not in per


def test_what_nccl_tests_recorded_is_read_with_its_single_times() -> None:
    path = Path(__file__).parents[1] / "fixtures" / "bench" / "nccl_tests_h200.json"
    body = json.loads(path.read_text())
    first = read_curves(path).points[0]
    row = body["results"][0]
    place = min(("in_place", "out_of_place"), key=lambda form: float(row[form]["time"]))
    rows = row[f"{place}_per_iter"]["per_process_max_times_us"]
    assert [[t * 1e6 for t in times] for times in first.times_s] == [pytest.approx(times) for times in rows]


def test_what_jax_measures_is_out_of_place() -> None:
    report = replace(REPORT, collectives=Collectives(runs=(replace(RUN, backend="jax"),)))
    reduce = nccl_json(report, RequestedRun())["results"][0]
    assert reduce["in_place"] is None
    assert reduce["out_of_place"]["time"] == 2000.0


def test_both_forms_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text(json.dumps(nccl_json(REPORT, RequestedRun())))
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


def row(size: int = 1024, redop: str = "sum", kind: str = "float", **values: Any) -> dict[str, Any]:
    form = {"time": 10.0, "alg_bw": 4.0, "bus_bw": 7.0, "nwrong": 0.0} | values
    return {"size": size, "count": size // 4, "type": kind, "redop": redop, "in_place": form}


def test_of_several_reductions_the_sum_counts_types_keep_their_names_and_size_0_is_left_out(tmp_path: Path) -> None:
    rows = [row(0), row(redop="prod", bus_bw=1.0), row(bus_bw=2.0), row(kind="uint32", bus_bw=3.0, nwrong=None)]
    path = tmp_path / "n.json"
    path.write_text(json.dumps({"args": ["/opt/build/all_reduce_perf_mpi/all_reduce_perf"], "results": rows}))
    assert [(p.dtype, p.busbw_gb_per_s) for p in read_curves(path).points] == [("float32", 2.0), ("uint32", 3.0)]


def test_the_number_of_ranks_is_that_of_all_threads_and_gpus_of_all_processes(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    config = {"nthreads": 2, "ngpus": 4, "devices": [{"rank": 0}, {"rank": 8}]}
    path.write_text(json.dumps({"args": ["all_reduce_perf"], "config": config, "results": [row()]}))
    assert read_curves(path).num_ranks == 16


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    bad = {
        "empty": "",
        "list": "[1, 2]",
        "nothing measured": '{"version": 3, "results": []}',
        "no sizes": '{"results": [{"in_place": {"time": 1}}]}',
        "words": '{"results": [{"size": 1, "in_place": {"time": "x", "alg_bw": 1, "bus_bw": 1}}]}',
        "nan": json.dumps({"args": ["all_reduce_perf"], "results": [row(time="nan")]}),
        "infinite": '{"args": ["all_reduce_perf"], "results": [{"size": 4, "in_place": {"time": 1e999, "alg_bw": 1, '
        '"bus_bw": 1}}]}',
        "negative": json.dumps({"args": ["all_reduce_perf"], "results": [row(bus_bw=-1.0)]}),
        "no operation": json.dumps({"results": [row()]}),
        "another operation": json.dumps({"args": ["./hypercube_perf"], "results": [row()]}),
        "gather": json.dumps({"args": ["./gather_perf"], "results": [row()]}),
        "results are words": '{"args": ["all_reduce_perf"], "results": ["a"]}',
        "config is a list": json.dumps({"args": ["all_reduce_perf"], "config": [1], "results": [row()]}),
        "only size 0": json.dumps({"args": ["all_reduce_perf"], "results": [row(size=0)]}),
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


WRITERS = Path(__file__).parents[1] / "fixtures" / "bench" / "nccl_tests_json"
"""What the writers of nccl-tests 2.17.3 (the first), 2.17.9, 2.18.5, 2.19.3 and 2.19.6 wrote, compiled without CUDA,
with made-up times: 2 processes, 1 KiB, 32 KiB (3 wrong elements out of place) and 1 MiB."""


@cases("name", sorted(path.name for path in WRITERS.iterdir()))
def test_what_every_version_of_nccl_tests_writes_is_read(name: str) -> None:
    kind = name.split(".")[-2]
    found = read_curves(WRITERS / name)
    assert found.num_ranks == (8 if kind == "threads" else 2)
    sizes = [p.size_bytes for p in found.points if p.dtype == "float32"]
    assert sizes == ([1 << 10] if kind == "early" else [1 << 10, 1 << 15, 1 << 20])
    types = ["float32", "float16", "f8e4m3"] if kind == "types" else ["float32"]
    assert list(dict.fromkeys(p.dtype for p in found.points)) == types
    first = found.points[0]
    assert (first.operation, first.num_iterations) == ("all_reduce", 5)
    assert first.time_s == pytest.approx(10.1024e-6)
    assert first.other_form is not None
    assert first.other_form.in_place
    assert first.other_form.time_s == pytest.approx(12.1024e-6)
    assert [p.num_errors for p in found.points[:3]] == ([0] if kind == "early" else [0, 3, 0])
    if kind == "per_iter":
        assert first.spread is not None
        assert first.spread.mean_s is not None
        assert [len(each) for each in first.times_s] == [5, 5]
        assert first.spread.max_s == pytest.approx(10.1024e-6 * 1.4)
        assert first.spread.min_s == pytest.approx(10.1024e-6 * 1.2)


def test_an_operation_of_nccl_tests_that_we_do_not_have_is_named(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    path.write_text(json.dumps({"args": ["/opt/build/alltoallv_perf"], "results": [row()]}))
    with pytest.raises(UsageError, match="alltoallv_perf measures an operation"):
        read_curves(path)


def _keys(value: Any) -> set[str]:
    """All of them, of lists too, with where they are."""
    if isinstance(value, list):
        return {key for each in value for key in _keys(each)}
    if not isinstance(value, dict):
        return set()
    return {name for key, each in value.items() for name in (key, *(f"{key}.{inner}" for inner in _keys(each)))}


def test_what_we_write_has_the_keys_of_the_newest_writer() -> None:
    theirs = json.loads((WRITERS / "2.19.6.per_iter.json").read_text())
    times = ((1e-3, 2e-3), (2e-3, 1e-3))
    both = replace(
        POINTS[0],
        times_s=times,
        other_form=BenchForm(
            in_place=False, time_s=1e-3, algbw_gb_per_s=1.0, busbw_gb_per_s=1.0, num_errors=0, times_s=times
        ),
    )
    report = replace(REPORT, collectives=Collectives(runs=(replace(RUN, points=(both,)),)))
    assert _keys(nccl_json(report, RequestedRun())) == _keys(theirs)
