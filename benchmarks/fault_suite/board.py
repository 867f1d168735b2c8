"""The scoreboard: all results, what follows from them, and on what machine; saved as JSON."""

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from side_by_side import Lanes

from allready import __version__
from allready.errors import UsageError
from fault_suite.machine import missing
from fault_suite.play import Options, play
from fault_suite.result import Result
from fault_suite.scenario import Row

SCHEMA = "allready.scoreboard/1"


class NotShown(msgspec.Struct, frozen=True, kw_only=True):
    """A row that this machine cannot show, and why."""

    row: str
    title: str
    why: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Shares are of the faults that were played, 0 to 1; None without any."""

    num_faults: int
    num_controls: int
    num_not_played: int
    detected_share: float | None
    class_share: float | None
    culprit_share: float | None
    num_innocents_blamed: int
    num_false_alarms: int
    median_s: float | None  # from when the fault could be seen to the right verdict
    p90_s: float | None


class Scoreboard(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was played in one go."""

    schema: str = SCHEMA
    made: str
    versions: dict[str, str]
    num_cpus: int
    jobs: int = 1  # at a time, which share the processors
    seeds: tuple[int, ...]
    duration_s: float
    results: tuple[Result, ...]
    not_shown: tuple[NotShown, ...]
    summary: Summary


def versions() -> dict[str, str]:
    """Of the tool and of what it is measured with."""
    found = {"allready": __version__, "python": platform.python_version(), "kernel": platform.release()}
    for name in ("torch", "jax"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(-(-int(share * 1000) * len(ordered) // 1000), 1) - 1]


def summarize(results: Sequence[Result]) -> Summary:
    """What follows from the results."""
    played = [r for r in results if r.outcome != "not played"]
    faults, controls = [r for r in played if not r.control], [r for r in played if r.control]

    def share(test: Callable[[Result], bool]) -> float | None:
        return round(sum(map(test, faults)) / len(faults), 4) if faults else None

    times = [r.culprit_s for r in faults if r.culprit_s is not None]
    return Summary(
        num_faults=len(faults),
        num_controls=len(controls),
        num_not_played=len(results) - len(played),
        detected_share=share(lambda r: r.detected or r.ran),
        class_share=share(lambda r: r.class_right),
        culprit_share=share(lambda r: r.culprit_right),
        num_innocents_blamed=sum(bool(r.blamed_innocents) for r in faults),
        num_false_alarms=sum(r.outcome == "false alarm" for r in controls),
        median_s=round(statistics.median(times), 2) if times else None,
        p90_s=percentile(times, 0.9),
    )


def score(
    rows: Sequence[Row],
    seeds: Sequence[int],
    options: Options,
    *,
    jobs: int = 1,
    on_result: Callable[[Result], None] = lambda _result: None,
) -> Scoreboard:
    """Play every row with every seed, `jobs` at a time, each on processors of its own; those that this machine cannot
    show are listed with the reason.

    `on_result` is called after each, from the thread that played it.  Once `options.stop` is set no other scenario
    begins; the one under way is ended, and the scoreboard has only those that came to their end.
    """
    begun = time.monotonic()
    not_shown, shown = [], []
    for row in rows:
        why = next((why for need in row.needs if (why := missing(need)) is not None), None)
        if why is not None:
            not_shown.append(NotShown(row=row.id, title=row.title, why=why))
        else:
            shown.append(row)

    lanes = Lanes(max(jobs, 1))

    def one(task: tuple[Row, int]) -> Result | None:
        if options.stop.is_set():
            return None
        with lanes.one():
            result = play(*task, options)
        if options.stop.is_set():
            return None
        on_result(result)
        return result

    tasks = [(row, seed) for seed in seeds for row in shown]
    with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
        results = tuple(result for result in pool.map(one, tasks) if result is not None)
    return Scoreboard(
        made=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        versions=versions(),
        num_cpus=len(os.sched_getaffinity(0)),
        jobs=max(jobs, 1),
        seeds=tuple(seeds),
        duration_s=round(time.monotonic() - begun, 1),
        results=results,
        not_shown=tuple(not_shown),
        summary=summarize(results),
    )


def save(board: Scoreboard, path: Path) -> None:
    """Write it as JSON, whole or not at all.

    Raises:
        UsageError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(board), indent=1) + b"\n")
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def load(path: Path) -> Scoreboard:
    """A saved scoreboard.

    Raises:
        UsageError: not one, or of another version.
    """
    try:
        board = msgspec.json.decode(path.read_bytes(), type=Scoreboard)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is no scoreboard: {error}") from error
    if board.schema != SCHEMA:
        raise UsageError(f"{path} has schema {board.schema!r}, not {SCHEMA!r}")
    return board


def merged(boards: Sequence[Scoreboard]) -> Scoreboard:
    """Scoreboards of parts of the suite, played on one machine with one version of everything, as one.

    Args:
        boards: at least one.

    Raises:
        UsageError: they are of different machines or versions, or have played the same row with the same seed.
    """
    first = boards[0]
    results = tuple(result for board in boards for result in board.results)
    if any((board.versions, board.num_cpus) != (first.versions, first.num_cpus) for board in boards):
        raise UsageError("scoreboards of different machines or versions cannot be put together")
    played = [{(result.row, result.seed) for result in board.results} for board in boards]
    if len(set().union(*played)) < sum(map(len, played)):
        raise UsageError("a row was played twice with the same seed")
    rows = {result.row for result in results}
    not_shown = {other.row: other for board in boards for other in board.not_shown if other.row not in rows}
    return Scoreboard(
        made=max(board.made for board in boards),
        versions=first.versions,
        num_cpus=first.num_cpus,
        seeds=tuple(sorted({seed for board in boards for seed in board.seeds})),
        duration_s=round(sum(board.duration_s for board in boards), 1),
        results=results,
        not_shown=tuple(not_shown.values()),
        summary=summarize(results),
    )


def by_row(results: Sequence[Result]) -> Mapping[str, list[Result]]:
    """Results by row, in the order in which rows first appear."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.row, []).append(result)
    return found
