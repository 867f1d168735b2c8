"""`allready doctor`: this machine alone: facts, rules, findings."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from allready.cli.interrupts import Interrupts, is_of_this_command
from allready.cli.main import EXIT_UNCHECKED, exit_code_of
from allready.cli.options import add_both_spellings, add_common, configure_logging, count, port_range, positive_s
from allready.cli.overdue import OverdueError, end_at_once, ended_within, no_end_now
from allready.cli.promise import DEADLINE_S, MARGIN_S, PROLOG_S, begun_s, overdue, slowness
from allready.errors import UsageError
from allready.text.usage import choose_language, error_text, usage_text

if TYPE_CHECKING:
    from allready.facts.apart import ReaderProcess
    from allready.model import LaunchFacts, NodeFacts, Report, Settings
    from allready.report.pieces import Block

USE_GPUS_S = 30.0
"""CUDA takes seconds to start on a machine with eight GPUs."""
JUDGING_CPU_S = 0.1
"""Of the deadline, what judging and showing take; of CPU time, which on busy CPUs lasts longer."""
ANSWER_CPU_S = 0.05
"""The same of a child's answer."""
FEWEST_S = 0.3
"""For reading facts, however late it is: what is not read in time is not judged."""
FEWEST_ASKED_S = 1.0
GRACE_S = 1.0
"""For a late answer, where a user asked for more time."""

EPILOG = """\
  allready doctor                            this machine, in 3 s; no torch, no root and no peers needed
  allready doctor --nnodes 2                 judge it as one of two nodes
  allready doctor --timeout 60               wait longer, for example for a slow import of torch
  allready doctor --use-gpus                 also ask torch and JAX for their GPUs and P2P
  allready doctor --save gpu01.json          keep the facts
  allready doctor --from gpu01.json          judge facts that were saved, also in a report.json
  allready doctor --diff gpu01.json          compare this machine with another one
  allready doctor --prolog                   one line and an exit code, for Slurm
Exit codes: 0 healthy, 1 fault, 2 usage, 3 something necessary could not be checked.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`."""
    job = parser.add_argument_group("the job, as for torchrun")
    job.add_argument(
        "--nnodes",
        type=count,
        metavar="N",
        help="judge this machine as one of N nodes (default: by the scheduler's variables, else 1)",
    )
    add_both_spellings(job, "nproc-per-node", type=count, metavar="N", help="ranks on this node (default: one per GPU)")
    add_both_spellings(job, "master-addr", metavar="HOST", help="host name or address of node 0")
    add_both_spellings(job, "master-port", type=int, metavar="PORT", help="TCP port on node 0 (default 29500)")
    facts = parser.add_argument_group("facts")
    add_both_spellings(
        facts, "port-range", type=port_range, metavar="A-B", help="which TCP ports of this range are taken, and by what"
    )
    facts.add_argument(
        "--peers", metavar="HOST,HOST", help="other machines of the job: does the packet filter here let them in"
    )
    add_both_spellings(
        facts,
        "use-gpus",
        action="store_true",
        help="ask torch and JAX for their GPUs and P2P; takes some GPU memory meanwhile",
    )
    facts.add_argument(
        "--timeout", type=positive_s, metavar="S", help="time for everything (default 3 s, with --use-gpus 30 s)"
    )
    facts.add_argument("--save", metavar="FILE", help="write the facts to FILE")
    facts.add_argument(
        "--from", dest="source", metavar="FILE", help="judge the facts in FILE, from --save or a report.json"
    )
    facts.add_argument("--diff", metavar="FILE", help="compare with the facts in FILE")
    form = parser.add_argument_group("for schedulers and monitoring")
    form.add_argument(
        "--prolog",
        action="store_true",
        help="one line with the reason, in 2 s, without a scheduler's commands; exit code 1 for a fault, else 0",
    )
    form.add_argument("--format", choices=("nagios", "ctrf", "node-condition"), help="output for a monitoring system")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Examine and judge; the exit code is the contract's."""
    limit_s = _limit_s(args)
    with Interrupts(exit_code=EXIT_UNCHECKED) as interrupts:
        if args.source or args.timeout or args.use_gpus:
            with _reader(args, limit_s, interrupts) as reader:
                return _run(args, reader)  # a user waits for all of it
        try:
            with ended_within(limit_s), _reader(args, limit_s, interrupts) as reader:
                code = _run(args, reader)
        except OverdueError:
            descriptor, text, code = overdue(limit_s=limit_s, is_prolog=args.prolog, form=args.format)
            (_write if descriptor == 1 else sys.stderr.write)(text)
        return end_at_once(code)


