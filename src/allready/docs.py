"""Pages of the codes, from the rules: `python -m allready.docs docs/codes` writes them, `--check` compares.

One Markdown file per code and language, and an index per language.  The English text is the rule's, the Chinese is in
`allready/text/zh_CN`; nothing is written anywhere else.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allready.judging.registry import AREAS, Rule, load
from allready.model.fill import plain
from allready.text import catalog

LANGUAGES = ("en", "zh")
INDEX = "README.md"

_LABELS = {
    "en": {
        "code": "Code", "title": "Title", "severity": "Severity", "fault_class": "Fault class", "since": "Since",
        "message": "Message", "remedy": "What to do", "area": "Area",
        "index": "Finding codes", "about": "Every finding has a code, and every code a page.",
        "classes": "What the fault classes mean: [glossary](../../glossary.md).",
        "back": "All codes", "other": "[中文](../zh/{code}.md)",
    },
    "zh": {
        "code": "代码", "title": "标题", "severity": "严重程度", "fault_class": "故障类别", "since": "起始版本",
        "message": "消息", "remedy": "处理办法", "area": "领域",
        "index": "诊断结果代码", "about": "每条诊断结果都有一个代码，每个代码都有一页说明。",
        "classes": "各故障类别的含义见[术语表](../../zh/glossary.md)。",
        "back": "全部代码", "other": "[English](../en/{code}.md)",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A page that is not as the rules say.  what: "missing", "stale" or "orphaned"."""

    what: str
    path: Path


def pages() -> dict[str, str]:
    """All files, by path below the folder: `en/NET003.md`, `zh/README.md`, ..."""
    rules = load()
    made: dict[str, str] = {}
    for language in LANGUAGES:
        for code, rule in rules.items():
            made[f"{language}/{code}.md"] = page(rule, language)
        made[f"{language}/{INDEX}"] = index(rules.values(), language)
    return made


def page(rule: Rule, language: str) -> str:
    """One rule's page in Markdown: a table of its fields, then its text."""
    label = _LABELS[language]
    rows = [
        (label["severity"], f"`{rule.severity}`"),
        (label["fault_class"], f"`{rule.fault_class}`"),
        (label["since"], rule.since),
        (label["message"], _cell(plain(text(rule, "message", language)))),
        (label["remedy"], _cell(plain(text(rule, "remedy", language)))),
    ]
    lines = [
        f"# {rule.code}: {text(rule, 'title', language)}",
        "",
        f"[{label['back']}]({INDEX}) · {label['other'].format(code=rule.code)}",
        "",
        f"| {label['code']} | {rule.code} |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        text(rule, "page", language).strip(),
    ]
    return "\n".join(lines) + "\n"


def index(rules: Iterable[Rule], language: str) -> str:
    """The list of all codes, by area."""
    label = _LABELS[language]
    lines = [f"# {label['index']}", "", label["about"], label["classes"]]
    by_area: dict[str, list[Rule]] = {area: [] for area in AREAS}
    for rule in rules:
        by_area.setdefault(rule.area, []).append(rule)
    for area, members in by_area.items():
        if not members:
            continue
        head = (label["code"], label["title"], label["severity"], label["fault_class"])
        lines += ["", f"## {area}", "", f"| {' | '.join(head)} |", "| --- | --- | --- | --- |"]
        lines += [
            f"| [{r.code}]({r.code}.md) | {_cell(text(r, 'title', language))} | `{r.severity}` | `{r.fault_class}` |"
            for r in sorted(members, key=lambda r: r.code)
        ]
    return "\n".join(lines) + "\n"


def text(rule: Rule, slot: str, language: str) -> str:
    """A slot ("title", "message", "remedy", "page") of a rule in `language`; English where that lacks it."""
    if language != "en":
        translated = catalog.entries(language, rule.area).get(rule.code, {}).get(slot)
        if isinstance(translated, str) and translated.strip():
            return translated
    return {"title": rule.title, "message": rule.message, "remedy": rule.remedy, "page": rule.page}[slot]


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;")


def compare(folder: Path) -> list[Difference]:
    """What differs between the files in `folder` and the rules; empty when nothing does."""
    wanted = pages()
    found: list[Difference] = []
    for name, content in wanted.items():
        path = folder / name
        if not path.is_file():
            found.append(Difference(what="missing", path=path))
        elif path.read_bytes() != content.encode():
            found.append(Difference(what="stale", path=path))
    found += [Difference(what="orphaned", path=path) for path in _orphans(folder, wanted)]
    return found


def write(folder: Path) -> list[Difference]:
    """Make `folder` as the rules say; returns what had to be changed.  Files of other kinds are left alone."""
    wanted = pages()
    changed = compare(folder)
    for difference in changed:
        if difference.what == "orphaned":
            difference.path.unlink()
            continue
        difference.path.parent.mkdir(parents=True, exist_ok=True)
        name = difference.path.relative_to(folder).as_posix()
        difference.path.write_text(wanted[name], encoding="utf-8", newline="\n")
    return changed


def _orphans(folder: Path, wanted: dict[str, str]) -> list[Path]:
    there = (path for language in LANGUAGES for path in sorted((folder / language).glob("*.md")))
    return [path for path in there if path.relative_to(folder).as_posix() not in wanted]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages, or with `--check` only compare: 0 when nothing differs, else 1 and a line for each file."""
    parser = argparse.ArgumentParser(prog="python -m allready.docs", description="pages of the codes, from the rules")
    parser.add_argument("folder", type=Path, help="docs/codes")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is stale")
    arguments = parser.parse_args(argv)
    differences = compare(arguments.folder) if arguments.check else write(arguments.folder)
    for difference in differences:
        sys.stdout.write(f"{difference.what}: {difference.path}\n")
    if arguments.check and differences:
        sys.stdout.write(f"run: python -m allready.docs {arguments.folder}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
