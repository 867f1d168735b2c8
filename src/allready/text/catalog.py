"""Text in the reader's language.

English lives in the rules and in `allready.text.ui`; other languages in one TOML file per area beside this module,
keyed by code.  What a language lacks falls back to English slot by slot.
"""

import contextlib
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from allready.model import Evidence, Finding, NotChecked, Phrase, Remedy, RemedyStep, RunNote
from allready.model.fill import (
    MAX_PHRASE_DEPTH,
    UNKNOWN,
    WHO,
    HasPhrases,
    chosen,
    fill,
    fill_place,
    in_english,
    phrases_of,
    steps_of,
)
from allready.patterns import compiled
from allready.text.forms import evidence_forms as evidence_forms
from allready.text.language import choose_language as choose_language
from allready.text.steps import written
from allready.text.ui import FOLDERS, entries, table, ui

LANGUAGES = ("en", "zh")
_UNNAMED_PROCESS = {"zh": "某个进程"}
_UNKNOWN = {"zh": "未知"}
_WORDLESS = r"(?:\{\w+\}|[^\w{}])*"
_NUMBERS = r"[0-9]+(?:, [0-9]+)*"
"""How reports named the ranks that wait when the sentences still had the word."""
_BESIDE_LATIN = r"(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9({])|(?<=[A-Za-z0-9)}])(?=[\u4e00-\u9fff])"
_NO_BLANK = (
    r"(?<=[\u3000-\u30ff\uff00-\uffef])\n|\n(?=[\u3000-\u30ff\uff00-\uffef])"
    r"|(?<=[\u4e00-\u9fff])\n(?=[\u4e00-\u9fff])"
)