def _limit_s(args: argparse.Namespace) -> float:
    """Within how many seconds of its start this process promises to end."""
    if args.timeout:
        return float(args.timeout)
    return PROLOG_S if args.prolog or args.format else USE_GPUS_S if args.use_gpus else DEADLINE_S


def _run(args: argparse.Namespace, reader: "ReaderProcess | None") -> int:
    configure_logging(args.verbose)
    if args.prolog or args.format:
        return _one_line(args, reader)
    latest_s = 0.0 if reader is None else _ask(args, reader)  # before what else is imported
    from allready.cli.output import Output, check_writable, to_stdout
    from allready.preflight.doctor.examine import judge

    if args.save:
        check_writable("--save", Path(args.save))
    other = _load("--diff", args.diff) if args.diff else None
    language = choose_language(args.lang)
    with Output(args) as output:
        facts, settings = _saved(args) if reader is None else _here(reader, latest_s)
        if args.save:
            _save(args.save, facts)
        report = judge([facts] if other is None else [facts, other], settings)
        no_end_now()  # a report that is begun is shown whole
        output.finish(report)
    if args.json != "-" and not args.quiet:
        from allready.report.terminal import show_blocks

        more = _facts(report, language) if other is None else _differences(report, language)
        with to_stdout():
            show_blocks(more, sys.stdout, language)
    return exit_code_of(report.status)


def _one_line(args: argparse.Namespace, reader: "ReaderProcess | None") -> int:
    """`--prolog` and `--format`: neither the job of a scheduler nor the variables of the caller count here."""
    if reader is not None:
        from allready.facts.order import Also, FactsOrder
        from allready.preflight.doctor.request import alone

        until_s, latest_s = _until_s(args)
        reader.ask(FactsOrder(launch=alone(), also=Also(imports=False), until_s=until_s))
    from allready.preflight.doctor.examine import examine, judge, placed
    from allready.report.one_line import ctrf, line_of, nagios, node_condition

    facts = placed(_load("--from", args.source)) if reader is None else examine(reader, latest_s=latest_s).facts
    if args.save:
        try:
            _save(args.save, facts)
        except UsageError as error:
            if not args.prolog:
                raise
            from allready.report.safe import plain

            sys.stderr.write(f"allready doctor: {plain(error_text(error), most=2000)}\n")
    report = judge([facts], None)
    no_end_now()
    if args.format == "nagios":
        line, code = nagios(report)
    elif args.format:
        body = ctrf(report) if args.format == "ctrf" else node_condition(report)
        line, code = json.dumps(body, ensure_ascii=False), exit_code_of(report.status)
    else:
        line, code = f"allready: {line_of(report)}", int(report.status == "fault")
    _write(f"{line}\n")
    return code


def _reader(
    args: argparse.Namespace, limit_s: float, interrupts: Interrupts
) -> "AbstractContextManager[ReaderProcess | None]":
    """What reads this machine, already at it: it begins with what takes longest.  None where saved facts are judged."""
    if args.source:
        return nullcontext()
    from allready.facts.apart import ReaderProcess

    imports = not (args.prolog or args.format)
    return ReaderProcess(
        limit_s=limit_s, imports=imports, use_gpus=imports and args.use_gpus, before_waiting=interrupts.raise_caught
    )


def _until_s(args: argparse.Namespace) -> tuple[float, float]:
    """Until when facts are read, and until when their answer is waited for, on the monotonic clock.

    What is left of the limit since this process was started, but for what comes after: on busy CPUs that takes as much
    longer as what came before.
    """
    limit_s, now_s, times = _limit_s(args), time.monotonic(), slowness()
    latest_s = max(
        now_s + FEWEST_S,
        now_s + limit_s - begun_s(limit_s, is_program=is_of_this_command()) - MARGIN_S - JUDGING_CPU_S * times,
    )
    if args.timeout:
        return max(now_s + FEWEST_ASKED_S, latest_s), max(now_s + FEWEST_ASKED_S, latest_s) + GRACE_S
    return max(now_s + FEWEST_S, latest_s - ANSWER_CPU_S * times), latest_s


