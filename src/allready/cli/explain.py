"""`allready explain`: the page of a finding, by its code or the name of its rule, or a list of all findings."""

import argparse
import difflib
import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import asdict

from allready.cli.main import EXIT_HEALTHY
from allready.cli.options import add_language
from allready.cli.output import deliver_json
from allready.docs import CodePage, by_area, page_of
from allready.errors import UsageError
from allready.judging.loading import load
from allready.judging.registry import Rule
from allready.report.pieces import Block, Gap, Grid, Piece, StyledLine
from allready.report.terminal import show_blocks
from allready.text.catalog import choose_language
from allready.text.ui import ui

SCHEMA = "allready.codes/1"
MAX_SUGGESTIONS = 5
_STYLES = {"blocker": "bad", "error": "bad", "warning": "warn", "info": "dim"}

EPILOG = """\
  allready explain NET003            what it checks, why it matters, how to check by hand, when it is harmless
  allready explain mtu_differs       the same, by the name of the rule
  allready explain --list            every finding: code, severity, fault class, name, title
  allready explain --list net        the findings of one area
Exit codes: 0, or 2 if there is no such finding.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `explain`."""
    parser.add_argument("codes", nargs="*", metavar="CODE", help="code of a finding, or the name of its rule")
    parser.add_argument("--list", nargs="?", const="", metavar="AREA", help="list all findings, or those of one area")
    parser.add_argument(
        "--json", metavar="FILE", help="write the pages as JSON to FILE (- for standard output, without text)"
    )
    add_language(parser)


def run(args: argparse.Namespace) -> int:
    """Print the pages or the list; 0."""
    language = choose_language(args.lang)
    rules = load()
    if args.list is not None and args.codes:
        raise UsageError("--list takes one AREA and no codes")
    if args.list is None and not args.codes:
        raise UsageError("name a code, for example: allready explain NET003; allready explain --list shows them all")
    named = [_named(rules, word, language) for word in args.codes]
    chosen = named if args.list is None else _listed(rules, args.list)
    pages = [page_of(rule, language) for rule in chosen]
    if args.json:
        codes = [asdict(page) | {"sections": dict(page.sections)} for page in pages]
        deliver_json(args.json, {"schema": SCHEMA, "language": language, "codes": codes})
    if args.json != "-":
        blocks = list(_list(chosen, language) if args.list is not None else _pages(pages, language))
        show_blocks(blocks, sys.stdout, language)
    return EXIT_HEALTHY


def _listed(rules: Mapping[str, Rule], area: str) -> list[Rule]:
    areas = by_area(rules.values())
    if area and area not in areas:
        raise UsageError("no area {area!r}; there are: {areas}", area=area, areas=", ".join(areas))
    return areas[area] if area else [rule for members in areas.values() for rule in members]


def _named(rules: Mapping[str, Rule], word: str, language: str) -> Rule:
    """The rule that `word` means, a code or a name in any spelling."""
    code, name = word.upper(), word.lower().replace("-", "_").removesuffix(".py")
    if code in rules:
        return rules[code]
    same = [rule for rule in rules.values() if name in {rule.name, f"{rule.area}.{rule.name}".removeprefix("log_")}]
    if len(same) == 1:
        return same[0]
    if not same and name in (areas := by_area(rules.values())):
        raise UsageError(
            "{word!r} is an area with {count} findings; allready explain --list {area} shows them",
            word=word,
            count=len(areas[name]),
            area=name,
        )
    alike = same or _alike(rules, code, name)
    if not alike:
        raise UsageError("no finding is called {word!r}; allready explain --list shows them all", word=word)
    pages = [page_of(rule, language) for rule in alike[:MAX_SUGGESTIONS]]
    colon = ui("report.colon", language)
    rows = "\n".join(f"  {page.code}  {page.area}.{page.name}{colon}{page.title}" for page in pages)
    if same:
        raise UsageError("several findings are called {word!r}; did you mean\n{rows}", word=word, rows=rows)
    raise UsageError("no finding is called {word!r}; did you mean\n{rows}", word=word, rows=rows)


def _alike(rules: Mapping[str, Rule], code: str, name: str) -> list[Rule]:
    """The rule whose code lacks a zero, those whose code or name is nearly so, and whose name or title has the word."""
    names = {rule.name: rule for rule in rules.values()}
    whole = f"{code[:3]}{code[3:].zfill(3)}"
    found = [rules[whole]] if whole in rules else []
    found += [rules[c] for c in sorted(difflib.get_close_matches(code, rules, n=MAX_SUGGESTIONS, cutoff=0.8))]
    found += [names[n] for n in difflib.get_close_matches(name, names, n=MAX_SUGGESTIONS, cutoff=0.75)]
    words = name.replace("_", " ")
    found += [r for r in rules.values() if name in r.name or words in r.title.lower()] if len(name) > 2 else []
    return list({rule.code: rule for rule in found}.values())


def _pages(pages: Sequence[CodePage], language: str) -> Iterator[Block]:
    for number, page in enumerate(pages):
        if number:
            yield Gap()
        style = _STYLES[page.severity]
        yield StyledLine((Piece(f"{page.code} ", style), Piece(page.title, "bold")))
        for name, value, style_of_value in (
            ("severity", _severity(page, language), style),
            ("fault_class", page.fault_class, ""),
            ("area", page.area, ""),
            ("name", page.name, ""),
            ("since", page.since, ""),
            ("message", page.message, ""),
            ("remedy", page.remedy, "code"),
        ):
            yield StyledLine(
                (Piece(value, style_of_value),), lead=Piece(ui(f"explain.{name}", language), "dim"), indent=2
            )
        for heading, body in page.sections:
            yield Gap()
            yield StyledLine((Piece(heading, "bold"),), indent=2)
            yield StyledLine((Piece(body),), indent=2)
        if page.examples:
            yield Gap()
            yield StyledLine((Piece(ui("explain.examples", language), "bold"),), indent=2)
            yield from (StyledLine((Piece(example, "dim"),), indent=2) for example in page.examples)


def _severity(page: CodePage, language: str) -> str:
    return ui(f"report.severity_{page.severity}", language)


def _list(rules: Sequence[Rule], language: str) -> Iterator[Block]:
    head = tuple(ui(f"explain.{name}", language) for name in ("code", "severity", "fault_class", "name", "title"))
    for number, (area, members) in enumerate(by_area(rules).items()):
        if number:
            yield Gap()
        yield StyledLine((Piece(area, "bold"),))
        pages = [page_of(rule, language) for rule in members]
        rows = tuple(
            (
                Piece(p.code),
                Piece(_severity(p, language), _STYLES[p.severity]),
                Piece(p.fault_class),
                Piece(p.name),
                Piece(p.title),
            )
            for p in pages
        )
        yield Grid(head=head, rows=rows, right=(False,) * len(head))
