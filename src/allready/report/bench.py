"""What a sweep measured, as tables and as named curves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from allready import units
from allready.judging.pair_matrix import by_rail
from allready.model import BenchPoint, CollectiveRun, Collectives, PairPoint
from allready.model.operations import OPERATIONS
from allready.report.safe import plain

LEVELS = (0.95, 0.88, 0.7, 0.4)
"""Shares of the typical rate at which a cell of the matrix gets another colour."""
MAX_MATRIX, MAX_RAILS = 32, 16

Cell = Callable[[BenchPoint], str]
PLAIN: Sequence[tuple[str, Cell]] = (
    ("bench_size", lambda p: units.size(p.size_bytes)),
    ("bench_time", lambda p: units.time(p.time_s)),
    ("bench_algbw", lambda p: units.bandwidth(p.algbw_gb_per_s)),
    ("bench_busbw", lambda p: units.bandwidth(p.busbw_gb_per_s)),
    ("bench_errors", lambda p: str(p.num_errors)),
)
"""Key of the title, and the cell of a row."""
RICH: Sequence[tuple[str, Cell]] = (
    *PLAIN,
    ("bench_iterations", lambda p: str(p.num_iterations)),
    ("bench_median", lambda p: units.time(p.spread.median_s) if p.spread else ""),
    ("bench_p99", lambda p: units.time(p.spread.p99_s) if p.spread else ""),
    ("bench_cv", lambda p: f"{p.spread.cv_share:.0%}" if p.spread else ""),
    ("bench_slowest", lambda p: "" if p.slowest_rank is None else str(p.slowest_rank)),
)
ALGORITHM: tuple[str, Cell] = ("bench_algorithm", lambda p: plain(f"{p.algorithm} {p.protocol}", most=40))
IN_PLACE: Sequence[tuple[str, Cell]] = (
    ("bench_time_in_place", lambda p: units.time(p.other_form.time_s) if p.other_form else ""),
    ("bench_busbw_in_place", lambda p: units.bandwidth(p.other_form.busbw_gb_per_s) if p.other_form else ""),
)
OUT_OF_PLACE: Sequence[tuple[str, Cell]] = (
    ("bench_time_out_of_place", IN_PLACE[0][1]),
    ("bench_busbw_out_of_place", IN_PLACE[1][1]),
)
"""The other form, where both were measured."""
"""Of a benchmark, which keeps how the single iterations differ."""


class OperationTable(Struct, frozen=True, kw_only=True):
    """The rows of one operation; `title` is empty where there is only all_reduce, as in a check.

    form: key of the form of the operation that was timed, in place or out of place; "" where there is no title.
    """

    title: str
    form: str = ""
    points: tuple[BenchPoint, ...]
    columns: Sequence[tuple[str, Cell]]

    def cells(self, point: BenchPoint) -> tuple[str, ...]:
        """One row."""
        return tuple(cell(point) for _, cell in self.columns)


class PairMatrix(Struct, frozen=True, kw_only=True):
    """Pairs of ranks as a table: senders down, receivers across; a cell is its text and its level, 0 is best.

    title, note: keys of what it is called, and of how it is read.  rail: the network, where there are several.
    """

    title: str
    note: str
    rail: str = ""
    members: tuple[int, ...]
    rows: tuple[tuple[tuple[str, int], ...], ...]


def pair_matrices(run: CollectiveRun) -> tuple[PairMatrix, ...]:
    """The matrices of `bench pairs`, as far as they can be shown: bandwidth, then latency where it was measured."""
    return tuple(m for rail, pairs in list(by_rail(run.pairs).items())[:MAX_RAILS] for m in _of_rail(rail, pairs))


def _of_rail(rail: str, pairs: Sequence[PairPoint]) -> Iterable[PairMatrix]:
    members = tuple(sorted({p.sender for p in pairs} | {p.receiver for p in pairs}))[:MAX_MATRIX]
    rates = {(p.sender, p.receiver): p.gb_per_s for p in pairs}
    times = {(p.sender, p.receiver): p.latency_s for p in pairs}
    shown = plain(rail, most=40)
    yield replace(_matrix("pairs_title", "pairs_note", members, rates, units.bandwidth, is_rate=True), rail=shown)
    if any(time_s is not None for time_s in times.values()):
        yield replace(_matrix("latency_title", "latency_note", members, times, units.time, is_rate=False), rail=shown)


def _matrix(
    title: str,
    note: str,
    members: Sequence[int],
    values: Mapping[tuple[int, int], float | None],
    show: Callable[[float], str],
    *,
    is_rate: bool,
) -> PairMatrix:
    known = [value for value in values.values() if value]
    typical = median(known) if known else 1.0

    def cell(a: int, b: int) -> tuple[str, int]:
        if a == b or (a, b) not in values:
            return "", 0
        value = values[a, b]
        if value is None:
            return "✗", len(LEVELS)
        share = value / typical if is_rate else typical / max(value, 1e-9)
        return show(value), sum(share < level for level in LEVELS)

    rows = tuple(tuple(cell(a, b) for b in members) for a in members)
    return PairMatrix(title=title, note=note, members=tuple(members), rows=rows)


def tables(run: CollectiveRun) -> tuple[OperationTable, ...]:
    """The tables of a run, operation by operation."""
    found = []
    for operation in dict.fromkeys(p.operation for p in run.points):
        points = tuple(p for p in run.points if p.operation == operation)
        is_rich = any(p.spread is not None for p in points)
        title = f"{plain(operation, most=40)} · {plain(points[0].dtype, most=20)}" if is_rich else ""
        columns = RICH if is_rich else PLAIN
        if all(p.slowest_rank is None for p in points):
            columns = [c for c in columns if c[0] != "bench_slowest"]
        if any(p.algorithm for p in points):
            columns = [*columns, ALGORITHM]
        other = next((p.other_form for p in points if p.other_form is not None), None)
        if other is not None:
            columns = [*columns, *(IN_PLACE if other.in_place else OUT_OF_PLACE)]
        if is_rich and run.path != "torch":
            title += f" · {plain(run.path, most=20)}"
        if is_rich and run.is_graph:
            title += " · CUDA graph"
        in_place = OPERATIONS[operation].in_place and run.backend != "jax" if operation in OPERATIONS else None
        form = "" if not is_rich or in_place is None else "bench_in_place" if in_place else "bench_out_of_place"
        found.append(OperationTable(title=title, form=form, points=points, columns=columns))
    return tuple(found)


def best(points: Iterable[BenchPoint]) -> BenchPoint | None:
    """The point with the highest busbw of the first operation, which is all_reduce where it was measured."""
    points = list(points)
    if not points:
        return None
    first = [p for p in points if p.operation == points[0].operation]
    return max(first, key=lambda p: p.busbw_gb_per_s, default=None)


def series(collectives: Collectives) -> list[tuple[str, tuple[BenchPoint, ...]]]:
    """Named curves: every operation of every run, then the baseline and the runs to draw beside it."""
    runs = [r for r in collectives.runs if r.points]
    found: list[tuple[str, tuple[BenchPoint, ...]]] = []
    measured: set[str] = set()
    for run in runs:
        name = run.backend if run.label == "all" else f"{run.label} · {run.backend}"
        found += _by_operation(name, run.points)
        measured.update(p.operation for p in run.points)
    others = dict(collectives.overlays)
    if collectives.baseline:
        others = {collectives.baseline_source or "baseline": collectives.baseline} | others
    for name, points in others.items():
        found += _by_operation(name, [p for p in points if p.operation in measured], always=True)
    return found


def _by_operation(
    name: str, points: Sequence[BenchPoint], *, always: bool = False
) -> list[tuple[str, tuple[BenchPoint, ...]]]:
    operations = [o for o in OPERATIONS if any(p.operation == o for p in points)]
    is_named = always or len(operations) > 1 or any(p.spread is not None for p in points)
    return [
        (plain(f"{o} · {name}" if is_named else name, most=80), tuple(p for p in points if p.operation == o))
        for o in operations
    ]
