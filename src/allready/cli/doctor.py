"""`allready doctor`: this machine alone: facts, rules, findings."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from allready.cli.interrupts import Interrupts
from allready.cli.main import EXIT_UNCHECKED, exit_code_of
from allready.cli.options import add_both_spellings, add_common, configure_logging, count, port_range, positive_s
from allready.cli.overdue import OverdueError, age_s, ended_within
from allready.errors import UsageError
from allready.model import FactMissing, LaunchFacts, NodeFacts, Report, Settings
from allready.proc.priority import has_hurried
from allready.report.pieces import Block, Gap, Line, Piece
from allready.report.safe import plain
from allready.text.catalog import choose_language
from allready.text.ui import ui

DEADLINE_S = 3.0
USE_GPUS_S = 30.0
"""CUDA takes seconds to start on a machine with eight GPUs."""
PROLOG_S = 2.0
SETUP_S = 0.5
"""Of the deadline, what judging and showing take on an idle machine."""
FEWEST_S = 1.5
"""For reading facts, however late it is: what is not read in time is not judged."""
FEWEST_OF_PROLOG_S = 0.5
FEWEST_ASKED_S = 1.0

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
    with Interrupts(exit_code=EXIT_UNCHECKED):
        if args.source or args.timeout or not (args.prolog or args.format):
            return _run(args)  # somebody waits for all of it
        try:
            with ended_within(PROLOG_S):
                return _run(args)
        except OverdueError:
            return _overdue(args, PROLOG_S)


def _overdue(args: argparse.Namespace, limit_s: float) -> int:
    """The CPUs had no time for it: a scheduler is told so in time, and nothing is judged."""
    load = f"{os.getloadavg()[0]:.0f}"
    why = ui("doctor.overdue", choose_language(args.lang), limit=f"{limit_s:g}", load=load, cpus=str(os.cpu_count()))
    if args.prolog or args.format == "nagios":
        _write(f"ALLREADY UNKNOWN - {why}\n" if args.format else f"allready: {why}\n")
        return 3 if args.format else 0
    sys.stderr.write(f"allready doctor: {plain(why, most=2000)}\n")
    return EXIT_UNCHECKED


def _run(args: argparse.Namespace) -> int:
    configure_logging(args.verbose)
    if args.prolog or args.format:
        return _one_line(args)
    from allready.cli.doctor_files import load, save
    from allready.cli.output import Output, check_writable
    from allready.preflight.doctor.examine import judge

    if args.save:
        check_writable("--save", Path(args.save))
    other = load("--diff", args.diff) if args.diff else None
    language = choose_language(args.lang)
    with Output(args) as output:
        facts, settings = _saved(args) if args.source else _here(args)
        if args.save:
            save(args.save, facts)
        report = judge([facts] if other is None else [facts, other], settings)
        output.finish(report)
    if args.json != "-" and not args.quiet:
        from allready.report.terminal import show_blocks

        more = _facts(report, language) if other is None else _differences(report, language)
        show_blocks(more, sys.stdout, language)
    return exit_code_of(report.status)


def _one_line(args: argparse.Namespace) -> int:
    """`--prolog` and `--format`: neither the job of a scheduler nor the variables of whoever calls count here."""
    from allready.cli.doctor_files import load, save
    from allready.facts.collect import Also
    from allready.preflight.doctor.examine import examine, judge, placed
    from allready.preflight.doctor.request import alone
    from allready.report.one_line import ctrf, line_of, nagios, node_condition

    if args.source:
        facts = placed(load("--from", args.source))
    else:
        facts = examine(alone(), deadline_s=_deadline_s(args.timeout, PROLOG_S), also=Also(imports=False)).facts
    if args.save:
        try:
            save(args.save, facts)
        except UsageError as error:
            if not args.prolog:
                raise
            sys.stderr.write(f"allready doctor: {plain(str(error), most=2000)}\n")
    report = judge([facts], None)
    if args.format == "nagios":
        line, code = nagios(report)
    elif args.format:
        body = ctrf(report) if args.format == "ctrf" else node_condition(report)
        line, code = json.dumps(body, ensure_ascii=False), exit_code_of(report.status)
    else:
        line, code = f"allready: {line_of(report)}", int(report.status == "fault")
    _write(f"{line}\n")
    return code


def _deadline_s(asked_s: float | None, limit_s: float) -> float:
    """For reading facts: what somebody asked for, else what is left of the limit since this process was started.

    On a loaded machine the end takes as long as the start, but not where this process has the CPUs first since then.
    One that is older than the limit was not started for this.
    """
    if asked_s is not None:
        return max(FEWEST_ASKED_S, asked_s - SETUP_S)
    age = age_s()
    begun_s = age if age < limit_s else 0.0
    fewest_s = FEWEST_OF_PROLOG_S if limit_s <= PROLOG_S else FEWEST_S
    return max(fewest_s, limit_s - begun_s - (SETUP_S if has_hurried() else max(SETUP_S, begun_s)))


def _write(text: str) -> None:
    """To standard output; a full disk behind it fails no prolog and hides no fault."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"{text}allready doctor: standard output: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer is written at the end


