"""Pages of the codes, from the rules: for `allready explain`, and as Markdown by `python -m allready.docs docs/codes`.

The English text is the rule's, the Chinese is in `allready/text/zh_CN`; nothing is written anywhere else.
"""

import argparse
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from allready import signatures
from allready.judging.loading import AREAS, load
from allready.judging.registry import Rule
from allready.judging.values import ALL_PIDS
from allready.model import HOSTS, PROCESSES, Remedy, RemedyStep
from allready.model.fill import fill_steps, plain, steps_of
from allready.text import catalog
from allready.text.steps import written
from allready.text.ui import FOLDERS, areas, entries, table, ui

SLOTS = ("title", "message", "page")
INDEX = "README.md"

MAX_EXAMPLES = 3


class CodePage(Struct, frozen=True, kw_only=True):
    """What is known about one code in one language.

    `sections`: heading and text, one line a paragraph; `examples`: lines of logs that mean it.
    """

    code: str
    name: str
    area: str
    severity: str
    fault_class: str
    since: str
    title: str
    message: str
    remedy: str
    sections: tuple[tuple[str, str], ...]
    examples: tuple[str, ...] = ()


def page_of(rule: Rule, language: str) -> CodePage:
    """The page of one rule; what a language lacks is in English."""
    return CodePage(
        code=rule.code,
        name=rule.name,
        area=rule.area,
        severity=str(rule.severity),
        fault_class=str(rule.fault_class),
        since=rule.since,
        title=rule.text_in(language, "title"),
        message=catalog.one_line(plain(rule.text_in(language, "message"))),
        remedy=catalog.one_line(plain(catalog.remedy_text(steps(rule, language), language))),
        sections=rule.sections(language),
        examples=_examples().get(rule.code, ()),
    )


@functools.cache
def _examples() -> dict[str, tuple[str, ...]]:
    found = signatures.load().values()
    return {s.code: tuple(line.example for line in s.lines[:MAX_EXAMPLES]) for s in found if s.code is not None}


def untranslated(language: str = "zh") -> Iterator[str]:
    """What `language` lacks and shows in English: file, code or label, and the slots of a code."""
    for rule in load().values():
        slots = [s for s in SLOTS if catalog.translated(language, rule.area, rule.code, s) is None]
        if len(steps_of(entries(language, rule.area).get(rule.code, {}))) < len(own_steps(rule)):
            slots.append("remedy")
        if slots:
            yield f"{FOLDERS[language]}/{rule.area}.toml: {rule.code}: {', '.join(slots)}"
    for area in areas():
        for name in table("en", area).keys() - table(language, area).keys():
            yield f"{FOLDERS[language]}/ui_{area}.toml: {name}"


def by_area(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """Rules by area, in the order of the areas, sorted by code."""
    found: dict[str, list[Rule]] = {area: [] for area in AREAS}
    for rule in sorted(rules, key=lambda r: r.code):
        found.setdefault(rule.area, []).append(rule)
    return {area: members for area, members in found.items() if members}


def markdown(page: CodePage, language: str) -> str:
    """One page as a Markdown file."""
    other = {"en": "zh", "zh": "en"}[language]
    rows = (
        (_t("severity", language), f"`{page.severity}`"),
        (_t("fault_class", language), f"`{page.fault_class}`"),
        (_t("area", language), f"`{page.area}`"),
        (_t("since", language), page.since),
        (_t("message", language), _cell(page.message)),
        (_t("remedy", language), _cell(page.remedy)),
    )
    lines = [
        f"# {page.code}: {page.title}",
        "",
        f"[{_t('all', language)}]({INDEX}) · [{_t('language', other)}](../{other}/{page.code}.md)",
        "",
        f"| {_t('code', language)} | {page.code} |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows),
    ]
    for heading, body in page.sections:
        lines += ["", f"## {heading}", body]
    if page.examples:
        lines += ["", f"## {_t('examples', language)}", "```text", *page.examples, "```"]
    return "\n".join(lines) + "\n"


def index(rules: Iterable[Rule], language: str) -> str:
    """The list of all codes as a Markdown file."""
    head = " | ".join(_t(name, language) for name in ("code", "title", "severity", "fault_class"))
    lines = [f"# {_t('index', language)}"]
    for area, members in by_area(rules).items():
        lines += ["", f"## {area}", "", f"| {head} |", "| --- | --- | --- | --- |"]
        for page in (page_of(rule, language) for rule in members):
            link = f"[{page.code}]({page.code}.md)"
            lines.append(f"| {link} | {_cell(page.title)} | `{page.severity}` | `{page.fault_class}` |")
    return "\n".join(lines) + "\n"


def _t(name: str, language: str) -> str:
    return ui(f"explain.{name}", language)


BLANK: Mapping[str, object] = {
    PROCESSES: ({"on": None, "rank": None, "pid": None, "find": ALL_PIDS},),
    HOSTS: ({"on": None},),
}
"""What a shared step is for, while no rank and no host is accused."""


def own_steps(rule: Rule) -> tuple[RemedyStep, ...]:
    """The steps of a rule's remedy that are written in the rule itself."""
    return tuple(step for step in rule.steps if not step.shared)


def steps(rule: Rule, language: str) -> tuple[RemedyStep | Remedy, ...]:
    """The steps of a rule's remedy with their placeholders; a step that `language` lacks stays English.

    The command of a shared step has names for what only a finding knows: `py-spy dump --pid PID`.
    """
    translated = iter(steps_of(entries(language, rule.area).get(rule.code, {})))
    found: list[RemedyStep | Remedy] = []
    for step in rule.steps:
        if step.shared:
            found += fill_steps((written(step.shared, language),), BLANK)
        else:
            text = next(translated, step)
            found.append(replace(step, explanation=text.explanation, where=text.where))
    return tuple(found)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def write(folder: Path) -> int:
    """Write all pages below `folder` (`en/NET003.md`, `zh/README.md`, ...); gives their number."""
    rules = load()
    for language in catalog.LANGUAGES:
        (folder / language).mkdir(parents=True, exist_ok=True)
        (folder / language / INDEX).write_text(index(rules.values(), language), encoding="utf-8")
        for code, rule in rules.items():
            text = markdown(page_of(rule, language), language)
            (folder / language / f"{code}.md").write_text(text, encoding="utf-8")
    return len(rules) * len(catalog.LANGUAGES)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages; always 0."""
    parser = argparse.ArgumentParser(prog="python -m allready.docs", description="pages of the codes, from the rules")
    parser.add_argument("folder", type=Path, help="docs/codes")
    arguments = parser.parse_args(argv)
    sys.stdout.write(f"{arguments.folder}: {write(arguments.folder)} pages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
