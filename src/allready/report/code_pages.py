"""The pages of the codes that a report names, so that a reader of the HTML need not look for them elsewhere."""

from collections.abc import Sequence

from msgspec import Struct

from allready.judging.loading import load
from allready.judging.registry import Rule
from allready.model import Report
from allready.text import catalog

MAX_PAGES = 48


class BilingualPage(Struct, frozen=True, kw_only=True):
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


def pages_of(report: Report, codes: Sequence[str]) -> list[BilingualPage]:
    """The pages of `codes`, then of those that only lines of the run have; codes of other versions have none."""
    lines = (event.code for event in (report.summary.timeline if report.summary else ()) if event.code)
    nodes = (code for found in report.odd.values() for code in found)
    rules = load()
    wanted = dict.fromkeys(code for code in (*codes, *nodes, *lines) if code in rules)
    return [_page(rules[code]) for code in list(wanted)[:MAX_PAGES]]


def _page(rule: Rule) -> BilingualPage:
    return BilingualPage(
        code=rule.code,
        title={language: rule.text_in(language, "title") for language in catalog.LANGUAGES},
        sections={language: rule.sections(language) for language in catalog.LANGUAGES},
    )
