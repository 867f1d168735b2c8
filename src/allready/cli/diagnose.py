"""`allready diagnose`: whatever is left of a run -> the rank or node at fault, the cause, and what to do."""

import argparse
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from allready.cli.diagnose_common import read_options, refuse_nothing, report_on
from allready.cli.diagnose_time import since
from allready.cli.interrupts import Interrupts
from allready.cli.main import EXIT_UNCHECKED
from allready.cli.options import add_both_spellings, add_common, configure_logging, count, positive_s
from allready.errors import UsageError
from allready.model.numbers import numbers_in
from allready.text.usage import usage_text

if TYPE_CHECKING:
    from allready.cli.diagnose_judge import Question
    from allready.cli.output import Output
    from allready.evidence.read import ReaderPool, ReadingProgress
    from allready.evidence.reading import Reading

KINDS = ("log", "flight", "ras", "stacks", "nccl-tests", "inspector", "error", "report", "events")
_KIND_NAMES = {"flight": "flight recorder", "error": "elastic error", "events": "event log"}

_SHOW_S = 0.1  # thousands of files tell of themselves each second
_QUIET_S = 1.0
"""Reading that takes less says nothing of how far it is."""

_BAR = 20
_MAX_RANKS = 1_000_000

EPILOG = """\
Give it every file of the run, in any mixture; the kind of a file is detected from its content:
  allready diagnose run-folder/
  allready diagnose nccl.*.log torchrun.out nccl_trace_rank_* dmesg.txt
  allready diagnose logs-of-all-nodes.tar.gz
  kubectl logs -l job=train --prefix --timestamps | allready diagnose -
  allready diagnose --baseline good-run/ bad-run/
  allready diagnose --explain-line 'NCCL WARN Bootstrap : no socket interface found'
Exit codes: 0 healthy, 1 fault, 2 usage, 3 no decisive evidence.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `diagnose`."""
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="files, folders, glob patterns, archives; - for standard input"
    )
    what = parser.add_argument_group("what to read")
    what.add_argument(
        "--since",
        type=since,
        metavar="TIME",
        help="ignore earlier lines: 2026-11-20 11:51, 11:51, or 10m before the end of the evidence",
    )
    what.add_argument("--rank", type=ranks, metavar="LIST", help="show only output of these ranks: 0,2,5-7")
    what.add_argument(
        "--only", type=kinds, metavar="KINDS", help=f"read only sources of these kinds: {','.join(KINDS)}"
    )
    add_both_spellings(
        what,
        "iteration-marker",
        type=marker,
        metavar="REGEX",
        help=r"regular expression whose group is the iteration number in the log: 'global_step=(\d+)'",
    )
    what.add_argument(
        "--within", action="append", metavar="DIR", help="read nothing outside of DIR, also not through links"
    )
    what.add_argument("--baseline", metavar="GOOD", help="folder or file of a good run to compare with")
    how = parser.add_argument_group("how to read")
    how.add_argument("--explain-line", metavar="TEXT", help="explain one log line (- to read it) and exit")
    how.add_argument("--follow", action="store_true", help="keep reading as files grow, until Ctrl-C")
    add_both_spellings(
        how, "until-idle", type=positive_s, metavar="S", help="with --follow: exit after S seconds without new input"
    )
    how.add_argument(
        "--jobs", type=count, metavar="N", help="maximum number of worker processes (default: CPUs, up to 8)"
    )
    how.add_argument("--trace", metavar="FILE", help="write a timeline for Perfetto or chrome://tracing to FILE")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Diagnose; the exit code is the contract's."""
    with Interrupts(exit_code=EXIT_UNCHECKED):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    if args.explain_line is not None:
        if args.paths:
            raise UsageError("--explain-line takes no files: give one or the other")
        from allready.cli.diagnose_explain import explain

        return explain(args)
    if not args.paths:
        raise UsageError("name files, folders or archives of a run (- for standard input), or use --explain-line TEXT")
    if args.within and (args.follow or "-" in args.paths):
        raise UsageError("--within goes with files and folders, not with --follow or standard input")
    if args.follow and (args.baseline or "-" in args.paths):
        raise UsageError("--follow goes with files and folders, not with --baseline or standard input")
    if args.until_idle and not args.follow:
        raise UsageError("--until-idle goes with --follow")
    configure_logging(args.verbose)
    if args.follow:
        from allready.cli.diagnose_follow import follow

        return follow(args)
    return _once(args)


