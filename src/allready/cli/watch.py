"""`allready watch`: a live view of a running job, from another terminal on any of its nodes."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from allready.cli.main import EXIT_HEALTHY, EXIT_UNCHECKED, exit_code_of
from allready.cli.options import add_both_spellings, add_language, positive_s
from allready.cli.output import deliver_json
from allready.errors import UsageError
from allready.text.catalog import choose_language
from allready.text.ui import ui

if TYPE_CHECKING:
    from allready.live.watch.metrics import MetricsServer
    from allready.live.watch.state import WatchState
    from allready.live.watch.view import Poller, View

SHOWN_AGAIN = 10
"""Without a terminal the table comes when the verdict changes, and every so many polls."""

EPILOG = """\
  allready watch                      the job of this user on this machine; keys: Enter a rank's stack, ? all keys
  allready watch JOB                  by job id, or by the pid of its agent or of one of its ranks
  allready watch 4711,4712            processes without a rank in their environment, as one job
  allready watch --once --json -      one sample, for scripts
  allready watch --metrics-port 9400  Prometheus metrics at http://127.0.0.1:9400/metrics, with or without a terminal
Jobs under `allready run`: operations, step times and verdict of all nodes.  Jobs started by torchrun or by a script:
processes and sockets of this node, NCCL's counters if its RAS offers them, stacks if py-spy is installed.
Exit codes of --once: 0 healthy, 1 fault, 3 no verdict.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `watch`."""
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help="job id, or pid of the agent or of a rank (default: the only job on this machine)",
    )
    parser.add_argument("--once", action="store_true", help="print one sample and exit")
    parser.add_argument("--json", metavar="FILE", help="with --once: write the state as JSON (- for standard output)")
    parser.add_argument("--stacks", action="store_true", help="with --once: include the stacks of all ranks")
    parser.add_argument(
        "--every", type=positive_s, default=1.0, metavar="S", help="interval between samples (default 1 s)"
    )
    add_both_spellings(
        parser,
        "metrics-port",
        type=int,
        metavar="PORT",
        help="serve Prometheus metrics on this port (0: any free port)",
    )
    add_both_spellings(
        parser,
        "metrics-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to serve metrics on (default: loopback only)",
    )
    add_language(parser)


def run(args: argparse.Namespace) -> int:
    """Watch; the exit code of `--once` is the contract's, that of the live view 0."""
    from allready.cli.interrupts import Interrupts
    from allready.live.watch.view import open_view

    language = choose_language(args.lang)
    if args.json and not args.once:
        raise UsageError("--json needs --once: a live view is for people; for programs there is --metrics-port")
    if args.stacks and not args.once:
        raise UsageError("--stacks needs --once; in the live view press s")
    if args.metrics_port is not None and args.once:
        raise UsageError("--metrics-port and --once cannot be combined: metrics are served while the view is open")
    if args.metrics_port is not None and not 0 <= args.metrics_port <= 65535:
        raise UsageError("--metrics-port {metrics_port}: 0 to 65535", metrics_port=args.metrics_port)
    with Interrupts(exit_code=EXIT_UNCHECKED):
        try:
            view = open_view(args.job)
        except OSError as error:
            raise UsageError("no folder for temporary files: {reason}", reason=error.strerror) from error
        try:
            return _once(args, view, language) if args.once else _live(args, view, language)
        finally:
            view.close()


def _once(args: argparse.Namespace, view: "View", language: str) -> int:
    from allready.live.watch.saved_stacks import stacks_in
    from allready.live.watch.screen import plain_text
    from allready.live.watch.state import as_json

    state = view.read_once()
    if state is None:
        raise UsageError("the job has just ended")
    folder, notes = view.gather() if args.stacks else (None, ())
    if args.json:
        body = as_json(state)
        if args.stacks:
            body["stacks_folder"] = None if folder is None else str(folder)
            body["stacks"] = {} if folder is None else {str(rank): text for rank, text in stacks_in(folder).items()}
            body["notes"] += [note.text("en") for note in notes]
        deliver_json(args.json, body)
    else:
        sys.stdout.write(plain_text(state, language, encoding=sys.stdout.encoding or "utf-8"))
        for text in (*(stacks_in(folder).values() if folder is not None else ()),):
            sys.stdout.write("\n" + text)
        if folder is not None:
            sys.stdout.write(ui("watch.kept", language, folder=folder) + "\n")
        sys.stdout.writelines(note.text(language) + "\n" for note in notes)
    sys.stdout.flush()
    return EXIT_UNCHECKED if state.report is None else exit_code_of(state.report.status)


def _live(args: argparse.Namespace, view: "View", language: str) -> int:
    from allready.live.watch.full_screen import full_screen
    from allready.live.watch.view import Poller
    from allready.report.terminal import is_terminal, wants_colour

    first = view.read()
    if first is None:
        raise UsageError("the job has just ended")
    server: MetricsServer | None = None
    end = "quit"
    try:
        with Poller(view, first, every_s=args.every) as poller:
            note = ""
            if args.metrics_port is not None:
                server = _serve(args, poller)
                note = ui("watch.metrics", language, url=server.url)
                sys.stderr.write(f"allready watch: {note}\n")
                sys.stderr.flush()
            if is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb":
                coloured = wants_colour(sys.stdout)
                end = full_screen(view, poller, sys.stdout, language=language, coloured=coloured, note=note)
            else:
                end = _lines(poller, language)
            last = poller.newest
    except KeyboardInterrupt:
        return EXIT_HEALTHY
    finally:
        if server is not None:
            server.close()
    if end == "over":
        _say_over(last, language)
    return EXIT_HEALTHY


def _say_over(last: "WatchState", language: str) -> None:
    """What stood above the table last, which the full screen took with it, and where more is."""
    from allready.live.watch.screen import head_lines

    if sys.stdout.isatty():
        sys.stdout.writelines(line + "\n" for line in head_lines(last, language))
        sys.stdout.flush()
    sys.stderr.write(f"allready watch: {ui('watch.over', language)}\n")
    if last.job.report_dir:
        sys.stderr.write(f"allready watch: {ui('watch.report', language, folder=last.job.report_dir)}\n")


def _serve(args: argparse.Namespace, poller: "Poller") -> "MetricsServer":
    from allready.live.watch.metrics import MetricsServer, exposition

    def text() -> str:
        return exposition(poller.newest, is_answering=not poller.problem)

    try:
        return MetricsServer(text, port=args.metrics_port, host=args.metrics_host)
    except OSError as error:
        raise UsageError(
            "metrics at {metrics_host} port {metrics_port}: {reason}",
            metrics_host=args.metrics_host,
            metrics_port=args.metrics_port,
            reason=error.strerror or error,
        ) from error


def _lines(poller: "Poller", language: str) -> str:
    """Plain output: the table whenever it has something new to say, at least every ten polls."""
    from allready.live.watch.screen import plain_text

    number, shown_number, shown = 0, -SHOWN_AGAIN, None
    while not poller.is_over:
        state = poller.newest
        report = state.report
        news = (poller.problem, report and (report.status, report.verdict and report.verdict.code))
        if news != shown or number - shown_number >= SHOWN_AGAIN:
            shown, shown_number = news, number
            if poller.problem:
                old = ui("watch.old", language, age=f"{poller.age_s():.0f}", why=poller.problem)
                sys.stdout.write(old + "\n")
            else:
                sys.stdout.write(plain_text(state, language, encoding=sys.stdout.encoding or "utf-8") + "\n")
            sys.stdout.flush()
        number = poller.wait(number, 60.0)
    return "over"
