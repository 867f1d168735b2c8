"""The pages of the codes that a report names, so that a reader of the HTML need not look for them elsewhere."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from allready.judging.loading import load
from allready.judging.registry import Rule
from allready.model import Report
from allready.patterns import compiled
from allready.text import catalog

MAX_PAGES = 48
_HEADING = r"(?m)^## (.+)$"


class CodePage(Struct, frozen=True, kw_only=True):
    """Title and text of one code; sections are (heading, text)."""

    code: str
    title: dict[str, str]
    sections: dict[str, tuple[tuple[str, str], ...]]

    @property
    def num_sections(self) -> int:
        """Of the longer language."""
        return max(map(len, self.sections.values()))

    def title_in(self, language: str) -> str:
        """The title on one line."""
        return self.title[language]

    def section_in(self, number: int, part: int, language: str) -> str:
        """Heading (part 0) or text (part 1) of a section; empty where the language has fewer."""
        sections = self.sections[language]
        return sections[number][part] if number < len(sections) else ""


def pages_of(report: Report, codes: Sequence[str]) -> list[CodePage]:
    """The pages of `codes`, then of those that only lines of the run have; codes of other versions have none."""
    lines = (event.code for event in (report.summary.timeline if report.summary else ()) if event.code)
    nodes = (code for found in report.odd.values() for code in found)
    rules = load()
    wanted = dict.fromkeys(code for code in (*codes, *nodes, *lines) if code in rules)
    return [_page(rules[code]) for code in list(wanted)[:MAX_PAGES]]


def _page(rule: Rule) -> CodePage:
    return CodePage(
        code=rule.code,
        title={language: _text(rule, "title", language) for language in ("en", "zh")},
        sections={language: tuple(_sections(_text(rule, "page", language))) for language in ("en", "zh")},
    )


def _text(rule: Rule, slot: str, language: str) -> str:
    return catalog.in_language(str(getattr(rule, slot)), language, rule.area, rule.code, slot)


def _sections(page: str) -> Iterable[tuple[str, str]]:
    parts = compiled(_HEADING).split(page)[1:]
    return zip(parts[::2], (catalog.one_line(body) for body in parts[1::2]), strict=True)
