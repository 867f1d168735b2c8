"""`allready check`: the roll call before a job."""

import argparse
import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from allready.cli.interrupts import Interrupts
from allready.cli.main import EXIT_BUG, EXIT_HEALTHY, EXIT_UNCHECKED, exit_code_of
from allready.cli.options import (
    add_both_spellings,
    add_common,
    configure_logging,
    count,
    count_gpus,
    port_range,
    positive_s,
    size_bytes,
)
from allready.errors import AllreadyError, UsageError
from allready.launch.layout import Layout, lay_out
from allready.launch.request import Note
from allready.model import Report, UncheckedKind
from allready.model.operations import DTYPE_BYTES
from allready.preflight.check.request import COLLECTIVE_STAGES, STAGES, CheckRequest
from allready.report.safe import plain
from allready.text.catalog import choose_language
from allready.text.reasons import reason
from allready.text.ui import ui
from allready.text.usage import usage_text

if TYPE_CHECKING:
    from allready.messaging.token import Token

SAME_IN_REQUEST = ("port_range", "backend", "framework", "min_bytes", "max_bytes", "quick", "isolate", "grow")

EPILOG = """\
Run the same command on every node, in any order, with torchrun's flags:
  node 0   allready check --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr gpu01 --master-port 29500
  node 1   allready check --nnodes 2 --node-rank 1 --nproc-per-node 8 --master-addr gpu01 --master-port 29500
Under a scheduler, ranks and addresses come from its variables:   srun allready check
Without flags it checks this machine with all its GPUs, or with two CPU ranks.
With a script, the script's content is compared between the nodes:   allready check ... -- train.py
Exit codes: 0 healthy, 1 fault, 2 usage, 3 something necessary could not be checked.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `check`."""
    job = add_job(parser)
    job.add_argument(
        "--framework",
        choices=("torch", "jax"),
        default="torch",
        help="framework whose collectives are run (default: torch)",
    )
    what = parser.add_argument_group("what to check")
    what.add_argument(
        "--wait", type=positive_s, default=60.0, metavar="S", help="timeout for late nodes (default 60 s)"
    )
    what.add_argument(
        "--stages",
        metavar="LIST",
        help=f"stages to run, from {','.join(STAGES)} (default: all), or single stages of the collectives: "
        f"{','.join(COLLECTIVE_STAGES)}",
    )
    add_both_spellings(
        what, "port-range", type=port_range, metavar="A-B", help="also test TCP ports of this range between nodes"
    )
    add_both_spellings(
        what, "min-bytes", type=size_bytes, metavar="SIZE", help="smallest message of the bandwidth sweep"
    )
    add_both_spellings(
        what, "max-bytes", type=size_bytes, metavar="SIZE", help="largest message of the bandwidth sweep"
    )
    what.add_argument("--iters", type=count, metavar="N", help="timed iterations per size")
    what.add_argument("--warmup", "--warmup-iters", type=count, metavar="N", help="warm-up iterations per size")
    what.add_argument("--quick", action="store_true", help="short bandwidth sweep")
    what.add_argument(
        "--isolate",
        action="store_true",
        help="repeat a failing stage with P2P, SHM and IB disabled one at a time, to isolate the transport at fault",
    )
    what.add_argument(
        "--grow", action="store_true", help="repeat with 1, 2, 4 ... ranks until it fails, to isolate the rank at fault"
    )
    add_both_spellings(
        what, "stage-timeout", type=positive_s, metavar="S", help="timeout of each stage of the collectives"
    )
    parser.add_argument(
        "script", nargs="*", metavar="-- SCRIPT", help="training script whose content is compared between nodes"
    )
    add_common(parser)


