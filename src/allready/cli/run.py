"""`allready run`: torchrun's flags; the culprit, the cause and the fix when the job does not start, hangs or dies."""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from allready.cli.interrupts import NUMBERS, Interrupts
from allready.cli.main import EXIT_HEALTHY, EXIT_UNCHECKED
from allready.cli.options import add_common, configure_logging, count_gpus
from allready.errors import UsageError
from allready.launch.request import Note
from allready.launch.schedulers import BINDING_LAUNCHERS
from allready.report.safe import encodable, plain
from allready.text.catalog import choose_language
from allready.text.ui import ui
from allready.text.usage import usage_text

if TYPE_CHECKING:
    from allready.agent.coordinator import JobEnd
    from allready.agent.entry import NodeJob
    from allready.model import Report

EPILOG = """\
All flags of torchrun are accepted:
  one machine      allready run --nproc-per-node 8 train.py --lr 0.1
  two machines     allready run --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr gpu01 train.py     (and 1)
  from one shell   allready run --hosts gpu01,gpu02 --nproc-per-node 8 train.py
  JAX              allready run --framework jax --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr gpu01 train.py
Output of each rank: REPORT_DIR/attempt0/node0/rank0/out.log; verdict: REPORT_DIR/report.json and report.html.
Exit code: that of the job.
"""


RARE = frozenset({
    "node_name", "exclude_nodes", "backoff", "no_diagnosis", "local_ranks_filter", "nccl_log_subsystems", "ssh_option",
    "remote_python", "remote_dir", "pass_env", "run_path", "rdzv_backend",
})  # fmt: skip
"""Options that only `--help-all` shows, beside those of torchrun that are seldom used."""
_OWN_FILES, _FILES_PER_RANK = 24, 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    from allready.cli.parser import Parser
    from allready.launch.flag_table import FLAGS
    from allready.launch.flags import add_arguments as add_flags

    add_common(parser)
    add_flags(parser)
    if isinstance(parser, Parser):
        parser.rare = {flag.dest for flag in FLAGS if flag.idle or flag.group in {"jax", "torchrun"}} | RARE


def run(args: argparse.Namespace) -> int:
    """Run the job; the exit code is the job's own, or the contract's when it could not start."""
    passed = (signal.SIGUSR1, signal.SIGUSR2)
    with Interrupts(exit_code=EXIT_UNCHECKED, stops=(*NUMBERS, signal.SIGQUIT), passed=passed) as interrupts:
        return _run(args, interrupts)


def _no_part(why: str) -> int:
    """This process does nothing in the job, and that is in order."""
    sys.stderr.write(f"allready run: {why}\n")
    return EXIT_HEALTHY


def _run(args: argparse.Namespace, interrupts: Interrupts) -> int:
    from allready.launch.flags import request_from

    configure_logging(args.verbose)
    if getattr(args, "hosts", None):
        return _run_on_hosts(args, interrupts)
    request = request_from(args, os.environ, count_gpus=count_gpus)
    interrupts.stop_on([signal.Signals[name] for name in request.stop_signals])
    _make_room_for_files(request.nproc_per_node)
    if request.num_tasks > 1 or request.scheduler in BINDING_LAUNCHERS:
        from allready.launch import task_bindings

        tasks = task_bindings.tasks_of(
            os.environ, local_rank=request.local_rank, number=request.num_tasks, node_rank=request.node_rank or 0
        )
        cpus, notes = task_bindings.share(tasks, os.environ, nproc=request.nproc_per_node)
        request = replace(request, rank_cpus=cpus, notes=(*request.notes, *notes))
    if not request.acts:
        return _no_part(
            usage_text("local rank {rank}: local rank 0 runs the job for this node", rank=request.local_rank)
        )
    from allready.agent.entry import NodeJob, default_report_dir, is_excluded
    from allready.agent.folder import ReportFolder
    from allready.cli.run_show import RunShow
    from allready.facts.live import LiveHost
    from allready.messaging.token import token_from
    from allready.preflight.check.report_series import ReportSeries

    if request.preset:
        from allready.cli.env_preset import with_preset

        request = with_preset(request, request.preset, os.environ)
    if request.excluded_nodes and is_excluded(request):
        return _no_part(usage_text("this node ({name}) takes no part: --exclude-nodes", name=socket.gethostname()))
    token = token_from(request.token_file, os.environ)
    folder = ReportFolder(
        Path(request.report_dir) if request.report_dir else default_report_dir(request.job_id, request.log_base),
        is_node_0=request.node_rank == 0 or request.max_nodes == 1 or request.is_master is True,
        node_rank=request.node_rank,
        may_move=not request.report_dir and not request.log_base,
    )
    try:
        folder.open()
    except OSError as error:
        raise UsageError("--report-dir {path}: {reason}", path=folder.path, reason=error.strerror) from error
    show = RunShow(args, request, folder)
    show.begin(request.nproc_per_node)
    for note in (*request.notes, *folder.notes):
        show.say(note)

    def take(report: "Report") -> None:
        if report.job is not None:
            interrupts.exit_code = report.job.exit_code
        show.take(report)

    try:
        job = NodeJob(
            request,
            LiveHost(),
            report_dir=folder.path,
            report_series=ReportSeries(command="run"),
            show=take,
            say=show.say,
            on_start=show.ranks_begin,
            narrator=show.narrator,
            report_path=show.report_path,
            token=token,
        )
        end = asyncio.run(_follow(job, interrupts, end_with_stdin=request.end_with_stdin))
    except Exception as error:
        show.abandon(error)
        raise
    else:
        interrupts.exit_code = end.job.exit_code
        show.finish(end)
        return end.job.exit_code
    finally:
        show.close()
        folder.close()


