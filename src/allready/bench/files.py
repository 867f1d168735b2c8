"""Measured curves as files: nccl-tests' JSON (version 3), CSV, our own report.json.

The names in nccl-tests' JSON are those that its `-J FILE` writes (src/util.cu, 2.19): a result has `size` (bytes),
`count` (elements), `type`, `redop`, `root` and, for `out_of_place` and `in_place`, `time` (microseconds), `alg_bw`,
`bus_bw` (GB/s), `nwrong`.  torch has one form of each operation, so one of the two is null.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from allready.errors import UsageError
from allready.json_bounds import TooLargeError, decode_within
from allready.model import SCHEMA, BenchForm, BenchPoint, BenchSpread, CollectiveRun, Report
from allready.model.operations import DTYPE_BYTES, OPERATIONS

VERSION = 3
MOST_BYTES = 1 << 28
_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat16", "int8": "int8",
    "uint8": "uint8", "int32": "int32", "int64": "int64",
}  # fmt: skip
"""Our names of types -> those of nccl-tests."""
_PROGRAMS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf", "broadcast": "broadcast_perf", "reduce": "reduce_perf", "sendrecv": "sendrecv_perf",
}  # fmt: skip
_COLUMNS = (
    "operation", "size_bytes", "count", "dtype", "time_us", "algbw_gb_per_s", "busbw_gb_per_s", "num_wrong",
    "num_iterations", "min_us", "median_us", "p99_us", "max_us", "cv", "slowest_rank", "other_form", "other_time_us",
    "other_busbw_gb_per_s", "algorithm", "protocol",
)  # fmt: skip


class Curves(Struct, frozen=True, kw_only=True):
    """What one run measured."""

    name: str
    points: tuple[BenchPoint, ...]
    num_ranks: int | None = None


def count_of(point: BenchPoint, num_ranks: int) -> int:
    """Elements as nccl-tests counts them: of one rank's part, where the operation's buffers are split."""
    elements = point.size_bytes // DTYPE_BYTES[point.dtype]
    return elements // num_ranks if OPERATIONS[point.operation].is_split else elements


def nccl_json(report: Report, args: Iterable[str]) -> dict[str, Any]:
    """The first run of a report in the shape of nccl-tests' JSON, operation after operation."""
    run = report.collectives.runs[0] if report.collectives is not None else None
    points = run.points if run is not None else ()
    ranks = run.ranks if run is not None else ()
    names = {r: (node.name, r - node.ranks[0]) for node in report.world.nodes for r in node.ranks}
    wrong = sum(p.num_errors + (p.other_form.num_errors if p.other_form else 0) for p in points)
    busbw = [p.busbw_gb_per_s for p in points]
    return {
        "version": VERSION,
        "start_time": report.started,
        "args": list(args),
        "env": [],
        "nccl_version": _nccl_version(report) if run is not None and run.backend == "nccl" else 0,
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "minimum_bytes": min((p.size_bytes for p in points), default=0),
            "maximum_bytes": max((p.size_bytes for p in points), default=0),
            "iterations": max((p.num_iterations for p in points), default=0),
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": int(run is not None and run.is_graph),
        },
        "devices": [
            {"rank": r, "group": 0, "pid": 0, "hostname": names.get(r, ("", 0))[0], "device": names.get(r, ("", 0))[1]}
            for r in ranks
        ],
        "results": [_result(p, len(ranks), in_place=run is None or run.backend != "jax") for p in points],
        "out_of_bounds": {"count": wrong, "okay": "true" if wrong == 0 else "false"},
        "average_bus_bandwidth": {"bandwidth": sum(busbw) / len(busbw) if busbw else 0.0},
        "end_time": report.started,
    }


def _result(point: BenchPoint, num_ranks: int, *, in_place: bool) -> dict[str, Any]:
    """A row; `in_place`: the framework has one buffer for the operations that can do with one, as torch has."""
    operation = OPERATIONS[point.operation]
    place, other = ("in_place", "out_of_place") if operation.in_place and in_place else ("out_of_place", "in_place")
    found: dict[str, Any] = {
        "size": point.size_bytes,
        "count": count_of(point, num_ranks),
        "type": _TYPES[point.dtype],
        "redop": "sum" if operation.reduces else "none",
        "root": f"{0 if operation.has_root else -1:6}",
        other: None if point.other_form is None else _form(point.other_form),
        place: _form(point),
    }
    if point.spread is not None:
        s = point.spread
        found[f"{place}_per_iter"] = {
            "skipped_iterations": 0,
            "min_us": s.min_s * 1e6,
            "max_us": s.max_s * 1e6,
            "p50_us": s.median_s * 1e6,
            "p99_us": s.p99_s * 1e6,
            "cv_pct": s.cv_share * 100,
        }
    found["actual_iterations"] = point.num_iterations
    found["experiment_name"] = _PROGRAMS[point.operation]
    return found


def _form(measured: BenchPoint | BenchForm) -> dict[str, float]:
    return {
        "time": measured.time_s * 1e6,
        "alg_bw": measured.algbw_gb_per_s,
        "bus_bw": measured.busbw_gb_per_s,
        "nwrong": float(measured.num_errors),
    }


def _nccl_version(report: Report) -> int:
    """2.28.9 is 22809, as NCCL counts."""
    software = report.facts.get(0, {}).get("software", {})
    versions = software.get("versions", {}) if isinstance(software, dict) else {}
    parts = [int(p) for p in str(versions.get("nccl", "")).split(".")[:3] if p.isdecimal()]
    return parts[0] * 10_000 + parts[1] * 100 + parts[2] if len(parts) == 3 else 0