def add_job(parser: argparse.ArgumentParser) -> Any:
    """The options that say which job it is; returns their group."""
    job = parser.add_argument_group("the job, as for torchrun")
    job.add_argument("--nnodes", type=_nnodes, metavar="N", help="number of nodes")
    add_both_spellings(job, "node-rank", type=int, metavar="R", help="rank of this node, from 0")
    add_both_spellings(job, "nproc-per-node", metavar="N", help="ranks on this node: a number, gpu, cpu or auto")
    add_both_spellings(job, "master-addr", metavar="HOST", help="host name or address of node 0")
    add_both_spellings(job, "master-port", type=int, metavar="PORT", help="TCP port on node 0 (default 29500)")
    add_both_spellings(
        job, "rdzv-endpoint", metavar="HOST:PORT", help="master address and port, in torchrun's rendezvous form"
    )
    add_both_spellings(
        job, "job-id", metavar="ID", help="job id, the same on all nodes; nodes with another id are refused"
    )
    add_both_spellings(job, "rdzv-id", dest="job_id", metavar="ID", help=argparse.SUPPRESS)
    add_both_spellings(job, "rdzv-backend", metavar="NAME", help=argparse.SUPPRESS)
    add_both_spellings(
        job,
        "token-file",
        metavar="FILE",
        help="file with a token that all nodes share; nodes without it are refused (or set ALLREADY_TOKEN)",
    )
    job.add_argument("--devices", metavar="0,1", help="GPUs of this node to use, one rank each")
    job.add_argument(
        "--backend",
        choices=("nccl", "gloo"),
        help="backend of the collectives (default: nccl if every node has GPUs, else gloo)",
    )
    return job


def run(args: argparse.Namespace) -> int:
    """Check; the exit code is the contract's."""
    return conduct(args, request_of, command="check")


def conduct(
    args: argparse.Namespace,
    ask: Callable[[argparse.Namespace, Layout], CheckRequest],
    *,
    command: str,
    files: Callable[[Report], list[Path]] = lambda _: [],
) -> int:
    """Meet the other nodes and do what `ask` makes of the arguments; returns the exit code.

    Args:
        files: writes more files of the final report, and returns them.
    """
    with Interrupts(exit_code=EXIT_UNCHECKED) as interrupts:
        return _run(args, interrupts, ask, command, files)


def _run(
    args: argparse.Namespace,
    interrupts: Interrupts,
    ask: Callable[[argparse.Namespace, Layout], CheckRequest],
    command: str,
    files: Callable[[Report], list[Path]],
) -> int:
    layout = _layout(args)
    notes = (*layout.notes, *_share_bindings(layout))
    if not layout.acts:
        values = {"rank": layout.local_rank, "node": layout.launch.node_rank}
        text = usage_text("local rank {rank}: local rank 0 checks for node {node}", **values)
        sys.stderr.write(f"allready {command}: {text}\n")
        return EXIT_HEALTHY
    configure_logging(args.verbose)
    request = ask(args, layout)
    from allready.cli.output import Output
    from allready.messaging.token import token_from

    token = token_from(args.token_file, os.environ)

    language = choose_language(args.lang)
    for note in notes:
        sys.stderr.write(f"allready {command}: {plain(ui(note.key, language, **note.values), most=2000)}\n")
    with Output(args) as output:
        report, code = asyncio.run(_check(request, output, interrupts, token, command))
        output.finish(report, files)
    # Collectors that hang (a dead name server, a sick driver) sit in daemon threads; they end with the process.
    return code


def _share_bindings(layout: Layout) -> list[Note]:
    """Local rank 0 takes over the CPUs and GPUs of the other tasks of its node, before anything is counted."""
    launch = layout.launch
    if layout.num_tasks == 1:
        return []  # a single one that is bound is a matter of the rules
    from allready.launch import task_bindings

    tasks = task_bindings.tasks_of(
        os.environ, local_rank=layout.local_rank, number=layout.num_tasks, node_rank=launch.node_rank
    )
    return task_bindings.share(tasks, os.environ, nproc=launch.nproc_per_node)[1]