def _here(args: argparse.Namespace) -> tuple[NodeFacts, Settings | None]:
    from allready.cli.env_lint import settings_here
    from allready.facts.apart import Answered
    from allready.facts.collect import Also
    from allready.preflight.doctor.examine import examine
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
    deadline_s = _deadline_s(args.timeout, USE_GPUS_S if args.use_gpus else DEADLINE_S)
    peers = tuple(name for name in (args.peers or "").replace(" ", "").split(",") if name)
    also = Also(ports=_ports(args, launch), peers=peers, use_gpus=args.use_gpus)
    found = examine(launch, deadline_s=deadline_s, also=also)
    return found.facts, settings_here(Answered(found.conf_files), found.facts)


def _ports(args: argparse.Namespace, launch: LaunchFacts) -> tuple[int, int] | None:
    """The range that was asked for, or the master port where somebody chose it."""
    if args.port_range:
        return int(args.port_range[0]), int(args.port_range[1])
    return (launch.master_port,) * 2 if "master_port" in launch.sources else None


def _saved(args: argparse.Namespace) -> tuple[NodeFacts, Settings | None]:
    from msgspec.structs import replace

    from allready.cli.doctor_files import load
    from allready.cli.env_lint import settings_of
    from allready.preflight.doctor.examine import placed
    from allready.preflight.doctor.request import alone

    facts = load("--from", args.source)
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
    return facts, settings_of(facts)


def _facts(report: Report, language: str) -> Iterator[Block]:
    """What was looked at."""
    from allready.report.facts_lines import facts_lines

    yield Gap()
    yield Line((Piece(ui("doctor.facts", language), "bold"),))
    yield from facts_lines(report.facts[0], language)


def _differences(report: Report, language: str) -> Iterator[Block]:
    """What is not the same on both, but for what is each machine's own by nature."""
    from allready.report.facts_table import rows

    yield Gap()
    names = {node.node_rank: node.name for node in report.world.nodes}
    different = [row for row in rows(report.facts) if not row.same and not row.own]
    if not different:
        yield Line((Piece(ui("doctor.same", language)),))
    for row in different:
        label = (
            f"{ui(f'report.group_{row.group}', language)}{ui('report.colon', language)}{row.label.text_in(language)}"
        )
        values = [
            f"{plain(names.get(node) or str(node))}={value.text_in(language)}" for node, value in row.values.items()
        ]
        yield Line((Piece(f"{label}  "), Piece(ui("report.semicolon", language).join(values), "bold")))


def _say(key: str, args: argparse.Namespace, **values: str) -> None:
    text = ui(key, choose_language(args.lang), **values)
    sys.stderr.write(f"allready doctor: {plain(text, most=2000)}\n")