def _once(args: argparse.Namespace) -> int:
    from allready.cli.diagnose_common import found_in
    from allready.evidence.read import ReaderPool

    started = datetime.now(UTC)
    # Workers first: they start fastest while this process has one thread, and the output may start another.
    with ReaderPool(found_in(args.paths, args.within), options=read_options(args), workers=args.jobs) as pool:
        from allready.cli.output import Output, check_writable  # here and in what follows: loaded while they read

        with Output(args) as output:
            if args.trace:
                check_writable("--trace", Path(args.trace))
            _load_what_comes_next()
            readings = read(pool, output, quiet=args.quiet)
            refuse_nothing(readings)
            question = _question(args)
            report, code = report_on(readings, question, args, started=started)
            output.finish(report)
    return code


def _question(args: argparse.Namespace) -> "Question":
    from allready.cli.diagnose_judge import Question, run_evidence_of

    good = None
    if args.baseline:
        from allready.cli.diagnose_common import found_in
        from allready.evidence.read import read_all

        readings = read_all(found_in([args.baseline], args.within), options=read_options(args), workers=args.jobs)
        refuse_nothing(readings, option="--baseline ")
        good = run_evidence_of(readings, Question(ranks=args.rank))
    return Question(since=args.since, ranks=args.rank, baseline=good, baseline_name=args.baseline)


def read(pool: "ReaderPool", output: "Output", *, quiet: bool) -> "list[Reading]":
    """Read everything, with a bar on a terminal."""
    begun = time.monotonic()
    shown_s = 0.0

    def show(progress: "ReadingProgress") -> None:
        nonlocal shown_s
        elapsed_s = time.monotonic() - begun
        if quiet or elapsed_s < _QUIET_S:
            return
        if elapsed_s - shown_s < _SHOW_S and progress.done_bytes != progress.total_bytes:
            return
        shown_s = elapsed_s
        key, values = progress_values(progress.done_bytes, progress.total_bytes, elapsed_s)
        output.narrator.say(key, **values)

    return pool.read(show)


def _load_what_comes_next() -> None:
    import allready.cli.diagnose_judge
    import allready.evidence.digest
    import allready.judging.assemble  # noqa: F401
    from allready.judging.loading import load_for_files

    load_for_files()


def progress_values(done_bytes: int, total_bytes: int | None, elapsed_s: float) -> tuple[str, dict[str, object]]:
    """Which text of progress, and its values."""
    from allready import units

    rate = done_bytes / elapsed_s if elapsed_s > 0 else 0.0
    values: dict[str, object] = {"done": units.size(done_bytes), "rate": units.size(rate)}
    if not total_bytes:
        return "diagnose.reading_open", values
    share = min(1.0, done_bytes / total_bytes)
    filled = round(share * _BAR)
    values["bar"] = "[" + "#" * filled + "." * (_BAR - filled) + "]"
    values["total"] = units.size(total_bytes)
    values["left"] = units.time(max(0.0, total_bytes - done_bytes) / rate if rate else None)
    return "diagnose.reading", values


def ranks(text: str) -> frozenset[int]:
    """`0,2,5-7`."""
    found = numbers_in(text, below=_MAX_RANKS)
    if found is None:
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a list of ranks; write 0,2,5-7", text=text))
    return found


def kinds(text: str) -> frozenset[str]:
    """Names of kinds, separated by commas."""
    asked = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in asked if part not in KINDS]
    if unknown or not asked:
        raise argparse.ArgumentTypeError(
            usage_text(
                "{names!r} is no kind of source; there are: {known}",
                names=", ".join(unknown) or text,
                known=", ".join(KINDS),
            )
        )
    return frozenset(_KIND_NAMES.get(part, part) for part in asked)


def marker(text: str) -> str:
    """A regular expression with a group."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            usage_text("{text!r} is not a regular expression: {error}", text=text, error=error)
        ) from error
    if not pattern.groups:
        raise argparse.ArgumentTypeError(
            usage_text(r"{text!r} has no group for the number; write for example 'step (\d+)'", text=text)
        )
    return text