def csv_text(run: CollectiveRun) -> str:
    """One row per operation and size."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for p in run.points:
        s = p.spread
        spread = (
            [_us(s.min_s), _us(s.median_s), _us(s.p99_s), _us(s.max_s), f"{s.cv_share:.4f}"]
            if s is not None
            else [""] * 5
        )
        form = p.other_form
        other = (
            ["in_place" if form.in_place else "out_of_place", _us(form.time_s), f"{form.busbw_gb_per_s:.6g}"]
            if form is not None
            else [""] * 3
        )
        writer.writerow([
            p.operation, p.size_bytes, count_of(p, len(run.ranks)), p.dtype, _us(p.time_s), f"{p.algbw_gb_per_s:.6g}",
            f"{p.busbw_gb_per_s:.6g}", p.num_errors, p.num_iterations, *spread,
            "" if p.slowest_rank is None else p.slowest_rank, *other, p.algorithm, p.protocol,
        ])  # fmt: skip
    return out.getvalue()


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3f}"


def read_curves(path: Path) -> Curves:
    """What a file holds: a report.json of ours, or nccl-tests' JSON.

    Raises:
        UsageError: it cannot be read, or is neither.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError("{path}: too large for measured curves", path=path)
        body = decode_within(MOST_BYTES, path.read_bytes())
        return _curves(body, path.stem)
    except OSError as error:
        raise UsageError("{path}: {reason}", path=path, reason=error.strerror or error) from error
    except (msgspec.MsgspecError, TooLargeError, RecursionError, ValueError, TypeError, KeyError) as error:
        raise UsageError("{path}: neither a report.json nor JSON of nccl-tests", path=path) from error


def history(paths: Iterable[Path]) -> Curves:
    """Runs that were kept, as one: of every operation, type and size the run whose busbw is the median.

    Args:
        paths: files; a folder is all of its *.json.

    Raises:
        UsageError: one cannot be read, or is no measurement, or a folder has none.
    """
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not found:
            raise UsageError("{path}: no *.json in this folder", path=path)
        files += found
    runs = [read_curves(path) for path in files]
    if len(runs) == 1:
        return runs[0]
    of: dict[tuple[str, str, int], list[BenchPoint]] = {}
    for run in runs:
        for p in run.points:
            of.setdefault((p.operation, p.dtype, p.size_bytes), []).append(p)
    points = (sorted(each, key=lambda p: p.busbw_gb_per_s)[(len(each) - 1) // 2] for each in of.values())
    return Curves(
        name=f"{runs[0].name} … {runs[-1].name} ({len(runs)})", points=tuple(points), num_ranks=runs[0].num_ranks
    )


def _curves(body: Any, name: str) -> Curves:
    if isinstance(body, dict) and body.get("schema") == SCHEMA:
        report = msgspec.convert(body, Report, str_keys=True, strict=False)
        runs = report.collectives.runs if report.collectives is not None else ()
        if not runs or not runs[0].points:
            raise ValueError("nothing was measured")
        return Curves(name=name, points=runs[0].points, num_ranks=len(runs[0].ranks))
    if not isinstance(body, dict) or not isinstance(body.get("results"), list):
        raise TypeError("no results")
    operation = _operation_of(body)
    points = [p for result in body["results"] for p in _points(result, operation)]
    if not points:
        raise ValueError("nothing was measured")
    devices = body.get("devices") or body.get("config", {}).get("devices")
    return Curves(name=name, points=tuple(points), num_ranks=len(devices) if devices else None)


def _operation_of(body: Mapping[str, Any]) -> str:
    """By the program's name, where the results do not say it."""
    program = str((body.get("args") or [""])[0])
    return next((op for op, name in _PROGRAMS.items() if name in program), "all_reduce")


def _points(result: Mapping[str, Any], operation: str) -> Iterable[BenchPoint]:
    """A row of nccl-tests; the faster form where it measured both, as its users quote it."""
    named = str(result.get("experiment_name") or "")
    operation = next((op for op, name in _PROGRAMS.items() if name in named), operation)
    forms = [(k, result[k]) for k in ("out_of_place", "in_place") if isinstance(result.get(k), dict)]
    if not forms:
        return
    place, best = min(forms, key=lambda form: float(form[1].get("time", form[1].get("cpu_time", 0.0))))
    time_us = float(best.get("time", best.get("cpu_time", 0.0)))
    per = result.get(f"{place}_per_iter")
    dtype = next((ours for ours, theirs in _TYPES.items() if theirs == result.get("type")), "float32")
    yield BenchPoint(
        size_bytes=int(result["size"]),
        time_s=time_us / 1e6,
        algbw_gb_per_s=float(best["alg_bw"]),
        busbw_gb_per_s=float(best["bus_bw"]),
        num_errors=int(float(best.get("nwrong") or 0)),
        num_iterations=int(result.get("actual_iterations") or 0),
        operation=operation,
        dtype=dtype,
        spread=_spread(per) if isinstance(per, dict) else None,
    )


def _spread(per: Mapping[str, Any]) -> BenchSpread:
    return BenchSpread(
        min_s=float(per["min_us"]) / 1e6,
        median_s=float(per["p50_us"]) / 1e6,
        p99_s=float(per["p99_us"]) / 1e6,
        max_s=float(per["max_us"]) / 1e6,
        cv_share=float(per["cv_pct"]) / 100,
    )


def json_text(body: Any) -> str:
    """As it is written to a file."""
    return json.dumps(body, indent=1) + "\n"