async def _check(
    request: CheckRequest, output: Any, interrupts: Interrupts, token: "Token | None", command: str
) -> tuple[Report, int]:
    from allready.facts.live import LiveHost
    from allready.preflight.check.report_series import ReportSeries
    from allready.preflight.check.run import check

    report_series = ReportSeries(command=command)
    position: list[Callable[[], str]] = []
    task = asyncio.ensure_future(
        check(
            request,
            LiveHost(),
            name=socket.gethostname(),
            instance=secrets.token_hex(8),
            report_series=report_series,
            publish=output.interim,
            narrator=output.narrator,
            where=position.append,
            token=token,
        )
    )
    try:
        with interrupts.cancelling(task.cancel):
            report = await task
    except asyncio.CancelledError:
        if not interrupts.caught:
            return report_series.failed(command, reason(UncheckedKind.CANCELLED)), EXIT_BUG
        stage = position[0]() if position else "start"
        name = interrupts.caught[0]
        report = report_series.interrupted(stage, reason(UncheckedKind.INTERRUPTED, signal=name, stage=stage))
        output.narrator.log("check.interrupted", signal=name, stage=stage)
    except Exception as error:
        ours = "" if isinstance(error, AllreadyError) else f"a bug of allready itself: {type(error).__name__}: "
        why = reason(UncheckedKind.FAILED, error=f"{ours}{error}")
        output.interim(report_series.failed(position[0]() if position else "start", why))
        raise
    return report, exit_code_of(report.status)


def _layout(args: argparse.Namespace) -> Layout:
    master_addr, master_port = args.master_addr, args.master_port
    if args.rdzv_endpoint and not master_addr:
        from allready.launch.host_lists import split_endpoint

        master_addr, port = split_endpoint(args.rdzv_endpoint)
        master_port = master_port or port
    devices = tuple(d.strip() for d in args.devices.split(",") if d.strip()) if args.devices else None
    flags = {
        "num_nodes": args.nnodes,
        "node_rank": args.node_rank,
        "nproc_per_node": args.nproc_per_node,
        "master_addr": master_addr.strip("[]") if master_addr else None,
        "master_port": master_port,
        "job_id": args.job_id,
        "devices": devices,
    }
    return lay_out(flags, os.environ, count_gpus=count_gpus, backend=args.backend, framework=args.framework)


def request_of(args: argparse.Namespace, layout: Layout) -> CheckRequest:
    """What `check` was asked to do."""
    stages, collective_stages = _stages(args.stages)
    check_sizes(args)
    script = args.script[0] if args.script else None
    is_missing = script is not None and not Path(script).exists()
    return CheckRequest(
        launch=replace(layout.launch, missing_script=script or "") if is_missing else layout.launch,
        wait_s=args.wait,
        stages=stages,
        collective_stages=collective_stages,
        script=script,
        num_iterations=args.iters,
        num_warmup=args.warmup,
        stage_deadline_s=args.stage_timeout,
        **{name: getattr(args, name) for name in SAME_IN_REQUEST},
    )


def check_sizes(args: argparse.Namespace, dtype: str = "float32") -> None:
    """Raises UsageError for sizes that make no sense together, or hold no element of `dtype`."""
    least = DTYPE_BYTES[dtype]
    for option, value in (("--min-bytes", args.min_bytes), ("--max-bytes", args.max_bytes)):
        if value is not None and value < least:
            raise UsageError(
                "{option} {value}: at least {least}, one {dtype}", option=option, value=value, least=least, dtype=dtype
            )
    if args.min_bytes and args.max_bytes and args.min_bytes > args.max_bytes:
        raise UsageError(
            "--min-bytes {min_bytes} is above --max-bytes {max_bytes}",
            min_bytes=args.min_bytes,
            max_bytes=args.max_bytes,
        )


def _stages(text: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if text is None:
        return STAGES, ()
    asked = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in asked if part not in STAGES and part not in COLLECTIVE_STAGES]
    if unknown or not asked:
        valid = ", ".join((*STAGES, *COLLECTIVE_STAGES))
        raise UsageError(
            "--stages {text!r}: {names} is not a stage; there are {valid}",
            text=text,
            names=", ".join(unknown) or "nothing",
            valid=valid,
        )
    single = tuple(part for part in asked if part in COLLECTIVE_STAGES)
    # Nodes must have met before anything else can be checked.
    chosen = {"roll", "facts", *(part for part in asked if part in STAGES), *(["collectives"] if single else [])}
    return tuple(stage for stage in STAGES if stage in chosen), single


def _nnodes(text: str) -> int:
    low, _, high = text.partition(":")
    if not low.isdecimal() or (high and not high.isdecimal()):
        raise argparse.ArgumentTypeError(usage_text("{text!r} is not a number of nodes", text=text))
    if high and high != low:
        raise argparse.ArgumentTypeError(
            usage_text("{text}: a check needs one number of nodes, not a range", text=text)
        )
    return int(low)
