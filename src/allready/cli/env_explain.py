"""`allready env explain`: the page of a variable, and what a value means on this machine."""

import argparse
import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from allready.cli.env_machine import ThisMachine, read_machine
from allready.cli.explain import MAX_SUGGESTIONS
from allready.cli.main import EXIT_HEALTHY
from allready.cli.output import deliver_json
from allready.errors import UsageError
from allready.facts.live import LiveHost
from allready.report.pieces import Block, Gap, Grid, Piece, StyledLine
from allready.report.terminal import show_blocks
from allready.text.catalog import choose_language
from allready.text.ui import ui
from allready.variables import names, table
from allready.variables.meaning import Meaning, meaning
from allready.variables.table import Type, Variable
from allready.variables.versions import Standing, found_of, nccl_backend, standing

SCHEMA = "allready.variables/1"
_BAD = {Standing.REMOVED, Standing.NOT_YET, Standing.IGNORED}


def run(args: argparse.Namespace) -> int:
    """Print the pages or the list; 0.

    Raises:
        UsageError: no such variable; the message names those that are alike.
    """
    language = choose_language(args.lang)
    if args.list is not None:
        rows = [row for name, row in sorted(table.load().items()) if name.startswith(args.list)]
        if args.names or args.value is not None:
            raise UsageError("--list takes one PREFIX, and neither NAME nor --value")
        if not rows:
            raise UsageError("no variable begins with {prefix!r}", prefix=args.list)
        _show(args.json, _list(rows, language), [_data(row, language, [], Standing.READ) for row in rows], language)
        return EXIT_HEALTHY
    asked = _asked(args.names, args.value)
    pages = [(name, value, _named(name, language)) for name, value in asked]
    with_value = any(value is not None for _, value, _ in pages)
    machine = read_machine(LiveHost(), only=None if with_value else ("software",))
    blocks: list[Block] = []
    written: list[dict[str, Any]] = []
    for number, (name, value, row) in enumerate(pages):
        blocks += [Gap()] if number else []
        if row is None:
            text = _elsewhere(name, language)
            blocks.append(StyledLine((Piece(f"{name} ", "bold"), Piece(text))))
            written.append({"name": name, "what": text})
            continue
        means = _meaning(row, value, machine)
        blocks += _page(row, value, means, machine, language)
        written.append(_data(row, language, means, _standing(row, machine)))
    _show(args.json, blocks, written, language)
    return EXIT_HEALTHY


def _show(target: str | None, blocks: Iterable[Block], pages: Sequence[dict[str, Any]], language: str) -> None:
    """The pages on the terminal, and as JSON where that is asked for."""
    if target:
        deliver_json(target, {"schema": SCHEMA, "language": language, "variables": pages})
    if target != "-":
        show_blocks(blocks, sys.stdout, language)


def _asked(words: Sequence[str], value: str | None) -> list[tuple[str, str | None]]:
    """Names with the value that is asked about.

    Raises:
        UsageError: no name, or one value for several names.
    """
    if not words:
        raise UsageError("name a variable, for example: allready env explain NCCL_IB_TIMEOUT; --list shows them all")
    if value is not None and len(words) > 1:
        raise UsageError("--value takes one NAME")
    pairs = [(word.partition("=")[0], word.partition("=")[2] if "=" in word else None) for word in words]
    return [(pairs[0][0], value)] if value is not None else pairs


def _named(name: str, language: str) -> Variable | None:
    """The row of `name`; None for a name of other software.

    Raises:
        UsageError: nothing knows it.
    """
    found = table.find(name) or table.find(name.upper())
    if found is not None or _other(name) is not None or _seen(name):
        return found
    upper = name.upper()
    alike = names.nearest(name, most=MAX_SUGGESTIONS)
    alike += difflib.get_close_matches(upper, table.load(), n=MAX_SUGGESTIONS, cutoff=0.7)
    alike += [n for n in table.load() if len(upper) > 4 and upper in n]
    rows = "\n".join(f"  {_suggestion(n, language)}" for n in list(dict.fromkeys(alike))[:MAX_SUGGESTIONS])
    if not rows:
        raise UsageError("unknown variable {name!r}; allready env explain --list lists the known ones", name=name)
    raise UsageError("unknown variable {name!r}; did you mean\n{rows}", name=name, rows=rows)


def _suggestion(name: str, language: str) -> str:
    row = table.load().get(name)
    return name if row is None else f"{name}: {row.text('what', language)}"


def _seen(name: str) -> str:
    """First and last release of jaxlib that has a flag of XLA without a row; "" for other names."""
    return table.flags_seen().flags.get(f"--{name.lstrip('-')}", "")


def _other(name: str) -> tuple[str, table.Elsewhere] | None:
    """The list that a name without a row is in."""
    if (entry := table.is_elsewhere(name)) is not None:
        return "elsewhere", entry
    entry = next((e for e in table.not_variables() if name in e.names), None)
    return ("not_a_variable", entry) if entry else None


