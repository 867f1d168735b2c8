"""Measured curves as files: nccl-tests' JSON (read: versions 1 to 3, which began with 2.17.3; written: 3), CSV, our own
report.json.

The names in nccl-tests' JSON are those that its `-J FILE` writes (src/util.cu, 2.19): a result has `size` (bytes),
`count` (elements), `type`, `redop`, `root` and, for `out_of_place` and `in_place`, `time` (microseconds), `alg_bw`,
`bus_bw` (GB/s), `nwrong`; of a form that was not measured, null.  A form's `..._per_iter` has the single times of every
process and, of each iteration, the longest (`times_us`), which its quantiles are of; where a report has no single
times (very many iterations, a CUDA graph, an older version of ours), those of the rank with the greatest median.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from allready.errors import UsageError
from allready.json_bounds import TooLargeError, decode_within
from allready.model import SCHEMA, BenchForm, BenchPoint, BenchSpread, CollectiveRun, Report, spread_of
from allready.model.operations import DTYPE_BYTES, OPERATIONS

VERSION = 3
_TIME = "%Y-%m-%d %H:%M:%S"
_WARMUP = 5
MAX_BYTES = 1 << 28
_NOT_OURS = (
    msgspec.MsgspecError, TooLargeError, RecursionError, ValueError, TypeError, KeyError, AttributeError, OverflowError,
)  # fmt: skip
"""What reading a file of another shape raises."""
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


class _OtherOperationError(ValueError):
    """The message is the program's name."""


class Curves(Struct, frozen=True, kw_only=True):
    """What one run measured."""

    name: str
    points: tuple[BenchPoint, ...]
    num_ranks: int | None = None


def count_of(point: BenchPoint, num_ranks: int) -> int:
    """Elements as nccl-tests counts them: of one rank's part, where the operation's buffers are split."""
    elements = point.size_bytes // DTYPE_BYTES[point.dtype]
    return elements // num_ranks if OPERATIONS[point.operation].is_split else elements


class RequestedRun(Struct, frozen=True, kw_only=True):
    """What a run was asked for, as far as its report does not say it."""

    args: tuple[str, ...] = ()
    factor: int = 2
    step_bytes: int = 0  # 0: by the factor
    num_iterations: int | None = None
    num_warmup: int | None = None


def nccl_json(report: Report, asked: RequestedRun) -> dict[str, Any]:
    """The first run of a report in the shape of nccl-tests' JSON, operation after operation."""
    run = report.collectives.runs[0] if report.collectives is not None else None
    points = run.points if run is not None else ()
    ranks = run.ranks if run is not None else ()
    wrong = sum(p.num_errors + (p.other_form.num_errors if p.other_form else 0) for p in points)
    busbw = [form.busbw_gb_per_s for p in points for form in (p, p.other_form) if form is not None]
    started = datetime.fromisoformat(report.started)
    step = {"step_bytes": asked.step_bytes} if asked.step_bytes else {"step_factor": asked.factor}
    return {
        "version": VERSION,
        "start_time": started.strftime(_TIME),
        "args": list(asked.args),
        "env": [f"{name}={value}" for name, value in sorted(_variables(report).items())],
        "nccl_version": _nccl_version(report) if run is not None and run.backend == "nccl" else 0,
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "minimum_bytes": min((p.size_bytes for p in points), default=0),
            "maximum_bytes": max((p.size_bytes for p in points), default=0),
            **step,
            "warmup_iters": _WARMUP if asked.num_warmup is None else asked.num_warmup,
            "iterations": asked.num_iterations or max((p.num_iterations for p in points), default=0),
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": int(run is not None and run.is_graph),
            "blocking_collectives": "false",
            "per_iter_timing": "true" if any(p.spread is not None for p in points) else "false",
            "per_iter_skip": 0,
            "parallel_init": "false",
            "devices": _devices(report, ranks, run.pids if run is not None else {}),
        },
        "results": [_result(p, len(ranks), in_place=run is None or run.backend != "jax") for p in points],
        "out_of_bounds": {"count": wrong, "okay": "true" if wrong == 0 else "false"},
        "average_bus_bandwidth": {"bandwidth": sum(busbw) / len(busbw) if busbw else 0.0, "okay": "unchecked"},
        "errors": [],
        "end_time": (started + timedelta(seconds=report.duration_s)).strftime(_TIME),
    }


