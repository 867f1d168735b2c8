"""Where a command's reports go: terminal, report.json, report.html, now and while it runs."""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Self

from allready.errors import UsageError
from allready.model import Report
from allready.report import json_report
from allready.report.live import LiveNarrator
from allready.text.catalog import choose_language

log = logging.getLogger(__name__)


class Output:
    """Context manager; `interim` as often as there is news, `finish` once."""

    def __init__(
        self, *, json_path: str | None, html_path: str | None, report_dir: Path | None, language: str, verbose: int,
        quiet: bool,
    ) -> None:  # fmt: skip
        self._json_files = [Path(json_path)] if json_path and json_path != "-" else []
        self._json_to_stdout = json_path == "-"
        self._html_files = [Path(html_path)] if html_path else []
        if report_dir is not None:
            self._json_files.append(report_dir / "report.json")
            self._html_files.append(report_dir / "report.html")
        self._language = language
        self._verbose = verbose
        self._quiet = quiet
        self.narrator = LiveNarrator(language=language, stream=sys.stderr, quiet=quiet)

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        """Check now that results can be written, not after a long run.

        Raises:
            UsageError: a folder is missing or not writable.
        """
        report_dir = Path(args.report_dir) if args.report_dir else None
        try:
            if report_dir is not None:
                report_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--report-dir {report_dir}: {error.strerror}") from error
        for option, name in (("--json", args.json), ("--html", args.html), ("--report-dir", args.report_dir)):
            if name and name != "-":
                folder = Path(name) if option == "--report-dir" else Path(name).absolute().parent
                if not folder.is_dir() or not os.access(folder, os.W_OK):
                    raise UsageError(f"{option} {name}: {folder} is not a folder that can be written to")
        return cls(
            json_path=args.json,
            html_path=args.html,
            report_dir=report_dir,
            language=choose_language(args.lang),
            verbose=args.verbose,
            quiet=args.quiet,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.narrator.close()

    def interim(self, report: Report) -> None:
        """Rewrite the JSON files; a full disk costs the file, not the check."""
        if self._json_files:
            encoded = json_report.encode(report)
            for path in self._json_files:
                try:
                    json_report.write_atomic(path, encoded)
                except OSError as error:
                    log.warning("cannot write %s: %s", path, error)

    def finish(self, report: Report) -> None:
        """Everything, for the last time."""
        self.narrator.close()
        self.interim(report)
        written = [*self._json_files]
        if self._html_files:
            from allready.report import html

            page = html.render(report, language=self._language).encode()
            for path in self._html_files:
                try:
                    json_report.write_atomic(path, page)
                    written.append(path)
                except OSError as error:
                    log.warning("cannot write %s: %s", path, error)
        if self._json_to_stdout:
            json_report.deliver("-", json_report.encode(report))
            return
        from allready.report import terminal

        terminal.show(
            report,
            language=self._language,
            stream=sys.stdout,
            verbose=self._verbose,
            quiet=self._quiet,
            files=tuple(str(path) for path in written),
        )
