"""What `diagnose` and `diagnose --follow` share: options of the readers, refusals, the report."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from allready.cli.main import exit_code_of
from allready.errors import StatedError, UsageError
from allready.model.events import troubled
from allready.model.fill import said
from allready.text.usage import usage_text

if TYPE_CHECKING:
    from allready.cli.diagnose_judge import Question
    from allready.evidence.inputs import Found
    from allready.evidence.read import ReadOptions
    from allready.evidence.reading import Reading
    from allready.model import Report, SourceRecord


def read_options(args: argparse.Namespace) -> "ReadOptions":
    """What the readers are asked."""
    from allready.evidence.read import ReadOptions

    return ReadOptions(kinds=args.only or frozenset(), iteration_marker=args.iteration_marker)


def found_in(paths: Sequence[str], within: Sequence[str] | None) -> "Iterator[Found | SourceRecord]":
    """What there is to read; only what really lies below one of the folders `within`, where any is named."""
    from allready.evidence.inputs import Found, find
    from allready.model import SourceRecord

    roots = [os.path.realpath(folder) for folder in within or ()]
    for item in find(paths):
        real = os.path.realpath(item.path)
        if not within or any(os.path.commonpath((root, real)) == root for root in roots):
            yield item
        elif isinstance(item, Found):
            yield troubled(SourceRecord(path=item.label, kind="unread"), said("it lies outside of what may be read"))


def refuse_nothing(readings: "Sequence[Reading]", option: str = "") -> None:
    """Raises UsageError when none of what was named is there."""
    missing = [r.source for r in readings if r.source.kind == "missing"]
    if missing and len(missing) == len(readings):
        why = [StatedError(problem.form, **problem.values) for s in missing[:8] for problem in s.problems[:1]]
        named = [StatedError("{path}: {why}", path=s.path, why=one) for s, one in zip(missing, why, strict=False)]
        raise UsageError("{option}{missing}", option=option, missing=StatedError.all_of(named))


def _kind(kind: str) -> str:
    """What an input was that holds nothing to read, in the process's language."""
    words = {
        "special": usage_text("device or pipe"),
        "binary": usage_text("binary file"),
        "empty": usage_text("empty file"),
    }
    return words.get(kind, kind)


def report_on(
    readings: "Sequence[Reading]", question: "Question", args: argparse.Namespace, *, started: datetime
) -> "tuple[Report, int]":
    """The report and the exit code; writes the trace when one is wanted."""
    from allready.cli.diagnose_judge import is_readable, judge_readings

    report, after = judge_readings(readings, question, started=started)
    if not is_readable(readings):
        kinds = {r.source.kind for r in readings}
        what = ", ".join(sorted(map(_kind, kinds)))
        text = usage_text("nothing to read a verdict from in the input (found: {kinds})", kinds=what or "-")
        sys.stderr.write(f"allready diagnose: {text}\n")
    if args.trace:
        from allready.evidence.trace import write_trace

        assert report.summary is not None
        try:
            write_trace(args.trace, report.summary, after, [d for r in readings for d in r.dumps])
        except OSError as error:
            raise UsageError("--trace {trace}: {reason}", trace=args.trace, reason=error.strerror or error) from error
    return report, exit_code_of(report.status)