def _devices(report: Report, ranks: Iterable[int], pids: Mapping[int, int]) -> list[dict[str, Any]]:
    """The ranks with their GPUs, by what each node reported of itself."""
    at = {r: (node.node_rank, node.name, i) for node in report.world.nodes for i, r in enumerate(node.ranks)}
    found = []
    for rank in ranks:
        node, name, local = at.get(rank, (-1, "", 0))
        gpu = _gpu(report.facts.get(node, {}).get("gpu"), local)
        found.append(
            {
                "rank": rank,
                "group": 0,
                "pid": pids.get(rank, 0),
                "hostname": name,
                "device": local,
                "device_hex": _bus_id(str(gpu.get("pci_bus_id", ""))),
                "device_info": str(gpu.get("name", "CPU")),
            }
        )
    return found


def _gpu(facts: Any, local: int) -> Mapping[str, Any]:
    """The GPU of a local rank; nothing where there is none."""
    gpus, visible = (facts.get("gpus") or [], facts.get("visible") or []) if isinstance(facts, dict) else ([], [])
    index = visible[local] if local < len(visible) else None
    return next((g for g in gpus if isinstance(g, dict) and g.get("index") == index), {})


def _bus_id(text: str) -> str:
    """00000000:3B:00.0 as nccl-tests writes it: domain, bus and device."""
    match = re.fullmatch(r"0*([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.[0-7]", text)
    return ":".join(match.groups()).lower() if match else text