def _elsewhere(name: str, language: str) -> str:
    if between := _seen(name):
        first, last = between.split()
        seen = table.flags_seen().releases
        taken = table.flag_types().get(f"--{name.lstrip('-')}", Type.TEXT)
        takes = ui(f"env.type_{taken.value}", language)
        return ui("env.flag_seen", language, first=first, last=last, takes=takes, oldest=seen[0], newest=seen[-1])
    found = _other(name)
    assert found is not None
    kind, entry = found
    why = entry.why_zh if language == "zh" else entry.why
    return ui("env.elsewhere" if kind == "elsewhere" else "env.not_a_variable", language, why=why)


def _standing(row: Variable, machine: ThisMachine) -> Standing:
    return standing(row, machine.versions, nccl_backend(machine.versions, os.environ.get("TORCH_DIST_USE_NCCL2")))


def _meaning(row: Variable, value: str | None, machine: ThisMachine) -> list[Meaning]:
    if value is None:
        return []
    found = meaning(row, value, machine.here())
    if row.type is Type.PATH and row.name.endswith("FILE") and value.startswith("/") and "%" not in value:
        found.append(Meaning("path_here" if Path(value).exists() else "path_missing"))
    return found


def _page(
    row: Variable, value: str | None, means: Sequence[Meaning], machine: ThisMachine, language: str
) -> Iterator[Block]:
    yield StyledLine((Piece(f"{row.name} ", "bold"), Piece(row.text("what", language))))
    if value is not None:
        for meant in means:
            style = "code" if meant.problem is None else "bad"
            text = ui(f"env.means_{meant.key}", language, **meant.values)
            yield StyledLine((Piece(text, style),), lead=Piece(f"{row.name}={value}", "dim"), indent=2)
        yield Gap()
    for name, text, style in _fields(row, machine, language):
        if text:
            yield StyledLine((Piece(text, style),), lead=Piece(ui(f"env.{name}", language), "dim"), indent=2)


def _fields(row: Variable, machine: ThisMachine, language: str) -> Iterator[tuple[str, str, str]]:
    """Name, text and style of each line of a page; empty texts are left out."""
    typed = ui(f"env.type_{row.type.value.replace('-', '_')}", language)
    if row.syntax is not None and row.type in {Type.BOOL, Type.INT, Type.SIZE, Type.FLOAT}:
        typed += f" ({ui(f'env.syntax_{row.syntax.value}', language)})"
    if row.is_folk:
        yield "readers", ui("env.folk", language), "warn"
        yield "use", row.use, "code"
        yield "risk", row.text("risk", language), ""
        return
    yield "type", typed, ""
    yield "values", ", ".join(row.values), ""
    yield "range", _span(row), ""
    yield "default", f"{row.text('default', language)} {row.unit}".strip(), ""
    yield "readers", ", ".join(_readers(row.readers, language)), ""
    yield "ignored_by", ", ".join(_readers(row.ignored_by, language)), ""
    for name in ("since", "deprecated", "removed"):
        version = getattr(row, name)
        yield name, f"{row.software} {version}" if version else "", "warn" if name != "since" else ""
    yield "use", row.use, "code"
    yield "set_by", row.set_by, ""
    yield "here", _here(row, machine, language), "bad" if _standing(row, machine) in _BAD else ""
    yield "risk", row.text("risk", language), ""
    yield "cost", row.text("cost", language), ""
    yield "related", ", ".join(row.related), "code"
    yield "source", row.source + ("" if row.public else f" ({ui('env.undocumented', language)})"), "dim"


def _span(row: Variable) -> str:
    if row.range is None:
        return ""
    low, high = row.range
    return f"{'' if low is None else f'{low:g}'} .. {'' if high is None or high >= 1e6 else f'{high:g}'}".strip()


def _readers(readers: Sequence[Any], language: str) -> list[str]:
    return [ui(f"env.reader_{reader.value.replace('-', '_')}", language) for reader in readers]


def _here(row: Variable, machine: ThisMachine, language: str) -> str:
    """What the version found does with it, and what it is set to."""
    parts = []
    version = found_of(row.owner, machine.versions)
    if version:
        key = f"env.standing_{_standing(row, machine).value.replace('-', '_')}"
        parts.append(ui(key, language, owner=row.software, version=".".join(map(str, version))))
    if row.name in os.environ:
        parts.append(ui("env.is_set", language, value=os.environ[row.name][:200]))
    return ui("report.semicolon", language).join(parts)


def _list(rows: Sequence[Variable], language: str) -> Iterator[Block]:
    body = tuple(
        (
            Piece(row.name, "dim" if row.is_folk or row.removed else ""),
            Piece(row.software),
            Piece(row.text("what", language)),
        )
        for row in rows
    )
    yield Grid(head=("", "", ui("env.listed", language, count=len(rows))), rows=body, right=(False,) * 3)


def _data(row: Variable, language: str, means: Sequence[Meaning], stands: Standing) -> dict[str, Any]:
    """A page as data: the row, its texts in one language, and what a value means."""
    flat: dict[str, Any] = to_builtins(row)
    for name in ("what", "risk", "cost"):
        flat[name] = row.text(name, language)
        del flat[f"{name}_zh"]
    texts = [ui(f"env.means_{m.key}", language, **m.values) for m in means]
    return {**flat, "standing": stands, "is_folk": row.is_folk, "meaning": texts}
