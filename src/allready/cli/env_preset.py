"""`allready env preset`: settings for one purpose, computed for this machine."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator

from msgspec import to_builtins
from msgspec.structs import replace

from allready.cli.env_machine import addresses_of, read_machine, towards
from allready.cli.main import EXIT_HEALTHY
from allready.cli.options import count
from allready.errors import UsageError
from allready.facts.live import LiveHost
from allready.report.pieces import Block, Gap, Line, Piece
from allready.report.terminal import show_blocks
from allready.text.catalog import choose_language
from allready.text.ui import ui
from allready.variables import presets, table
from allready.variables.here import Here
from allready.variables.presets import Preset

SCHEMA = "allready.preset/1"
RESOLVE_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `env preset`."""
    parser.add_argument("name", metavar="NAME", nargs="?", help=", ".join(presets.NAMES))
    parser.add_argument(
        "--peers", metavar="HOST,...", help="the other nodes: chooses the interface (default: MASTER_ADDR)"
    )
    parser.add_argument("--nproc-per-node", type=count, metavar="N", help="processes per node (default: one per GPU)")
    for name in ("torch", "nccl", "jax"):
        parser.add_argument(f"--{name}", metavar="VERSION", help=f"version of {name} (default: the one found here)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--shell", action="store_true", help="export lines, for eval or a script")
    form.add_argument("--json", action="store_true", help="values and reasons as JSON")
    form.add_argument("--dockerfile", action="store_true", help="ENV lines, without what belongs to one machine")
    form.add_argument(
        "--sbatch", action="store_true", help="export lines for a batch script, which runs on other machines"
    )


def run(args: argparse.Namespace) -> int:
    """Print the preset; 0.

    Raises:
        UsageError: no such preset, a peer that does not resolve, or a machine that lacks what the preset is for.
    """
    language = choose_language(args.lang)
    if args.name is None:
        raise UsageError(f"name a preset: {', '.join(presets.NAMES)}")
    made = presets.preset(args.name, _here(args))
    if args.json:
        sys.stdout.write(_json(made, language))
    elif args.shell:
        sys.stdout.writelines(f"{line}\n" for line in _shell(made, language))
    elif args.dockerfile:
        sys.stdout.writelines(f"{line}\n" for line in _dockerfile(made, language))
    elif args.sbatch:
        sys.stdout.writelines(f"{line}\n" for line in _sbatch(made, language, args.peers))
    else:
        show_blocks(_blocks(made, language), sys.stdout, language)
    return EXIT_HEALTHY


def _here(args: argparse.Namespace) -> Here:
    """This machine, with the way to the peers."""
    host = LiveHost()
    machine = read_machine(host).having(torch=args.torch, nccl=args.nccl, jax=args.jax)
    here = replace(machine.here(), nproc=args.nproc_per_node)
    peers = tuple(filter(None, (args.peers or os.environ.get("MASTER_ADDR", "")).split(",")))
    if not peers or here.net is None:
        return here
    addresses = addresses_of(host, peers, timeout_s=RESOLVE_S)
    unresolved = [peer for peer, found in addresses.items() if not found]
    if unresolved and args.peers:
        raise UsageError(f"--peers: {', '.join(unresolved)} does not resolve on this machine")
    interface = towards(here.net, [address for found in addresses.values() for address in found])
    return replace(here, peers=peers, interface=interface)


def _blocks(made: Preset, language: str) -> Iterator[Block]:
    key = made.name.replace("-", "_")
    yield Line((Piece(f"{made.name} ", "bold"), Piece(ui(f"env.preset_{key}_what", language))))
    yield Gap()
    for line in made.lines:
        yield Line((Piece(f"{line.name}={line.value}", "code"),), indent=2)
        yield Line((Piece(_reason(line, language), "dim"),), indent=6)
    if not made.lines:
        yield Line((Piece(ui("env.preset_nothing", language)),), indent=2)
    if made.loader:
        yield Gap()
        yield Line((Piece(ui("env.preset_loader", language), "bold"),), indent=2)
        for line in made.loader:
            yield Line((Piece(f"{line.name}={line.value}", "code"),), indent=2)
            yield Line((Piece(_reason(line, language), "dim"),), indent=6)
    yield Gap()
    for note in _notes(made, language):
        yield Line((Piece(note),), lead=Piece(ui("env.preset_notes", language), "dim"), indent=2)
    text = ui(f"env.preset_{key}_folk", language)
    yield Line((Piece(text),), lead=Piece(ui("env.preset_folk", language), "dim"), indent=2)


def _reason(line: presets.Line, language: str) -> str:
    return ui(f"env.why_{line.reason}", language, **line.values)


def _notes(made: Preset, language: str) -> list[str]:
    notes = [ui(f"env.note_{note.key}", language, **note.values) for note in made.notes]
    if any(_is_of_machine(line) for line in made.lines):
        notes.append(ui("env.note_per_node", language))
    return notes


def _is_of_machine(line: presets.Line) -> bool:
    """Whether the line names an interface, a device or a file of this machine; lo is everywhere."""
    return table.load()[line.name].machine and line.value != presets.LOOPBACK and "%" not in line.value


def _loader(made: Preset, language: str) -> list[str]:
    arguments = ", ".join(f"{line.name}={line.value}" for line in made.loader)
    return [f"# {ui('env.preset_loader', language)}({arguments})"] if made.loader else []


def _shell(made: Preset, language: str) -> Iterator[str]:
    yield f"# allready env preset {made.name}"
    for line in made.lines:
        yield f"export {line.name}={shlex.quote(line.value)}  # {_reason(line, language)}"
    yield from _loader(made, language)
    yield from (f"# {note}" for note in _notes(made, language))


def _dockerfile(made: Preset, language: str) -> Iterator[str]:
    yield f"# allready env preset {made.name}"
    for line in made.lines:
        if not _is_of_machine(line):
            value = line.value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
            yield f"# {_reason(line, language)}"
            yield f'ENV {line.name}="{value}"'
    yield from _loader(made, language)
    yield from (f"# {note}" for note in _notes(made, language))


def _sbatch(made: Preset, language: str, peers: str | None) -> Iterator[str]:
    """What is alike on all nodes as exports; the rest is computed where the tasks run."""
    yield f"# allready env preset {made.name}"
    own = [line for line in made.lines if _is_of_machine(line)]
    for line in made.lines:
        if line not in own:
            yield f"export {line.name}={shlex.quote(line.value)}  # {_reason(line, language)}"
    if own or peers is None:
        yield 'export ALLREADY_PEERS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)"'
        command = f'eval "$(allready env preset {made.name} --shell --peers "$ALLREADY_PEERS")" && exec "$@"'
        yield f"# srun bash -c '{command}' - python train.py"
    yield from _loader(made, language)
    yield from (f"# {note}" for note in _notes(made, language))


def _json(made: Preset, language: str) -> str:
    body = {
        "schema": SCHEMA,
        "name": made.name,
        "values": made.values,
        "lines": [{"name": line.name, "value": line.value, "reason": _reason(line, language)} for line in made.lines],
        "loader": {line.name: line.value for line in made.loader},
        "notes": _notes(made, language),
    }
    return json.dumps(to_builtins(body), ensure_ascii=False, indent=1) + "\n"
