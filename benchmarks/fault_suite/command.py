"""`python benchmarks/fault_suite`: plays the suite and prints how often, and how soon, `allready run` was right."""

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from allready.cli.interrupts import noted_signals
from allready.cli.options import count
from allready.errors import AllreadyError, UsageError
from allready.text.catalog import choose_language
from fault_suite.labels import label

if TYPE_CHECKING:
    from fault_suite.board import Scoreboard
    from fault_suite.result import Result
    from fault_suite.scenario import Row

_ALL_RIGHT, _MISSES, _USAGE, _NOT_PLAYED = 0, 1, 2, 3
DOCS = Path(__file__).resolve().parents[2] / "docs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--core", action="store_true", help="the 24 core rows and the controls (default)")
    which.add_argument("--standard", action="store_true", help="the 48 standard rows and the controls")
    which.add_argument("--all", action="store_true", help="every row")
    which.add_argument("--controls", action="store_true", help="only the jobs in which nothing is wrong")
    which.add_argument("--only", metavar="IDS", help="only these rows, for example B02,C01,K4")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seeds", type=count, metavar="N", help="seeds 0 to N - 1 (default: 1)")
    seeds.add_argument("--seed", type=int, metavar="S", help="only this seed")
    parser.add_argument(
        "--jobs", type=count, default=1, metavar="N", help="scenarios at a time, each with its share of CPUs"
    )
    parser.add_argument("--json", metavar="FILE", help="save the scoreboard there (- for standard output)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save it as a page, too")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("lab-score"),
        metavar="DIR",
        help="reports, logs and truth of every scenario (default: %(default)s)",
    )
    parser.add_argument("--discard", action="store_true", help="keep only the folders of scenarios that were not right")
    parser.add_argument("--list", action="store_true", help="print the rows and whether this machine can show them")
    parser.add_argument(
        "--publish", nargs="+", type=Path, metavar="FILE", help="play nothing: write docs/scoreboard.md from saved ones"
    )
    parser.add_argument("--lang", choices=("en", "zh"), help="language of the messages (default: from the locale)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 2 for wrong usage, 3 where this machine cannot play, else the code of `run`."""
    parser = argparse.ArgumentParser(prog="fault_suite", description=__doc__, allow_abbrev=False)
    add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        if args.publish:
            from fault_suite.page import publish

            publish(args.publish, DOCS)
            return _ALL_RIGHT
        return run(args, choose_language(args.lang))
    except AllreadyError as error:
        sys.stderr.write(f"fault_suite: {error}\n")
        return _USAGE if isinstance(error, UsageError) else _NOT_PLAYED


def run(args: argparse.Namespace, language: str) -> int:
    """Play, print, save.  Exit code 0: all right; 1: misses, wrong verdicts or false alarms; 3: some were not played.

    SIGINT, SIGTERM and SIGHUP end the scenario under way, with its job and its lab; what was played is saved, and the
    exit code is 128 + N.

    Raises:
        UsageError: no such row, or a file that cannot be written.
    """
    from fault_suite import board
    from fault_suite.play import Options
    from fault_suite.rows import choose

    which = next((w for w in ("standard", "all", "controls") if getattr(args, w)), "core")
    rows = choose(which, [name.strip() for name in (args.only or "").split(",") if name.strip()])
    if args.list:
        return _list(rows, language)
    seeds = [args.seed] if args.seed is not None else list(range(args.seeds or 1))
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {args.out}: {error.strerror}") from error
    lock = threading.Lock()

    def on_result(result: "Result") -> None:
        with lock:
            print(result_line(result, language), file=sys.stderr, flush=True)

    options = Options(out=args.out.absolute(), keep=not args.discard)
    ending = f"{label('ending', language)}\n".encode()

    def end(_number: int) -> None:
        is_first = not options.stop.is_set()
        options.stop.set()
        if is_first:
            with contextlib.suppress(OSError):
                os.write(2, ending)  # in the middle of anything: no stream may be used here

    with noted_signals(end) as caught:
        made = board.score(rows, seeds, options, jobs=args.jobs, on_result=on_result)
    board.save(made, args.out / "scoreboard.json")
    if args.json == "-":
        sys.stdout.write((args.out / "scoreboard.json").read_text(encoding="utf-8"))
    elif args.json:
        board.save(made, Path(args.json))
    if args.markdown is not None:
        _write_page(made, args.markdown, language)
    if args.json != "-":
        _print(made, language)
    if caught:
        return 128 + caught[0]
    if any(not r.passed and r.outcome != "not played" for r in made.results):
        return _MISSES
    return _NOT_PLAYED if made.summary.num_not_played or not made.results else _ALL_RIGHT


def result_line(result: "Result", language: str) -> str:
    """One scenario in one line."""
    outcome = label(f"is_{result.outcome.replace(' ', '_')}", language)
    after = "" if result.culprit_s is None else f" {result.culprit_s:.1f} s"
    words = [f"{result.row:5} {result.seed}  {outcome}{after}", result.victim, result.dose, result.code]
    words += [f"! {', '.join(result.blamed_innocents)}"] if result.blamed_innocents else []
    words += [result.problem] if result.problem else []
    return "  ".join(word for word in words if word)


def _list(rows: "Sequence[Row]", language: str) -> int:
    from fault_suite.machine import missing

    for row in rows:
        why = next((why for need in row.needs if (why := missing(need)) is not None), None)
        note = "" if why is None else f"  ({label('not_here', language)}: {why})"
        print(f"{row.id:5} {row.title}{note}")
    return _ALL_RIGHT


def _write_page(made: "Scoreboard", path: Path, language: str) -> None:
    from fault_suite.page import page

    try:
        path.write_text(page(made, language), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--markdown {path}: {error.strerror}") from error


def _print(made: "Scoreboard", language: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from fault_suite.board import by_row
    from fault_suite.page import summary_rows, timeout_words

    # A pipe gets whole lines: a table that is cut at 80 columns cannot be searched.
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160, highlight=False)
    table = Table(box=None, pad_edge=False)
    for name in ("row", "fault", "right", "time", "default"):
        table.add_column(label(name, language))
    for results in by_row(made.results).values():
        played = [r for r in results if r.outcome != "not played"]
        times = sorted(r.culprit_s for r in played if r.culprit_s is not None)
        times_text = f"{times[len(times) // 2]:.1f} s / {times[-1]:.1f} s" if times else ""
        table.add_row(
            results[0].row,
            results[0].title,
            f"{sum(r.passed for r in played)}/{len(played)}",
            times_text,
            timeout_words(results[0], language),
        )
    console.print(table)
    console.print()
    for name, value in summary_rows(made.summary, language):
        console.print(f"{name}: {value}", markup=False)
    for row in made.not_shown:
        console.print(f"{row.row} {label('not_here', language)}: {row.why}", markup=False)
    console.print(", ".join(f"{name} {version}" for name, version in made.versions.items()), markup=False)
