"""What `allready run` shows and writes: ranks' lines on stdout, its own words on stderr, the report's files."""

import argparse
import logging
import sys
import time
from typing import Any

from msgspec.structs import replace

from allready.agent.folder import ReportFolder
from allready.launch.request import Note, RunRequest
from allready.model import Report, Status
from allready.report import json_report, terminal
from allready.report.live import LiveNarrator
from allready.report.safe import plain
from allready.report.words import sentence
from allready.text.catalog import choose_language
from allready.text.ui import ui

log = logging.getLogger(__name__)

WAITING_AGAIN_S = 30.0
"""What the ranks wait for is said again after this, if it is another rank; a fault is said at once."""


class RunShow:
    """One per run.  `take` gets every report, `say` lines of ours, `finish` the end."""

    def __init__(self, args: argparse.Namespace, request: RunRequest, folder: ReportFolder) -> None:
        self._args = args
        self._request = request
        self._folder = folder
        self._language = choose_language(args.lang)
        self._last: Report | None = None
        self._shown: tuple[Any, ...] | None = None
        self._waited_said_s = float("-inf")
        self.narrator = LiveNarrator(language=self._language, stream=sys.stderr, quiet=args.quiet)
        self._is_narrating = True

    def take(self, report: Report) -> None:
        """A report: the file is rewritten; the terminal gets a block when the verdict is another one."""
        self._last = report
        self._write_json(report)
        if report.roll is not None and report.status is Status.WAITING and report.verdict is None:
            return
        verdict = report.verdict
        if verdict is None:
            if report.status is Status.HEALTHY and self._shown is not None:
                self._write(ui("run.goes_on", self._language))
            self._shown = None
            return
        said = (report.status, verdict.culprits)
        if report.status is Status.WAITING:
            now = time.monotonic()
            if said != self._shown and (now - self._waited_said_s >= WAITING_AGAIN_S or self._shown is None):
                self._shown, self._waited_said_s = said, now
                self._write(ui("run.waiting", self._language, sentence=sentence(report, self._language)))
            return
        fault = (*said, verdict.code, verdict.confidence)
        if fault != self._shown:
            self._shown = fault
            self._block(report)

    def ranks_begin(self) -> None:
        """An attempt begins: from now on the terminal belongs to the ranks, and no verdict stands."""
        self._shown = None
        if self._is_narrating:
            self._is_narrating = False
            self.narrator.close()

    def say(self, note: Note) -> None:
        """A line of ours that stays."""
        if not self._args.quiet:
            self._write(ui(note.key, self._language, **note.values))

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(f"allready run: {plain(text, most=2000)}\n")
            sys.stderr.flush()
        except (OSError, ValueError) as error:
            log.debug("standard error is gone: %s", error)

    def finish(self, end: Any) -> None:
        """The last report, and where everything lies."""
        self.narrator.close()
        report = end.report or self._last
        if report is not None:
            self._last = report
            self._write_json(report)
            self._write_html(report)
        if self._args.quiet:
            return
        if end.exit_code != 0 or end.why:
            text = ui("run.ended", self._language, code=end.exit_code, why=end.why or "-")
            self._write(text)
        if end.exit_code != 0 or (report is not None and report.verdict is not None):
            place = self._folder.path / f"{self._folder.report_name()}.html"
            self._write(ui("run.report", self._language, path=str(place)))

    def close(self) -> None:
        """Take the live line away."""
        self.narrator.close()

    def _block(self, report: Report) -> None:
        try:
            if not self._args.verbose:  # the tables are in the report; here the verdict and what it rests on
                report = replace(report, summary=None, roll=None, not_checked=())
            terminal.show(
                report, language=self._language, stream=sys.stderr, verbose=self._args.verbose, quiet=self._args.quiet
            )
        except (OSError, ValueError) as error:
            log.debug("standard error is gone: %s", error)

    def _write_json(self, report: Report) -> None:
        paths = [self._folder.path / f"{self._folder.report_name()}.json"]
        data = json_report.encode(report)
        if self._args.json == "-":
            pass  # at the end only: standard output belongs to the ranks meanwhile
        elif self._args.json:
            from pathlib import Path

            paths.append(Path(self._args.json))
        for path in paths:
            try:
                json_report.write_atomic(path, data)
            except OSError as error:
                log.warning("cannot write %s: %s", path, error.strerror or error)

    def _write_html(self, report: Report) -> None:
        from pathlib import Path

        from allready.report import html

        paths = [self._folder.path / f"{self._folder.report_name()}.html"]
        if self._args.html:
            paths.append(Path(self._args.html))
        data = html.render(report, language=self._language).encode()
        for path in paths:
            try:
                json_report.write_atomic(path, data)
            except OSError as error:
                log.warning("cannot write %s: %s", path, error.strerror or error)
        if self._args.json == "-":
            sys.stdout.buffer.write(json_report.encode(report))
            sys.stdout.buffer.flush()