def _write(text: str) -> None:
    """To standard output; a full disk behind it fails no prolog and hides no fault."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"{text}allready doctor: {usage_text('standard output')}: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer is written at the end


def _ask(args: argparse.Namespace, reader: "ReaderProcess") -> float:
    """Ask for the facts of this machine; until when the answer is waited for."""
    from allready.facts.order import Also, FactsOrder
    from allready.preflight.doctor.request import launch_for

    flags = {
        "num_nodes": args.nnodes,
        "nproc_per_node": args.nproc_per_node,
        "master_addr": args.master_addr,
        "master_port": args.master_port,
    }
    launch, error = launch_for(flags, os.environ)
    if error is not None and any(value is not None for value in flags.values()):
        raise error
    if error is not None:
        _say("doctor.job_unknown", args, why=str(error))
    peers = tuple(name for name in (args.peers or "").replace(" ", "").split(",") if name)
    also = Also(ports=_ports(args, launch), peers=peers, use_gpus=args.use_gpus)
    until_s, latest_s = _until_s(args)
    reader.ask(FactsOrder(launch=launch, also=also, until_s=until_s))
    return latest_s


def _here(reader: "ReaderProcess", latest_s: float) -> "tuple[NodeFacts, Settings | None]":
    from allready.cli.env_settings import settings_here
    from allready.facts.live import Answered
    from allready.preflight.doctor.examine import examine

    found = examine(reader, latest_s=latest_s)
    return found.facts, _of_job(settings_here(Answered(found.conf_files), found.facts), found.facts)


def _of_job(settings: "Settings | None", facts: "NodeFacts") -> "Settings | None":
    """With what a user said of how many nodes the job has."""
    from msgspec.structs import replace

    from allready.model import FactMissing

    launch = facts.launch
    if settings is None or isinstance(launch, FactMissing) or "num_nodes" not in launch.sources:
        return settings
    return replace(settings, is_cluster=launch.num_nodes > 1)


def _ports(args: argparse.Namespace, launch: "LaunchFacts") -> tuple[int, int] | None:
    """The range that was asked for, or the master port where a user chose it."""
    if args.port_range:
        return int(args.port_range[0]), int(args.port_range[1])
    return (launch.master_port,) * 2 if "master_port" in launch.sources else None


def _saved(args: argparse.Namespace) -> "tuple[NodeFacts, Settings | None]":
    from msgspec.structs import replace

    from allready.cli.env_settings import settings_of
    from allready.model import FactMissing
    from allready.preflight.doctor.examine import placed
    from allready.preflight.doctor.request import alone

    facts = _load("--from", args.source)
    launch = alone() if isinstance(facts.launch, FactMissing) else facts.launch
    sources = dict(launch.sources)
    given = {
        "num_nodes": args.nnodes,
        "nproc_per_node": args.nproc_per_node,
        "master_addr": args.master_addr,
        "master_port": args.master_port,
    }
    given = {name: value for name, value in given.items() if value is not None}
    sources |= dict.fromkeys(given, "flag")
    facts = placed(replace(facts, launch=replace(launch, node_rank=0, sources=sources, **given)))
    return facts, _of_job(settings_of(facts), facts)


def _load(option: str, path: str) -> "NodeFacts":
    from allready.cli.doctor_files import load  # which takes as long to import as the rest of this command

    return load(option, path)


def _save(path: str, facts: "NodeFacts") -> None:
    from allready.cli.doctor_files import save

    save(path, facts)


def _facts(report: "Report", language: str) -> "Iterator[Block]":
    """What was looked at."""
    from allready.report.facts_lines import facts_lines
    from allready.report.pieces import Gap, Piece, StyledLine
    from allready.text.ui import ui

    yield Gap()
    yield StyledLine((Piece(ui("doctor.facts", language), "bold"),))
    yield from facts_lines(report.facts[0], language)


def _differences(report: "Report", language: str) -> "Iterator[Block]":
    """What is not the same on both, but for what is each machine's own by nature."""
    from allready.report.facts_table import rows
    from allready.report.pieces import Gap, Piece, StyledLine
    from allready.report.safe import plain
    from allready.text.ui import ui

    yield Gap()
    names = {node.node_rank: node.name for node in report.world.nodes}
    if len(set(names.values())) < len(names):  # containers and images often have the same
        names = {number: f"{name} ({number})" for number, name in names.items()}
    found = rows(report.facts)
    different = [row for row in found if not row.same and not row.own]
    if not different:
        looked_at = [row for row in found if row.group != "launch"]  # that is what the caller says
        is_known = any(not value.missing for row in looked_at for value in row.values.values())
        yield StyledLine((Piece(ui("doctor.same" if is_known else "doctor.nothing_known", language)),))
    for row in different:
        label = (
            f"{ui(f'report.group_{row.group}', language)}{ui('report.colon', language)}{row.label.text_in(language)}"
        )
        values = [
            f"{plain(names.get(node) or str(node))}={value.text_in(language)}" for node, value in row.values.items()
        ]
        yield StyledLine((Piece(f"{label}  "), Piece(ui("report.semicolon", language).join(values), "bold")))


def _say(key: str, args: argparse.Namespace, **values: str) -> None:
    from allready.report.safe import plain
    from allready.text.ui import ui

    text = ui(key, choose_language(args.lang), **values)
    sys.stderr.write(f"allready doctor: {plain(text, most=2000)}\n")