def _make_room_for_files(nproc_per_node: int) -> None:
    """Raise the soft limit of open files where it is too low for an agent of so many ranks.

    Raises:
        UsageError: the hard limit is too low as well; torch would try to connect for a minute.
    """
    import resource

    needed = _OWN_FILES + _FILES_PER_RANK * nproc_per_node
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * needed
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            "{limit} open files are allowed (ulimit -n), {needed} are needed for {nproc} ranks",
            limit=hard,
            needed=needed,
            nproc=nproc_per_node,
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


async def _follow(job: "NodeJob", interrupts: Interrupts, *, end_with_stdin: bool) -> "JobEnd":
    task = asyncio.ensure_future(job.run())
    stops: list[str] = []

    def stop(name: str) -> None:
        stops.append(name)
        if not job.interrupt(name):
            task.cancel()

    def take(name: str) -> None:
        (stop if interrupts.ends(name) else job.pass_on)(name)

    watch = asyncio.ensure_future(_until_stdin_ends(interrupts.names, take)) if end_with_stdin else None
    try:
        with interrupts.cancelling(lambda: stop(interrupts.caught[-1]), job.pass_on):
            return await task
    except asyncio.CancelledError:
        if not stops:
            raise
        return job.interrupted(stops[0])
    finally:
        if watch is not None:
            watch.cancel()


async def _until_stdin_ends(names: Collection[str], take: Callable[[str], None]) -> None:
    """For agents that were started over ssh: they get the launcher's signals through the connection, and when that is
    gone, so is the reason to go on."""
    from allready.launch.ssh import until_stdin_ends

    await until_stdin_ends(names=names, on_signal=take)
    take("SIGTERM")


def _run_on_hosts(args: argparse.Namespace, interrupts: Interrupts) -> int:
    """Start the agents over ssh and merge what they say."""
    from allready.launch.flags import ending_of
    from allready.launch.ssh import run_hosts
    from allready.launch.ssh_words import agent_commands, options_from, parse_hosts
    from allready.messaging.token import secret_from

    language = choose_language(args.lang)
    targets = parse_hosts([word.strip() for words in _listed(args.hosts) for word in words.split(",") if word.strip()])
    more_stops, grace_s = ending_of(args, os.environ)
    interrupts.stop_on([signal.Signals[name] for name in more_stops])
    options = options_from(args, os.environ, grace_s=grace_s)
    commands = agent_commands(args, targets)
    secret = secret_from(args.token_file, os.environ) or secrets.token_hex(32)

    def pass_on(_node: int, stream: str, line: str) -> None:
        target = sys.stderr if stream == "stderr" else sys.stdout
        try:
            target.write(encodable(line, getattr(target, "encoding", None) or "utf-8") + "\n")
            target.flush()
        except (OSError, ValueError):
            return  # the reader is gone; the job goes on

    def write(note: Note) -> None:
        if not interrupts.caught:  # else hosts end because they were asked to
            sys.stderr.write(f"allready run: {plain(ui(note.key, language, **note.values), most=2000)}\n")

    async def follow() -> int:
        signals: asyncio.Queue[str] = asyncio.Queue()
        task = asyncio.ensure_future(
            run_hosts(commands, targets, options, secret=secret, signals=signals, on_line=pass_on, on_note=write)
        )

        def stop() -> None:
            """Every agent ends its job by the same signal, and by one more as an agent that gets it itself."""
            signals.put_nowait(interrupts.caught[-1])
            if len(interrupts.caught) == 1:
                asyncio.get_running_loop().call_later(options.end_s, task.cancel)

        code = -1
        with interrupts.cancelling(stop, signals.put_nowait), contextlib.suppress(asyncio.CancelledError):
            code = await task
        return 128 + signal.Signals[interrupts.caught[0]] if interrupts.caught and code else code

    return asyncio.run(follow())


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
