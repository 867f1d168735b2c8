"""What `allready run` shows and writes: ranks' lines on stdout, its own lines on stderr, the report's files."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from allready import units
from allready.agent.coordinator import JobEnd
from allready.agent.folder import ReportFolder
from allready.cli.output import let_go_of_stdout, write_all, write_pages
from allready.cli.so_far import SoFar
from allready.launch.request import Note, RunRequest
from allready.model import EndCause, NotChecked, Report, Status, UncheckedKind
from allready.report import json_report, terminal
from allready.report.course import course_lines
from allready.report.live import LiveNarrator
from allready.report.safe import plain
from allready.report.spare_room import SpareRoom
from allready.report.words import sentence, t, why_not_checked
from allready.text.catalog import choose_language, say_note, say_phrase
from allready.text.reasons import not_checked, reason
from allready.text.ui import ui

log = logging.getLogger(__name__)

WAITING_AGAIN_S = 30.0
"""What the ranks wait for is repeated after this, if it is another rank; a fault is shown at once."""
_OF_THE_DIAGNOSIS = frozenset({UncheckedKind.DIAGNOSIS_FAILED, UncheckedKind.STANDS_STILL})


class RunShow:
    """One per run.  `take` gets every report, `say` lines of ours, `finish` the end."""

    def __init__(self, args: argparse.Namespace, request: RunRequest, folder: ReportFolder) -> None:
        self._args = args
        self._request = request
        self._folder = folder
        self._language = choose_language(args.lang)
        self._last: Report | None = None
        self._shown: tuple[Any, ...] | None = None
        self._shown_waiting_s = float("-inf")
        self.narrator = LiveNarrator(language=self._language, stream=sys.stderr, quiet=args.quiet)
        self._so_far = SoFar(self.narrator, self._language)
        self._is_narrating = True
        self._file = SpareRoom(self.report_path().with_suffix(".json"))
        self._problems: dict[Path, str] = {}
        self._failures: tuple[NotChecked, ...] = ()

    def take(self, report: Report) -> None:
        """A report: the file is rewritten; the terminal gets a block when the verdict is another one."""
        self._last = report
        self._write_json(report)
        if self._is_narrating and report.status is Status.WAITING:
            self._so_far.take(report)
            return
        self._tell_failures(report)
        verdict = report.verdict
        if verdict is None:
            if report.status is Status.HEALTHY and self._shown is not None:
                self._write(ui("run.goes_on", self._language))
            self._shown = None
            return
        is_fault = report.status not in {Status.INTERRUPTED, Status.WAITING}
        state = (report.status, verdict.culprits, *((verdict.code, verdict.confidence) if is_fault else ()))
        if state == self._shown:
            return
        if report.status is Status.WAITING:
            now = time.monotonic()
            if self._shown is not None and now - self._shown_waiting_s < WAITING_AGAIN_S:
                return
            self._shown_waiting_s = now
        self._shown = state
        if is_fault:
            self._block(report)
        else:
            self._write(ui(f"run.{report.status}", self._language, sentence=sentence(report, self._language)))

    def _tell_failures(self, report: Report) -> None:
        """That the diagnosis has failed, and what is known without it: no verdict says so."""
        failures = tuple(item for item in report.not_checked if item.kind in _OF_THE_DIAGNOSIS)
        for item in failures:
            if all(item.kind is not known.kind for known in self._failures):
                self._write(why_not_checked(item, self._language))
        self._failures = failures

    def ranks_begin(self) -> None:
        """An attempt begins: from now on the terminal belongs to the ranks, and no verdict stands."""
        self._shown = None
        if self._is_narrating:
            self._is_narrating = False
            self.narrator.close()
            if self._request.end_with_stdin:
                from allready.launch.ssh import announce_begin

                announce_begin()

    def say(self, note: Note) -> None:
        """A line of ours that stays."""
        if not self._args.quiet:
            reasons = {name: say_note(reason, self._language) for name, reason in note.reasons.items()}
            self._write(ui(note.key, self._language, **note.values, **reasons))

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(f"allready run: {plain(text, most=2000)}\n")
            sys.stderr.flush()
        except (OSError, ValueError) as error:
            log.debug("standard error is gone: %s", error)

    def finish(self, end: JobEnd) -> None:
        """The last report, and where everything lies."""
        self.narrator.close()
        self._write_json(end.report)
        self._file.close()  # on a full disk its room may be enough for the page
        asked = [Path(self._args.html)] if self._args.html else []
        pages = write_pages([self._page, *asked], end.report, self._language, self._note_problem)
        if self._args.json == "-":
            self._write_json_to_stdout(end.report)
        if self._args.quiet:
            return
        if self._is_first_node() or end.job.exit_code != 0 or end.why or end.report.verdict is not None:
            self._write(f"{self._last_line(end)}{t('semicolon', self._language)}{self._place(pages)}")

    def _is_first_node(self) -> bool:
        """Whether this node speaks for the job; where node 0 assigns the ranks, any may."""
        return self._request.node_rank in {0, None}

    def _last_line(self, end: JobEnd) -> str:
        """How it ended, and after how long."""
        report = end.report
        course = course_lines(report.course, self._language) if report.course is not None else []
        name = "run.ended_well" if end.job.exit_code == 0 and not end.why else "run.ended"
        return ui(
            name,
            self._language,
            code=end.job.exit_code,
            cause=self._cause(end),
            why=self._why(end),
            took=units.time(report.duration_s),
            status=t(f"status_{report.status}", self._language),
            course="".join(t("semicolon", self._language) + text for text in course[:1]),
        )

    def _place(self, pages: Sequence[Path]) -> str:
        """Where the report of the end lies: the page, else report.json, else why there is none."""
        found = self._page if self._page in pages else self._json
        reason = self._problems.get(found)
        if reason is None:
            return ui("run.report_at", self._language, path=str(found))
        return ui("run.no_report", self._language, reason=reason, path=str(found))

    def _note_problem(self, path: Path, reason: str) -> None:
        """A file cannot be written: reported when that begins, also to who wants few lines."""
        is_new = path not in self._problems
        self._problems[path] = reason
        if is_new and not (path == self._page and self._json in self._problems):  # the last line has both
            key = {self._json: "run.lost_json", self._page: "run.lost_page"}.get(path, "run.lost_file")
            values = {"name": path.name, "reason": reason, "json": self._json.name, "folder": str(path.parent)}
            self._write(ui(key, self._language, **values))

    def _cause(self, end: JobEnd) -> str:
        """`DTH001 DEAD` of the verdict; else what kind of end it was."""
        verdict = end.report.verdict
        if verdict is not None and end.job.outcome is not EndCause.STOPPED:
            return f"{verdict.code} {verdict.fault_class}"
        return ui(f"run.cause_{end.job.outcome}", self._language)

    def _why(self, end: JobEnd) -> str:
        """The verdict's sentence where there is one, but of a job that was stopped; else what interrupted it, or the
        sentence of the record."""
        is_stopped = end.job.outcome is EndCause.STOPPED
        if end.report.verdict is not None and not is_stopped:
            return sentence(end.report, self._language)
        if end.report.status is Status.INTERRUPTED and end.report.verdict is None and end.report.not_checked:
            return why_not_checked(end.report.not_checked[0], self._language)
        return say_phrase(end.why, self._language) if end.why is not None else "-"

    def begin(self, nproc: int) -> None:
        """The first line: how large the job is, where its report will be, how to look at it meanwhile."""
        request = self._request
        if not self._is_first_node():
            return
        few, many = request.min_nodes, request.max_nodes
        nodes = t("num_nodes", self._language, count=many) if few == many else f"{few}:{many}"
        self.say(
            Note(
                key="run.begins",
                values={
                    "nodes": nodes,
                    "ranks": t("num_ranks", self._language, count=nproc),
                    "folder": str(self._folder.path),
                },
            )
        )

    def abandon(self, error: Exception) -> None:
        """The command itself fails: a report that was written before must not pass for the result."""
        if self._last is not None:
            why = not_checked("run", reason(UncheckedKind.FAILED, error=f"{type(error).__name__}: {error}"[:500]))
            is_fault = self._last.status is Status.FAULT
            status = Status.FAULT if is_fault else Status.UNKNOWN
            self._write_json(replace(self._last, status=status, not_checked=(why, *self._last.not_checked)))

    def close(self) -> None:
        """Take the live line away."""
        self.narrator.close()
        self._file.close()

    def _block(self, report: Report) -> None:
        try:
            if not self._args.verbose:  # the tables are in the report; here the verdict and what it rests on
                report = replace(report, summary=None, roll=None, not_checked=())
            terminal.show(
                report, language=self._language, stream=sys.stderr, verbose=self._args.verbose, quiet=self._args.quiet
            )
        except (OSError, ValueError) as error:
            log.debug("standard error is gone: %s", error)

    def report_path(self) -> Path:
        """Where the report goes, without its ending."""
        return self._folder.path / self._folder.report_name()

    @property
    def _json(self) -> Path:
        return self.report_path().with_suffix(".json")

    @property
    def _page(self) -> Path:
        return self.report_path().with_suffix(".html")

    def _write_json(self, report: Report) -> None:
        data = json_report.encode(report)
        path = self._json
        if self._file.write(data, path):
            self._problems.pop(path, None)
        else:
            self._note_problem(path, self._file.problem)
        if self._args.json and self._args.json != "-":  # standard output belongs to the ranks until the end
            for written in write_all([Path(self._args.json)], data, self._note_problem):
                self._problems.pop(written, None)

    def _write_json_to_stdout(self, report: Report) -> None:
        """A reader that went away, or a full disk behind standard output, is no reason to lose the job's exit code."""
        try:
            sys.stdout.buffer.write(json_report.encode(report))
            sys.stdout.buffer.flush()
        except OSError as error:
            let_go_of_stdout()
            log.warning("cannot write to standard output: %s", error.strerror or error)