def _variables(report: Report) -> Mapping[str, str]:
    """The environment of node 0, as far as the report has it."""
    env = report.facts.get(0, {}).get("env", {})
    found = env.get("variables", {}) if isinstance(env, dict) else {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


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
    if point.other_form is not None and point.other_form.times_s:
        found[f"{other}_per_iter"] = _per_iteration(point.other_form.times_s, None)
    if point.spread is not None:
        found[f"{place}_per_iter"] = _per_iteration(point.times_s, point.spread)
    found["actual_iterations"] = point.num_iterations
    found["experiment_name"] = _PROGRAMS[point.operation]
    return found


def _per_iteration(times_s: Sequence[Sequence[float]], spread: BenchSpread | None) -> dict[str, Any]:
    """By the longest of each iteration; where single times are not there, `spread`, without what it does not have."""
    longest_s = [max(each) for each in zip(*times_s, strict=True)]
    spread = spread_of(longest_s) if longest_s else spread
    assert spread is not None
    mean_s = spread.mean_s
    values = {
        "min_us": spread.min_s,
        "max_us": spread.max_s,
        "avg_us": mean_s,
        "p50_us": spread.median_s,
        "p95_us": spread.p95_s,
        "p99_us": spread.p99_s,
        "stdev_us": None if mean_s is None else spread.cv_share * mean_s,
    }
    found: dict[str, Any] = {"skipped_iterations": 0}
    found |= {name: value * 1e6 for name, value in values.items() if value is not None}
    found["cv_pct"] = spread.cv_share * 100
    if longest_s:
        found["times_us"] = _microseconds(longest_s)
    if len(times_s) > 1:
        found["per_process_max_times_us"] = [_microseconds(each) for each in times_s]
    return found


def _microseconds(times_s: Iterable[float]) -> list[float]:
    return [round(t * 1e6, 3) for t in times_s]


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
        if path.stat().st_size > MAX_BYTES:
            raise UsageError("{path}: too large for measured curves", path=path)
        body = decode_within(MAX_BYTES, path.read_bytes())
        return _curves(body, path.stem)
    except OSError as error:
        raise UsageError("{path}: {reason}", path=path, reason=error.strerror or error) from error
    except _OtherOperationError as error:
        raise UsageError(
            "{path}: {program} measures an operation that bench does not have", path=path, program=error
        ) from error
    except _NOT_OURS as error:
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
    found: dict[tuple[str, str, int], BenchPoint] = {}
    for result in sorted(body["results"], key=_is_unusual):
        for point in _points(result, operation):
            found.setdefault((point.operation, point.dtype, point.size_bytes), point)
    if not found:
        raise ValueError("nothing was measured")
    return Curves(name=name, points=tuple(found.values()), num_ranks=_num_ranks(body))


def _is_unusual(result: Mapping[str, Any]) -> bool:
    """Another reduction than a sum: of one size, the sum counts."""
    return result.get("redop") not in {None, "sum", "none"}


def _num_ranks(body: Mapping[str, Any]) -> int | None:
    """nccl-tests lists the first device of each process; each has `nthreads` times `ngpus`."""
    config = body.get("config") or {}
    devices = config.get("devices") or body.get("devices") or ()
    return len(devices) * int(config.get("nthreads") or 1) * int(config.get("ngpus") or 1) or None


def _operation_of(body: Mapping[str, Any]) -> str | None:
    """By the program's name: nccl-tests leaves that of a row empty.  None where it is no program of nccl-tests."""
    args = body.get("args")
    return _operation_named(args[0]) if isinstance(args, list) and args else None


def _operation_named(text: Any) -> str | None:
    """Raises _OtherOperationError: a program of nccl-tests whose operation we do not have."""
    words = re.findall(r"[a-z_]+_perf", str(text))
    if not words:
        return None
    operation = next((op for op, name in _PROGRAMS.items() if words[-1] == name), None)
    if operation is None:
        raise _OtherOperationError(words[-1])
    return operation


def _points(result: Mapping[str, Any], usual: str | None) -> Iterable[BenchPoint]:
    """A row of nccl-tests; the faster form where it measured both, as its users quote it.

    Raises:
        ValueError, TypeError, KeyError: it is none, or of an operation that we do not know.
    """
    forms = [(k, result[k]) for k in ("out_of_place", "in_place") if isinstance(result.get(k), dict)]
    if not forms or int(result["size"]) == 0:
        return
    operation = _operation_named(result.get("experiment_name")) or usual
    if operation is None:
        raise ValueError("nothing says which operation it is")
    place, best = min(forms, key=lambda form: _time_s(form[1]))
    per = result.get(f"{place}_per_iter")
    other = next((form for form in forms if form[0] != place), None)
    theirs = str(result.get("type"))
    yield BenchPoint(
        size_bytes=_whole(result["size"]),
        time_s=_time_s(best),
        algbw_gb_per_s=_number(best["alg_bw"]),
        busbw_gb_per_s=_number(best["bus_bw"]),
        num_errors=_whole(best.get("nwrong") or 0),
        num_iterations=_whole(result.get("actual_iterations") or 0),
        operation=operation,
        dtype=next((ours for ours, name in _TYPES.items() if name == theirs), theirs),
        spread=_spread(per) if isinstance(per, dict) else None,
        other_form=None if other is None else _other(*other, result),
        times_s=_times_s(per),
    )


def _other(place: str, form: Mapping[str, Any], result: Mapping[str, Any]) -> BenchForm:
    return BenchForm(
        in_place=place == "in_place",
        time_s=_time_s(form),
        algbw_gb_per_s=_number(form["alg_bw"]),
        busbw_gb_per_s=_number(form["bus_bw"]),
        num_errors=_whole(form.get("nwrong") or 0),
        times_s=_times_s(result.get(f"{place}_per_iter")),
    )


def _time_s(form: Mapping[str, Any]) -> float:
    return _number(form.get("time", form.get("cpu_time"))) / 1e6


def _times_s(per: Any) -> tuple[tuple[float, ...], ...]:
    """Single iterations of each process; of one alone, nccl-tests writes them as those of all."""
    if not isinstance(per, dict):
        return ()
    rows = per.get("per_process_max_times_us") or ([per["times_us"]] if per.get("times_us") else [])
    return tuple(tuple(_number(t) / 1e6 for t in row) for row in rows)


def _number(value: Any) -> float:
    """Never less than nothing, and never without end; nccl-tests writes "nan" as a word."""
    found = float(value)
    if not 0 <= found < math.inf:
        raise ValueError(f"{found} is no measurement")
    return found


def _whole(value: Any) -> int:
    return int(_number(value))


def _spread(per: Mapping[str, Any]) -> BenchSpread:
    def seconds(name: str) -> float:
        return _number(per[name]) / 1e6

    return BenchSpread(
        min_s=seconds("min_us"),
        median_s=seconds("p50_us"),
        p95_s=seconds("p95_us") if "p95_us" in per else None,
        p99_s=seconds("p99_us"),
        max_s=seconds("max_us"),
        mean_s=seconds("avg_us") if "avg_us" in per else None,
        cv_share=_number(per["cv_pct"]) / 100,
    )


def json_text(body: Any) -> str:
    """As it is written to a file."""
    return json.dumps(body, indent=1) + "\n"
