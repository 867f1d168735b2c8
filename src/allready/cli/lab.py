"""`allready lab`: make a fault laboratory on this machine, run commands in its nodes, break it, take it down."""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allready.cli.interrupts import noted_signals
from allready.cli.options import add_language, count
from allready.cli.output import deliver_json
from allready.errors import AllreadyError, UsageError
from allready.text.catalog import choose_language
from allready.text.ui import ui

if TYPE_CHECKING:  # the lab itself is imported when a command needs it
    from allready.lab import Lab
    from allready.lab.faults import Fault

_EXIT_OK = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `allready lab` and their options."""
    speaking = argparse.ArgumentParser(add_help=False)
    add_language(speaking)
    shared = argparse.ArgumentParser(add_help=False, parents=[speaking])
    shared.add_argument("--name", default="default", help="name of the lab (default: %(default)s)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=text, parents=[shared], allow_abbrev=False)

    up = action("up", "create a lab: network namespaces as nodes, connected by a network")
    up.add_argument("--nodes", type=count, default=2, help="number of nodes (default: %(default)s)")
    up.add_argument("--subnet", default="10.77.0.0/24", help="IPv4 network of the nodes (default: %(default)s)")
    up.add_argument(
        "--subnet6", default="fd00:77::/64", help="IPv6 network of the nodes; '' for none (default: %(default)s)"
    )
    up.add_argument("--mtu", type=count, default=1500, metavar="BYTES", help="MTU of all links (default: %(default)s)")
    up.add_argument("--user-namespace", action="store_true", help="use a user namespace even as root")

    run_in = action("exec", "run a command in a node; exits with its exit code (128 + N if killed by signal N)")
    run_in.add_argument("node", metavar="NODE", help="the node: 0 or node0")
    run_in.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments")

    from allready.cli import lab_run

    text = "run a command on every node with faults at an exact rank and step; exits with the job's exit code"
    running = actions.add_parser("run", help=text, description=text, parents=[speaking], allow_abbrev=False)
    lab_run.add_arguments(running)
    text = "run the fault suite of a checkout, benchmarks/fault_suite; --help shows its options"
    score = actions.add_parser("score", help=text, add_help=False, prefix_chars="\0")
    score.add_argument("options", nargs=argparse.REMAINDER)

    text = "show processes and active faults, of all labs or of one"
    status = actions.add_parser("status", help=text, description=text, parents=[speaking], allow_abbrev=False)
    status.add_argument("--name", help="only this lab (default: all labs of this user)")
    status.add_argument("--json", metavar="FILE", help="write the status as JSON to FILE (- for standard output)")

    down = action("down", "kill every process of a lab and remove it")
    down.add_argument("--all", action="store_true", help="all labs of this user")

    fault = actions.add_parser("fault", help="list, apply and lift faults", allow_abbrev=False)
    verbs = fault.add_subparsers(dest="verb", required=True, metavar="list|apply|lift")
    verbs.add_parser("list", help="list every fault with its parameters", parents=[speaking], allow_abbrev=False)
    text = "apply faults"
    apply = verbs.add_parser("apply", help=text, description=text, parents=[shared], allow_abbrev=False)
    apply.add_argument(
        "fault", nargs="*", metavar="FAULT PARAMETER=VALUE", help="for example: port_dropped node=0 port=29500"
    )
    apply.add_argument("--file", type=Path, help="read faults from a TOML file ([[fault]] tables) or a JSON list")
    text = "lift faults"
    lift = verbs.add_parser("lift", help=text, description=text, parents=[shared], allow_abbrev=False)
    lift.add_argument("id", metavar="ID", help="number of the fault, or all")


def run(args: argparse.Namespace) -> int:
    """Carry out one command."""
    if args.action == "score":
        return _score(args.options)
    language = choose_language(args.lang)
    if args.action == "run":
        from allready.cli import lab_run

        return lab_run.run(args, language)
    if args.action == "fault":
        return {"list": _list_faults, "apply": _apply, "lift": _lift}[args.verb](args, language)
    return {"up": _up, "exec": _exec, "status": _status, "down": _down}[args.action](args, language)


def _score(options: list[str]) -> int:
    """Become the fault suite, which is no part of an installed package."""
    suite = Path(__file__).resolve().parents[3] / "benchmarks" / "fault_suite"
    if not suite.is_dir():
        raise UsageError("the fault suite is in the repository only; in a checkout: python benchmarks/fault_suite")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, str(suite), *options])  # noqa: S606 - our own arguments


def _up(args: argparse.Namespace, language: str) -> int:
    from allready.lab import Lab

    begun = time.monotonic()
    lab = Lab.up(
        args.nodes,
        name=args.name,
        subnet=args.subnet,
        subnet6=args.subnet6,
        mtu_bytes=args.mtu,
        user_namespace=True if args.user_namespace else None,
    )
    duration_s = f"{time.monotonic() - begun:.2f}"
    print(ui("lab.up", language, name=lab.name, num_nodes=args.nodes, duration_s=duration_s))
    _print_nodes(lab)
    if lab.record().user_namespace:
        print(ui("lab.user_namespace", language))
    print(ui("lab.up_hint", language, name=lab.name))
    return _EXIT_OK


def _print_nodes(lab: "Lab") -> None:
    view = lab.view
    for node in range(view.num_nodes):
        print(f"  {view.name(node):8} {view.address(node):16} {view.address6(node) or ''}".rstrip())


def _node(text: str) -> int:
    match = re.fullmatch(r"(?:node)?(\d{1,4})", text)
    if not match:
        raise UsageError("{text!r} is not a node; write 0 or node0", text=text)
    return int(match.group(1))


def _exec(args: argparse.Namespace, _language: str) -> int:
    from allready.lab import Lab
    from allready.lab.lab import end_group
    from allready.proc.kill import signal_group

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command was given; write: allready lab exec NODE -- COMMAND ARGUMENT ...")
    lab, node = Lab.attach(args.name), _node(args.node)
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int) -> None:
        """Ctrl-C and the like: the command is in a session of its own and would not get them."""
        if not started:
            early.append(number)
        for process in started:
            if process.returncode is None:  # not reaped: the group's number is still its own
                signal_group(process.pid, number)

    with noted_signals(forward, besides=(signal.SIGQUIT,)):
        process = lab.popen(node, command)
        started.append(process)
        try:
            for number in early:
                forward(number)
            returncode = int(process.wait())
        finally:
            end_group(process)
    return returncode if returncode >= 0 else 128 - returncode


def _status(args: argparse.Namespace, language: str) -> int:
    from allready.lab import Lab, names

    labs: list[dict[str, Any]] = []
    for name in [args.name] if args.name else names():
        try:
            labs.append(Lab.attach(name).status())
        except UsageError:
            if args.name:
                raise
        except AllreadyError as error:
            labs.append({"name": name, "running": False, "why": str(error)})
    if args.json:
        deliver_json(args.json, {"schema": "allready.lab/1", "labs": labs})
        return _EXIT_OK
    if not labs:
        print(ui("lab.no_labs", language))
    for lab in labs:
        state = "lab.state_whole" if lab["running"] else "lab.state_broken"
        print(f"{lab['name']}: {ui(state, language, why=lab.get('why', ''))}")
        for node in lab.get("nodes", []):
            print(f"  {node['name']:8} {node['address']:16} {node['address6'] or ''}".rstrip())
        if lab["running"]:
            print(f"  {ui('lab.commands', language)}: {len(lab['commands'])}")
            print(f"  {ui('lab.faults', language)}: {'' if lab['faults'] else ui('lab.none', language)}".rstrip())
        for fault in lab.get("faults", []):
            print(f"    {fault['id']}  {_words(fault['values'])}")
    return _EXIT_OK


def _down(args: argparse.Namespace, language: str) -> int:
    from allready.lab import names, take_down

    found = names() if args.all else [args.name]
    for name in found:
        take_down(name)
        print(ui("lab.down", language, name=name))
    if not found:
        print(ui("lab.no_labs", language))
    return _EXIT_OK


def _list_faults(_args: argparse.Namespace, language: str) -> int:
    from allready.lab.faults import FAULTS
    from allready.lab.faults.catalog import usage
    from allready.lab.inject.kinds import KINDS
    from allready.lab.inject.plan import usage as rank_usage

    for kind, fault in FAULTS.items():
        print(f"{kind}{' *' if fault.scenario_only else ''}  {usage(fault, with_times=False)}")
        print(f"    {ui(f'lab.fault_{kind}', language)}")
    print()
    print(ui("lab.fault_list_footer", language))
    print()
    print(ui("lab.kind_list_header", language))
    for kind_name, rank_kind in KINDS.items():
        print(f"{kind_name}  {rank_usage(rank_kind)}")
        print(f"    {ui(f'lab.kind_{kind_name}', language)}")
    print()
    print(ui("lab.kind_list_footer", language))
    return _EXIT_OK


def _apply(args: argparse.Namespace, language: str) -> int:
    from allready.lab import Lab
    from allready.lab.faults import from_file, from_words

    if bool(args.fault) == bool(args.file):
        raise UsageError("name one fault with its parameters, or give --file; see: allready lab fault list")
    faults = from_file(args.file) if args.file else (from_words(args.fault),)
    lab = Lab.attach(args.name)
    for fault in faults:
        print(ui("lab.applied", language, id=lab.apply(fault).id, fault=_words(fault.as_dict())))
    return _EXIT_OK


def _lift(args: argparse.Namespace, language: str) -> int:
    from allready.lab import Lab

    lab = Lab.attach(args.name)
    active: dict[int, Fault] = lab.faults()
    if args.id != "all" and not args.id.isdecimal():
        raise UsageError("{number!r} is not the number of a fault; see: allready lab status", number=args.id)
    for fault_id in sorted(active, reverse=True) if args.id == "all" else [int(args.id)]:
        lab.lift(fault_id)
        print(ui("lab.lifted", language, id=fault_id, fault=_words(active[fault_id].as_dict())))
    if args.id == "all" and not active:
        print(ui("lab.no_faults", language))
    return _EXIT_OK


def _words(values: dict[str, Any]) -> str:
    """A fault as the command line has it."""
    rest = {key: value for key, value in values.items() if key != "fault"}
    words = [",".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for v in rest.values()]
    return " ".join([values["fault"], *(shlex.quote(f"{key}={word}") for key, word in zip(rest, words, strict=True))])
