"""`allready env preset`: settings for one purpose, computed for this machine."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from allready.cli.env_machine import ThisMachine, addresses_of, read_machine, towards
from allready.cli.main import EXIT_HEALTHY
from allready.cli.output import deliver_json
from allready.errors import UsageError
from allready.facts.live import LiveHost
from allready.launch.request import Note, RunRequest
from allready.report.pieces import Block, Gap, Piece, StyledLine
from allready.report.terminal import show_blocks
from allready.text.catalog import choose_language
from allready.text.ui import ui
from allready.variables import presets, table
from allready.variables.here import Here
from allready.variables.presets import Preset

SCHEMA = "allready.preset/1"
RESOLVE_S = 2.0


def run(args: argparse.Namespace) -> int:
    """Print the preset; 0.

    Raises:
        UsageError: no such preset, a peer that does not resolve, or a machine that lacks what the preset is for.
    """
    language = choose_language(args.lang)
    if args.name is None:
        if args.json or args.shell or args.dockerfile or args.sbatch:
            raise UsageError("name a preset: {names}", names=", ".join(presets.NAMES))
        rows = [StyledLine((Piece(_purpose(name, language)),), lead=Piece(name, "bold")) for name in presets.NAMES]
        show_blocks(rows, sys.stdout, language)
        return EXIT_HEALTHY
    machine = read_machine(LiveHost()).having(torch=args.torch, nccl=args.nccl, jax=args.jax)
    if args.dockerfile or args.sbatch:
        here = replace(machine.here(), nproc=args.nproc_per_node).elsewhere()
    else:
        peers = (args.peers or os.environ.get("MASTER_ADDR", "")).split(",")
        here = here_for(peers, machine, args.nproc_per_node, is_asked=bool(args.peers))
    made = presets.preset(args.name, here)
    if args.json:
        deliver_json("-", _body(made, language))
    elif args.shell:
        sys.stdout.write(_script(made, language, (_export(line, language) for line in made.lines)))
    elif args.dockerfile:
        sys.stdout.write(_script(made, language, _dockerfile(made, language)))
    elif args.sbatch:
        sys.stdout.write(_script(made, language, _sbatch(made, language)))
    else:
        show_blocks(_blocks(made, language), sys.stdout, language)
    return EXIT_HEALTHY


def here_for(peers: Iterable[str], machine: ThisMachine, nproc: int | None, *, is_asked: bool = False) -> Here:
    """This machine, with the way to the peers.

    Raises:
        UsageError: a peer that was asked for does not resolve.
    """
    here = replace(machine.here(), nproc=nproc)
    named = tuple(filter(None, peers))
    if not named or here.net is None:
        return here
    addresses = addresses_of(LiveHost(), named, timeout_s=RESOLVE_S)
    unresolved = [peer for peer, found in addresses.items() if not found]
    if unresolved and is_asked:
        raise UsageError("--peers: this machine cannot resolve {names}", names=", ".join(unresolved))
    interface = towards(here.net, [address for found in addresses.values() for address in found])
    return replace(here, peers=named, interface=interface)


def with_preset(request: RunRequest, name: str, environ: Mapping[str, str]) -> RunRequest:
    """Orders of `allready run` with a preset's variables for the ranks; what the user has set stays.

    Raises:
        UsageError: no such preset, or this machine lacks what it is for.
    """
    peers = [request.master_addr] if request.master_addr and request.max_nodes > 1 else []
    made = presets.preset(name, here_for(peers, read_machine(LiveHost()), request.nproc_per_node))
    values = made.values
    own = {**environ, **request.environment}
    added = {n: value for n, value in values.items() if n not in own}
    text = " ".join(f"{n}={value}" for n, value in added.items())
    notes = [Note(key="workers.preset", values={"name": name, "variables": text})] if added else []
    if made.loader:
        notes.append(Note(key="workers.preset_loader", values={"name": name, "arguments": _arguments(made)}))
    kept = [n for n, value in values.items() if own.get(n, value) != value]
    notes += [Note(key="workers.variable_kept", values={"name": n, "value": own[n]}) for n in kept]
    environment = {**added, **request.environment}
    return replace(request, environment=environment, notes=(*request.notes, *notes))


def _blocks(made: Preset, language: str) -> Iterator[Block]:
    yield StyledLine((Piece(f"{made.name} ", "bold"), Piece(_purpose(made.name, language))))
    yield Gap()
    yield from _lines(made.lines, language)
    if not made.lines:
        yield StyledLine((Piece(ui("env.preset_nothing", language)),), indent=2)
    if made.loader:
        yield Gap()
        yield StyledLine((Piece(ui("env.preset_loader", language), "bold"),), indent=2)
        yield from _lines(made.loader, language)
    yield Gap()
    for note in _notes(made, language):
        yield StyledLine((Piece(note),), lead=Piece(ui("env.preset_notes", language), "dim"), indent=2)
    text = ui(f"env.preset_{made.name.replace('-', '_')}_folk", language)
    yield StyledLine((Piece(text),), lead=Piece(ui("env.preset_folk", language), "dim"), indent=2)


def _lines(lines: Iterable[presets.PresetLine], language: str) -> Iterator[Block]:
    for line in lines:
        yield StyledLine((Piece(f"{line.name}={line.value}", "code"),), indent=2)
        yield StyledLine((Piece(_reason(line, language), "dim"),), indent=6)


def _purpose(name: str, language: str) -> str:
    return ui(f"env.preset_{name.replace('-', '_')}_what", language)


def _reason(line: presets.PresetLine, language: str) -> str:
    return ui(f"env.why_{line.reason}", language, **line.values)


def _notes(made: Preset, language: str) -> list[str]:
    notes = [ui(f"env.note_{note.key}", language, **note.values) for note in made.notes]
    if any(_is_of_machine(line) for line in made.lines):
        notes.append(ui("env.note_per_node", language))
    return notes


def _is_of_machine(line: presets.PresetLine) -> bool:
    """Whether the line names an interface, a device or a file of this machine; lo is everywhere."""
    return table.load()[line.name].machine and line.value != presets.LOOPBACK and "%" not in line.value


def _script(made: Preset, language: str, lines: Iterable[str]) -> str:
    """Lines of a script between the name of the preset and what it leaves to people."""
    comments = [f"{ui('env.preset_loader', language)}({_arguments(made)})"] if made.loader else []
    comments += _notes(made, language)
    return "".join(
        f"{line}\n" for line in (f"# allready env preset {made.name}", *lines, *(f"# {c}" for c in comments))
    )


def _arguments(made: Preset) -> str:
    return ", ".join(f"{line.name}={line.value}" for line in made.loader)


def _export(line: presets.PresetLine, language: str) -> str:
    return f"export {line.name}={shlex.quote(line.value)}  # {_reason(line, language)}"


def _dockerfile(made: Preset, language: str) -> Iterator[str]:
    for line in made.lines:
        value = line.value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
        yield f"# {_reason(line, language)}"
        yield f'ENV {line.name}="{value}"'


def _sbatch(made: Preset, language: str) -> Iterator[str]:
    """What is alike on all nodes as exports; the rest is computed where the tasks run."""
    yield from (_export(line, language) for line in made.lines)
    yield 'export ALLREADY_PEERS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)"'
    command = f'eval "$(allready env preset {made.name} --shell --peers "$ALLREADY_PEERS")" && exec "$@"'
    yield f"# srun bash -c '{command}' - python train.py"


def _body(made: Preset, language: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": made.name,
        "values": made.values,
        "lines": [{"name": line.name, "value": line.value, "reason": _reason(line, language)} for line in made.lines],
        "loader": {line.name: line.value for line in made.loader},
        "notes": _notes(made, language),
    }
