"""Where a command's reports go: terminal, report.json, report.html, now and while it runs."""

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from allready.cli.so_far import SoFar
from allready.errors import UsageError
from allready.model import Report
from allready.report import json_report
from allready.report.live import LiveNarrator
from allready.report.safe import safe_json
from allready.text.catalog import choose_language

log = logging.getLogger(__name__)


class Output:
    """Context manager; `interim` as often as there is news, `finish` once."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Check now that results can be written, not after a long run."""
        folder = Path(args.report_dir) if args.report_dir else None
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError("--report-dir {report_dir}: {reason}", report_dir=folder, reason=error.strerror) from error
        for option, name in (("--json", args.json), ("--html", args.html), ("--report-dir", args.report_dir)):
            if name and (option, name) != ("--json", "-"):
                check_writable(option, Path(name), is_folder=option == "--report-dir")
        self._args = args
        self._json_files = [Path(args.json)] if args.json and args.json != "-" else []
        self._html_files = [Path(args.html)] if args.html else []
        if folder is not None:
            self._json_files.append(folder / "report.json")
            self._html_files.append(folder / "report.html")
        self._language = choose_language(args.lang)
        self.narrator = LiveNarrator(language=self._language, stream=sys.stderr, quiet=args.quiet)
        self._so_far = SoFar(self.narrator, self._language)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.narrator.close()

    def interim(self, report: Report) -> None:
        """Rewrite the JSON files, and say what is known so far; a full disk costs the file, not the check."""
        self._so_far.take(report)
        if self._json_files:
            write_all(self._json_files, json_report.encode(report))

    def finish(self, report: Report, more: Callable[[Report], list[Path]] = lambda _: []) -> None:
        """Everything, for the last time.

        Args:
            more: writes the command's other files and returns them.  A defect there costs them, never the verdict.

        Raises:
            UsageError: standard output takes nothing (a full disk).  A reader that went away is no error.
        """
        self.narrator.close()
        written = write_all(self._json_files, json_report.encode(report)) if self._json_files else []
        written += write_pages(self._html_files, report, self._language)
        try:
            written += more(report)
        except Exception as error:
            log.warning("other files were not written: %s: %s", type(error).__name__, error, exc_info=True)
        with to_stdout():
            if self._args.json == "-":
                sys.stdout.buffer.write(json_report.encode(report))
            else:
                from allready.report import terminal

                terminal.show(
                    report,
                    language=self._language,
                    stream=sys.stdout,
                    verbose=self._args.verbose,
                    quiet=self._args.quiet,
                    files=tuple(str(path) for path in written),
                )


def _warn(path: Path, reason: str) -> None:
    log.warning("cannot write %s: %s", path, reason)


OnProblem = Callable[[Path, str], None]


def write_all(paths: Sequence[Path], data: bytes, on_problem: OnProblem = _warn) -> list[Path]:
    """Write what can be written; returns those files.  `on_problem` gets each other one, and why."""
    written = []
    for path in paths:
        try:
            json_report.write_atomic(path, data)
            written.append(path)
        except OSError as error:
            on_problem(path, error.strerror or str(error))
    return written


def write_pages(paths: Sequence[Path], report: Report, language: str, on_problem: OnProblem = _warn) -> list[Path]:
    """Write the report as a page.  A defect of the page costs the page, never the verdict or the exit code."""
    if not paths:
        return []
    try:
        from allready.report import html  # not before it is needed

        page = html.render(report, language=language).encode("utf-8", "backslashreplace")
    except Exception as error:
        log.debug("the page's defect", exc_info=True)
        on_problem(paths[0], f"{type(error).__name__}: {error}")
        return []
    return write_all(paths, page, on_problem)


def deliver_json(target: str, body: Any) -> None:
    """`--json TARGET` of what is no report: `-` is standard output, anything else a file."""
    text = json.dumps(body, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace")
    json_report.deliver(target, safe_json(text) + b"\n")


def check_writable(option: str, path: Path, *, is_folder: bool = False) -> None:
    """Raises UsageError unless `path` can be written (a file), or written into (a folder)."""
    if str(path) == "-":
        raise UsageError("{option} -: give a file; only --json can go to standard output", option=option)
    if not is_folder and path.is_dir():
        raise UsageError("{option} {path}: this is a folder; name a file in it", option=option, path=path)
    if not is_folder and path.exists() and not path.is_file():  # /dev/stdout, a pipe: written to as it is
        if not os.access(path, os.W_OK):
            raise UsageError("{option} {path}: cannot be written to", option=option, path=path)
        return
    folder = path if is_folder else path.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(
            "{option} {path}: {folder} is not a folder that can be written to", option=option, path=path, folder=folder
        )


@contextlib.contextmanager
def to_stdout() -> Iterator[None]:
    """Around what is written to standard output, until all of it is there.

    Raises:
        UsageError: it takes nothing (a full disk).  A reader that went away is no error.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough; the exit code tells the verdict all the same
        let_go_of_stdout()
    except OSError as error:
        let_go_of_stdout()
        raise UsageError("cannot write to standard output: {reason}", reason=error.strerror or error) from error


def let_go_of_stdout() -> None:
    """What is still in its buffer goes nowhere, instead of raising again when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
