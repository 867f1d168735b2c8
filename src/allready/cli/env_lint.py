"""`allready env lint`: settings that are wrong, in this environment, in files, or between nodes."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from allready.bundle.read import Bundle, BundleError, is_bundle, is_packed, read_bundle
from allready.cli.env_files import Unreadable, head_of, is_text, read_files
from allready.cli.env_machine import ThisMachine, read_machine
from allready.cli.env_settings import ENVIRONMENT, environment, is_cluster_here, settings_in
from allready.cli.main import EXIT_FAULT, EXIT_HEALTHY, EXIT_UNCHECKED
from allready.cli.output import deliver_json
from allready.errors import UsageError
from allready.facts.env import is_read
from allready.facts.live import LiveHost
from allready.judging.engine import crashed, judge
from allready.judging.loading import load_area
from allready.model import (
    EnvFacts,
    FactMissing,
    Finding,
    Fleet,
    NodeFacts,
    NotChecked,
    Settings,
    Severity,
    Slip,
    SourceKind,
    World,
    WorldNode,
)
from allready.model.fill import in_english, said
from allready.patterns import compiled
from allready.redaction import masked_all, redact
from allready.report.blocks import SEVERITY_STYLE
from allready.report.pieces import Block, Gap, Piece, StyledLine
from allready.report.safe import plain
from allready.report.terminal import show_blocks
from allready.report.words import phrase, steps
from allready.text.catalog import choose_language, remedy_parts, remedy_text, say, say_phrase, say_remedies
from allready.text.ui import ui
from allready.variables import table
from allready.variables.sources.parsed import Parsed, read_environment
from allready.variables.sources.read import read_text
from allready.variables.sources.structured import YamlMissingError

SCHEMA = "allready.env-lint/1"
_NEEDED = ("net", "rdma", "gpu", "software")
_OTHERS_SOFTWARE = {SourceKind.DOCKERFILE, SourceKind.KUBERNETES, SourceKind.MARKDOWN, SourceKind.DUMP}
"""Kinds whose software is not what is installed here."""
_NODES = r"(?:--nnodes[= ]|--nodes[= ]|#SBATCH\s+-N\s*|\bnnodes:\s*)(\d{1,5})\b"


class Judged(Struct, frozen=True, kw_only=True):
    """Everything that one lint found."""

    sources: tuple[str, ...]
    num_settings: int
    findings: tuple[Finding, ...]
    unreadable: tuple[Unreadable, ...]
    not_checked: tuple[NotChecked, ...]
    versions: Mapping[str, str]
    missing: Mapping[str, str]  # fact of this machine -> why it could not be read


def run(args: argparse.Namespace) -> int:
    """Judge and show; the exit code of the contract.

    Raises:
        UsageError: a file cannot be opened.
    """
    language = choose_language(args.lang)
    judged = lint(args)
    if args.json:
        deliver_json(args.json, _body(judged))
    if args.json != "-":
        show_blocks(_blocks(judged, language, verbose=args.verbose), sys.stdout, language)
    bad = Severity.WARNING if args.strict else Severity.ERROR
    if any(f.severity.weight >= bad.weight for f in judged.findings):
        return EXIT_FAULT
    return EXIT_UNCHECKED if judged.unreadable or crashed(judged.not_checked) else EXIT_HEALTHY


def lint(args: argparse.Namespace) -> Judged:
    """Read the sources and judge each."""
    host = LiveHost()
    given = {"torch": args.torch, "nccl": args.nccl, "jax": args.jax}
    machine = read_machine(host).having(**given)
    unreadable: list[Unreadable] = []
    bundles = {name: bundle for name in args.files if (bundle := _bundle(name)) is not None}
    if len(args.files) == 1 and bundles and not args.compare:
        return _of_bundle(args.files[0], bundles[args.files[0]], given)
    texts = list(read_files([name for name in args.files if name not in bundles], unreadable))
    parsed = [p for name, text in texts if (p := _parsed(name, text, unreadable)) is not None]
    parsed += [_saved(name, bundle, unreadable) for name, bundle in bundles.items()]
    parsed.sort(key=lambda p: _place(p.source, args.files))
    if not args.files:
        parsed = [environment(host)]
    is_here = True if args.here else False if args.elsewhere or args.compare else None
    findings: list[Finding] = []
    unchecked: list[NotChecked] = []
    for source in parsed:
        settings = replace(
            settings_in(source, machine),
            calls=tuple(call for p in parsed for call in p.calls),
            is_here=is_here,
            is_cluster=_is_cluster("".join(t for _, t in texts)) if args.files else is_cluster_here(os.environ),
        )
        fleet = _fleet(settings, _for_kind(source.kind, machine, given))
        more, not_checked = judge(fleet, load_area("variables"))
        findings += [f for f in more if f not in findings]
        unchecked += not_checked
    if args.compare:
        more, not_checked = _compare(parsed)
        findings += more
        unchecked += not_checked
    return Judged(
        sources=(*(name for name, _ in texts), *bundles) or tuple(args.files) or (ENVIRONMENT,),
        num_settings=sum(s.name in table.load() for p in parsed for s in p.settings),
        findings=masked_all(tuple(sorted(findings, key=_order))),  # also in variables that hold none
        unreadable=tuple(unreadable),
        not_checked=tuple(unchecked),
        versions=_versions(parsed, machine, given),
        missing=machine.missing(_NEEDED),
    )


def _place(source: str, files: Sequence[str]) -> int:
    """Where the file of a source stands among those given: the first is node 0."""
    name = source.partition("!")[0]
    return files.index(name) if name in files else len(files)


def _bundle(name: str) -> Bundle | None:
    """The bundle that a file is; None where it is none.

    Raises:
        UsageError: it is damaged.
    """
    try:
        if name == "-" or not Path(name).is_file() or not is_packed(head_of(name)) or not is_bundle(name):
            return None
        return read_bundle(name)
    except OSError:
        return None  # which is reported where it is read
    except BundleError as error:
        raise UsageError("{name}: {error}", name=name, error=error) from error


def _saved(name: str, bundle: Bundle, unreadable: list[Unreadable]) -> Parsed:
    """The environment in one bundle of several, which come from as many machines."""
    if bundle.variables is None:
        unreadable.append(Unreadable(name, said("the bundle has no environment")))
    found = read_environment(bundle.variables or {}, name)
    settings = [replace(setting, kind=SourceKind.DUMP) for setting in found.settings]
    return Parsed(source=name, kind=SourceKind.DUMP, settings=settings)


def _of_bundle(name: str, bundle: Bundle, given: Mapping[str, str | None]) -> Judged:
    """The environment of a bundle, judged by the facts of the machine that it was made on."""
    facts = NodeFacts.none("the bundle has no facts")
    if bundle.facts is not None:
        from allready.cli.doctor_files import load

        facts = load("", name)
    machine = ThisMachine(facts=facts).having(**given)
    source = read_environment(bundle.variables or {}, ENVIRONMENT)
    settings = replace(settings_in(source, machine), missing_files=frozenset(), is_here=True)
    findings, not_checked = judge(_fleet(settings, machine), load_area("variables"))
    unreadable = () if bundle.variables is not None else (Unreadable(name, said("the bundle has no environment")),)
    return Judged(
        sources=(name,),
        num_settings=sum(s.name in table.load() for s in source.settings),
        findings=masked_all(tuple(sorted(findings, key=_order))),  # also in variables that hold none
        unreadable=unreadable,
        not_checked=not_checked,
        versions={n: v for n in ("torch", "nccl", "jax", "jaxlib") if (v := machine.versions.get(n))},
        missing=machine.missing(_NEEDED),
    )


def _versions(parsed: Sequence[Parsed], machine: ThisMachine, given: Mapping[str, str | None]) -> dict[str, str]:
    """What was judged for: what is installed here only where a source belongs to this machine."""
    found = machine.versions if any(p.kind not in _OTHERS_SOFTWARE for p in parsed) else given
    return {name: version for name in ("torch", "nccl", "jax", "jaxlib") if (version := found.get(name))}


def _order(finding: Finding) -> tuple[int, str, int, str]:
    line = finding.values.get("line", "")
    return -finding.severity.weight, finding.values.get("file", ""), int(line) if line.isdecimal() else 0, finding.code


def _parsed(name: str, text: str, unreadable: list[Unreadable]) -> Parsed | None:
    """What a file assigns; None where it cannot be read."""
    if not is_text(text):
        unreadable.append(Unreadable(name, said("it is no text")))
        return None
    try:
        parsed = read_text(name, text)
    except YamlMissingError as error:
        unreadable.append(Unreadable(name, said("{error}", error=error)))
        return None
    unreadable += [
        Unreadable(f"{m.source}:{m.line}", said("{text}", text=m.text))
        for m in parsed.malformed
        if m.slip is Slip.UNREADABLE
    ]
    return parsed


def _is_cluster(text: str) -> bool | None:
    """Whether launch commands in these files start on several nodes; None where none says so."""
    numbers = {int(number) for number in compiled(_NODES).findall(text)}
    if "--standalone" in text or numbers == {1}:
        return False
    return True if numbers else None


def _for_kind(kind: SourceKind, machine: ThisMachine, given: Mapping[str, str | None]) -> ThisMachine:
    """The machine without the software found, for a file that belongs to another installation."""
    if kind not in _OTHERS_SOFTWARE:
        return machine
    bare = replace(machine, facts=replace(machine.facts, software=FactMissing("the file is for another installation")))
    return bare.having(**given)


def _fleet(settings: Settings, machine: ThisMachine) -> Fleet:
    world = World(num_nodes=1, world_size=1, nodes=(WorldNode(node_rank=0, name="", ranks=(0,)),))
    return Fleet(world=world, nodes={0: machine.facts}, settings=settings)


def _compare(parsed: Sequence[Parsed]) -> tuple[tuple[Finding, ...], tuple[NotChecked, ...]]:
    """What differs between environments, by the rule that compares the nodes of a job.

    Raises:
        UsageError: there are not two.
    """
    from allready.rules.env.nodes_differ import variable_differs

    if len(parsed) < 2:
        raise UsageError("--compare needs the environments of at least two nodes")
    facts = [
        EnvFacts(variables={s.name: s.value for s in p.settings if s.value is not None and is_read(s.name)})
        for p in parsed
    ]
    redacted = [EnvFacts(variables={n: redact(n, v) for n, v in f.variables.items()}) for f in facts]
    world = World(
        num_nodes=len(parsed),
        world_size=len(parsed),
        nodes=tuple(WorldNode(node_rank=n, name=p.source, ranks=(n,)) for n, p in enumerate(parsed)),
    )
    fleet = Fleet(world=world, nodes={n: NodeFacts(env=env) for n, env in enumerate(redacted)})
    return judge(fleet, [variable_differs])


def _blocks(judged: Judged, language: str, *, verbose: bool) -> Iterator[Block]:
    for finding in judged.findings:
        yield from _finding(finding, language, verbose=verbose)
    for item in judged.unreadable:
        text = ui("env.lint_unreadable", language, place=plain(item.place), why=plain(say_phrase(item.why, language)))
        yield StyledLine((Piece(text),), lead=Piece(ui("env.lint_not_checked", language), "warn"))
    for fact, why in judged.missing.items():
        text = ui("env.lint_fact_missing", language, fact=fact, why=plain(why))
        yield StyledLine((Piece(text, "dim"),), lead=Piece(ui("env.lint_not_checked", language), "dim"))
    if judged.findings or judged.unreadable:
        yield Gap()
    clean = not judged.findings and not judged.unreadable
    yield StyledLine((Piece(_summary(judged, language), "good" if clean else "bold"),))
    text = ", ".join(f"{name} {version}" for name, version in judged.versions.items())
    known = ui("env.lint_versions", language, versions=text) if text else ui("env.lint_no_versions", language)
    yield StyledLine((Piece(known, "dim"),))


def _summary(judged: Judged, language: str) -> str:
    named = [ui("env.this_environment", language) if s == ENVIRONMENT else plain(s) for s in judged.sources]
    sources = ui("report.comma", language).join(named)
    if not judged.findings:
        return ui("env.lint_clean", language, settings=judged.num_settings, sources=sources)
    weights = [f.severity.weight for f in judged.findings]
    return ui(
        "env.lint_summary",
        language,
        errors=sum(w >= Severity.ERROR.weight for w in weights),
        warnings=weights.count(Severity.WARNING.weight),
        infos=weights.count(Severity.INFO.weight),
        settings=judged.num_settings,
        sources=sources,
    )


def _finding(finding: Finding, language: str, *, verbose: bool) -> Iterator[Block]:
    style = SEVERITY_STYLE[finding.severity]
    place = finding.evidence[0].source if finding.evidence else ""
    shown = "" if place in {"", ENVIRONMENT} else f"{plain(place)}{ui('report.colon', language)}"
    yield StyledLine(
        (Piece(f"{finding.code} ", style), Piece(shown, "dim"), Piece(phrase(finding, "message", language))),
        lead=Piece(ui(f"report.severity_{finding.severity}", language), style),
    )
    for step in steps(finding, language):
        where, explanation, command = remedy_parts(step, language)
        pieces = (Piece(where, "dim"), Piece(explanation), Piece(command, "code"))
        yield StyledLine(tuple(p for p in pieces if p.text), lead=Piece(ui("env.lint_fix", language), "dim"), indent=2)
    from allready.rules.variables.debug_left_on import debug_left_on  # what such settings cost is shown with them

    fields = ("what", "risk", "cost") if verbose else ("cost",) if finding.code == debug_left_on.code else ()
    lead = ui("env.lint_why" if verbose else "env.lint_cost", language)
    for text in _background(finding, language, fields):
        yield StyledLine((Piece(text, "dim"),), lead=Piece(lead, "dim"), indent=2)


def _background(finding: Finding, language: str, fields: Sequence[str]) -> Iterable[str]:
    """What the table says about the variables."""
    for name in finding.culprits.variables:
        row = table.load().get(name)
        if row is not None:
            yield from filter(None, (row.text(field, language) for field in fields))


def _body(judged: Judged) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "sources": judged.sources,
        "num_settings": judged.num_settings,
        "versions": judged.versions,
        "findings": [_data(finding) for finding in judged.findings],
        "not_checked": [
            *({"code": item.code, "why": item.why} for item in judged.not_checked),
            *({"code": f"facts.{fact}", "why": why} for fact, why in judged.missing.items()),
            *({"code": "source", "why": f"{item.place}: {in_english(item.why)}"} for item in judged.unreadable),
        ],
    }


def _data(finding: Finding) -> dict[str, Any]:
    """A finding as in report.json, with its place, Chinese texts, and what the table says about the variable."""
    flat: dict[str, Any] = to_builtins(finding)
    line = finding.values.get("line", "")
    name = finding.culprits.variables[0] if finding.culprits.variables else None
    row = table.load().get(name or "")
    about = (
        {field: getattr(row, field) for field in ("what", "what_zh", "risk", "risk_zh", "cost", "cost_zh")}
        if row
        else {}
    )
    chinese = say_remedies(finding, "zh")
    return {
        **flat,
        "variable": name,
        "file": finding.values.get("file"),
        "line": int(line) if line.isdecimal() else None,
        "title_zh": say(finding, "title", "zh"),
        "message_zh": say(finding, "message", "zh"),
        "remedy_zh": remedy_text(chinese, "zh"),
        "remedies_zh": to_builtins(chinese),
        **about,
    }