@functools.cache
def _codes(language: str) -> dict[str, dict[str, Any]]:
    """Entries of all areas by code; empty for English."""
    if language == "en":
        return {}
    files = (Path(__file__).parent / FOLDERS[language]).iterdir()
    areas = [f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml") and not f.name.startswith("ui_")]
    return {code: entry for area in areas for code, entry in entries(language, area).items()}


def translated(language: str, area: str, code: str, slot: str) -> str | None:
    """The template of one slot in `language`; None where that lacks it."""
    text = entries(language, area).get(code, {}).get(slot)
    return text if isinstance(text, str) and text.strip() else None


def in_language(english: str, language: str, area: str, code: str, slot: str) -> str:
    """The template of one slot; English where `language` lacks it."""
    return english if language == "en" else translated(language, area, code, slot) or english


def one_line(text: str) -> str:
    """Joined lines; between Chinese characters and beside Chinese punctuation a break is no blank."""
    return " ".join(re.sub(_NO_BLANK, "", text.strip()).split())


def say(finding: Finding, slot: str, language: str) -> str:
    """The `slot` ("title", "message" or "remedy") of a finding in `language`, with its values filled in."""
    if slot == "remedy":
        return remedy_text(say_remedies(finding, language), language)
    english = {"title": finding.title, "message": finding.message}[slot]
    template = _codes(language).get(finding.code, {}).get(slot)
    if not isinstance(template, str):
        return english
    try:
        return _fill(template, with_phrases(finding, language), language)
    except (KeyError, ValueError, IndexError):
        return english


def _fill(template: str, values: Mapping[str, str], language: str) -> str:
    """A template with its values, and no blank between Chinese and a value that is Chinese."""
    known = in_words(values, language)
    template = chosen(template, known)
    for name, value in known.items():
        template = _closed_up(template, name, _UNNAMED_PROCESS[language] if (name, value) == (WHO, UNKNOWN) else value)
    return fill(template, known, unnamed=_UNNAMED_PROCESS[language], unknown=_UNKNOWN[language])


def _closed_up(template: str, name: str, value: str) -> str:
    """Templates have a blank between Chinese and a value, for most values are names and numbers."""
    before, *after = template.split(f"{{{name}}}")
    for text in after:
        before = before[:-1] if before[-1:] == " " and _is_chinese(before[-2:-1]) and _is_chinese(value[:1]) else before
        text = text[1:] if text[:1] == " " and _is_chinese(text[1:2]) and _is_chinese(value[-1:]) else text
        before += f"{{{name}}}{text}"
    return before


def _is_chinese(letter: str) -> bool:
    return "\u4e00" <= letter <= "\u9fff"


_LABELS = {
    "state": ("watch", "state_"),
    "phase": ("watch", "phase_"),
    "activity": ("run_summary", "activity_"),
    "doing": ("run_summary", "activity_"),
}
"""Values that labels of another view have words for: the area, and how their names begin."""


@functools.cache
def words(language: str) -> Mapping[str, Mapping[str, str]]:
    """Values that are words of ours in `language`, by the value's name and its English; empty for English."""
    if language == "en":
        return {}
    file = Path(__file__).parent / FOLDERS[language] / "rules" / "words.toml"
    found: dict[str, dict[str, str]] = {}
    for name, (area, start) in _LABELS.items():
        labels = table(language, area).items()
        found[name] = {key.removeprefix(start): text for key, text in labels if key.startswith(start)}
    for name, some in tomllib.loads(file.read_text(encoding="utf-8")).items():
        found[name] = found.get(name, {}) | some
    return found


def label_of(name: str, value: str, language: str) -> str:
    """A value called `name` that is an enumeration's word in `language`; any other as it is."""
    return words(language).get(name, {}).get(value, value)


def in_words(values: Mapping[str, str], language: str) -> Mapping[str, str]:
    """The values with those that are an enumeration's word, or the system's words for an error, in `language`; names,
    numbers and quotations stay.  Several words, and a word of ours where else a quotation stands, are phrases."""
    known = words(language)
    system = known.get("system", {})
    return {name: known.get(name, system).get(value) or system.get(value, value) for name, value in values.items()}


def say_source(item: Evidence, language: str) -> str:
    """Where a piece of evidence comes from: a file or a command as it is, a name of ours in `language`."""
    if "source" in item.phrases:
        return with_phrases(item, language).get("source", item.source)
    return source_name(item.source, language)


def source_name(source: str, language: str) -> str:
    """A kind of source in `language`; a file or a command as it is."""
    return words(language).get("source", {}).get(source, source)


@functools.cache
def _own_words(language: str) -> Mapping[str, str]:
    """What other tables have of phrases: reasons of absence, what a process does as the table of ranks names it, and
    what ended a job."""
    if language == "en":
        return {}
    areas = ("run", "run_summary")
    short = {
        en: table(language, a)[key] for a in areas for key, en in table("en", a).items() if key in table(language, a)
    }
    return {**words(language)["reason"], **words(language)["why"], **short}


def ui_phrase(key: str, **values: str) -> Phrase:
    """A text of `text.ui` of an area that `_own_words` has, to be said in the language of who reads the report."""
    area, name = key.split(".", 1)
    return Phrase(table("en", area)[name], values)


def _form(english: str, language: str) -> str | None:
    """The template in `language`; one that is nothing but values is the same in all."""
    found = evidence_forms(language).get(english) or _own_words(language).get(english)
    if found or not compiled(_WORDLESS).fullmatch(english):
        return found
    names = re.findall(r"\{(\w+)\}", english)
    return english if len(names) == len(set(names)) else None  # none of ours repeats one; a hostile one grows by it


def say_evidence(item: Evidence, language: str) -> str:
    """The text of one piece of evidence: quoted as it is, a sentence of ours in `language`."""
    template = _form(item.form, language) if item.form else None
    try:
        return _fill(template, with_phrases(item, language), language) if template else item.text
    except (KeyError, ValueError, IndexError):
        return item.text


def say_phrase(phrase: Phrase, language: str) -> str:
    """A phrase in `language`; English where that lacks it, and the template as it is where that of a report from
    elsewhere cannot be filled."""
    found = joined_or("", (phrase,), language)
    try:
        return found or in_english(phrase)
    except (KeyError, ValueError, IndexError):
        return phrase.form


def say_value(value: object, language: str) -> object:
    """A value of a text: a phrase, or several, are said, any other stands as it is."""
    some = phrases_of({"value": value}).get("value", ())
    return ui("report.semicolon", language).join(say_phrase(phrase, language) for phrase in some) if some else value


def say_note(note: RunNote, language: str) -> str:
    """A note about a run; a finding that it is about is said as in the report itself."""
    if language == "en" or note.about is None:
        return say_phrase(note.phrase, language)
    return say_phrase(
        replace(note.phrase, values={**note.phrase.values, "what": say(note.about, "message", language)}), language
    )


def say_text(struct: HasPhrases, name: str, language: str) -> str:
    """What a field says that may be made of phrases of ours, in `language`."""
    text: str = getattr(struct, name) or ""
    phrases = struct.phrases.get(name)
    return joined_or(text, phrases, language) if phrases else text


def joined_or(english: str, phrases: Iterable[Phrase], language: str) -> str:
    """Phrases that may come from elsewhere, in `language`; where that lacks one, the English that came with them."""
    if language != "en":
        with contextlib.suppress(KeyError, ValueError, IndexError):
            return _joined(phrases, language)
    return english


def _phrase(phrase: Phrase, language: str, depth: int = 0) -> str:
    """The same.  KeyError: `language` lacks it.  A report from elsewhere may have any template, which is not filled."""
    form = _form(phrase.form, language)
    if form is None or depth > MAX_PHRASE_DEPTH:
        raise KeyError(phrase.form)
    some = {name: _joined(parts, language, depth + 1) for name, parts in phrases_of(phrase.values).items()}
    return _fill(form, {name: str(value) for name, value in phrase.values.items()} | some, language)


def _joined(phrases: Iterable[Phrase], language: str, depth: int = 0) -> str:
    return ui("report.semicolon", language).join(_phrase(phrase, language, depth) for phrase in phrases)


def with_phrases(of: Finding | Evidence | NotChecked, language: str) -> dict[str, str]:
    """The values, and the source, with those that are phrases said in `language`, as far as it has them."""
    found = dict(of.values)
    if language != "en" and compiled(_NUMBERS).fullmatch(found.get("waiting", "")):
        found["waiting"] = f"rank {found['waiting']}"
    for name, phrases in of.phrases.items() if language != "en" else ():
        with contextlib.suppress(KeyError, ValueError, IndexError):
            found[name] = _joined(phrases, language)
    return found


def say_remedies(finding: Finding, language: str) -> tuple[Remedy, ...]:
    """The steps of a finding's remedy in `language`: its commands are the same, explanation and place are not."""
    steps = steps_of(_codes(language).get(finding.code, {}))
    english = finding.remedies or (Remedy(explanation=finding.remedy),)
    try:
        return tuple(_step_in(remedy, steps, with_phrases(finding, language), language) for remedy in english)
    except (KeyError, ValueError, IndexError):
        return english


def _step_in(remedy: Remedy, steps: tuple[RemedyStep, ...], values: dict[str, str], language: str) -> Remedy:
    """One step in another language; as it is where that lacks it, or where a later version shared it."""
    if remedy.shared:
        step = written(remedy.shared, language)
    elif remedy.step < len(steps):
        step = steps[remedy.step]
    else:
        return remedy
    return _translated(remedy, step, values | remedy.values, language)


def _translated(remedy: Remedy, step: RemedyStep, values: Mapping[str, str], language: str) -> Remedy:
    explanation = _fill(step.explanation, values, language)
    where = (fill_place(step.where, values) or step.elsewhere) if remedy.where else ""
    return replace(remedy, explanation=explanation, where=where)


def place_text(where: str, language: str) -> str:
    """`on node 1`: where a step is done; Chinese has a blank beside letters and digits, and none elsewhere."""
    text = ui("report.remedy_place", language, where=where)
    return text if language == "en" else re.sub(_BESIDE_LATIN, " ", text)


def remedy_parts(remedy: Remedy | RemedyStep, language: str) -> tuple[str, str, str]:
    """Place, explanation and command of one step, with what stands between them: joined, they are a sentence."""
    colon = ui("report.colon", language)
    where = place_text(remedy.where, language) + colon if remedy.where else ""
    return where, remedy.explanation + (colon if remedy.command else ""), remedy.command


def remedy_text(remedies: Iterable[Remedy | RemedyStep], language: str) -> str:
    """All steps in one line."""
    return ui("report.semicolon", language).join("".join(remedy_parts(remedy, language)) for remedy in remedies)
