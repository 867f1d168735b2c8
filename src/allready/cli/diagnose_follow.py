"""`allready diagnose --follow`: the verdict over files that still grow, shown again whenever it changes."""

import argparse
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from allready.cli.diagnose_common import read_options, refuse_nothing, report_on
from allready.cli.diagnose_judge import Question
from allready.text.catalog import choose_language

if TYPE_CHECKING:
    from allready.model import Report

POLL_S = 0.5
"""Between two polls of the files."""

REST_FACTOR = 4.0
"""Judging takes at most one part in so many of the time."""


def follow(args: argparse.Namespace) -> int:
    """Read, judge, wait for more.

    Ends on Ctrl-C, or when nothing came for --until-idle; the exit code is that of the last verdict.
    """
    from allready.cli.output import Output
    from allready.evidence.growth import Growth
    from allready.evidence.inputs import find
    from allready.report import terminal

    language = choose_language(args.lang)
    started = datetime.now(UTC)
    growth = Growth(lambda: find(args.paths), read_options(args))
    question = Question(since=args.since, ranks=args.rank)
    report: Report | None = None
    code = 0
    shown: object = None
    with Output(args) as output:
        growth.poll()
        refuse_nothing(growth.readings())
        is_new, changed_at, next_judging = True, time.monotonic(), 0.0
        try:
            output.narrator.log("diagnose.following", num_files=growth.num_files)
            while True:
                now = time.monotonic()
                if is_new and now >= next_judging:
                    report, code = report_on(growth.readings(), question, args, started=started)
                    is_new = False
                    if _gist(report) != shown:
                        shown = _gist(report)
                        if args.json != "-":
                            stamp = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
                            sys.stdout.write(f"\n{stamp}\n")
                            terminal.show(report, language=language, stream=sys.stdout, quiet=True)
                    elif not args.quiet:
                        stamp = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
                        output.narrator.say("diagnose.follow_same", time=stamp, num_files=growth.num_files)
                    output.interim(report)
                    next_judging = time.monotonic() + (time.monotonic() - now) * REST_FACTOR
                if args.until_idle and not is_new and now - changed_at >= args.until_idle:
                    break
                time.sleep(POLL_S)
                if growth.poll():
                    is_new, changed_at = True, time.monotonic()
        except KeyboardInterrupt:
            if report is None:
                raise
        assert report is not None
        output.finish(report)
    return code


def _gist(report: "Report") -> object:
    """What makes a verdict another one."""
    verdict = report.verdict
    return report.status, verdict and (verdict.code, verdict.culprits, verdict.confidence)
