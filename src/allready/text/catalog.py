"""Text in the reader's language.

English lives in the rules and in `allready.text.ui`; other languages in one TOML file per area beside this module,
keyed by code.  What a language lacks falls back to English slot by slot.
"""

import functools
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from msgspec.structs import replace

from allready.model import Finding, Remedy, RemedyStep
from allready.model.fill import fill, fill_place, steps_of
from allready.text.ui import ui
from allready.text.usage import choose_language as choose_language  # of every text, also where no rule is loaded

LANGUAGES = ("en", "zh")
_FOLDERS = {"zh": "zh_CN"}
_NOBODY = {"zh": "某个进程"}
_NOWHERE = {"zh": "未知地址"}


@functools.cache
def entries(language: str, area: str) -> dict[str, dict[str, Any]]:
    """All entries of one area in `language`, by code (or by key, for the area "ui"); empty for English."""
    folder = _FOLDERS.get(language)
    if folder is None:
        return {}
    file = resources.files("allready.text") / folder / f"{area}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


@functools.cache
def _codes(language: str) -> dict[str, dict[str, Any]]:
    folder = _FOLDERS.get(language)
    if folder is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for file in (resources.files("allready.text") / folder).iterdir():
        area = file.name.removesuffix(".toml")
        if file.name.endswith(".toml") and not area.startswith("ui_"):
            found |= entries(language, area)
    return found


def folder(language: str) -> str:
    """The folder of a language's texts below this package."""
    return _FOLDERS[language]


def translated(language: str, area: str, code: str, slot: str) -> str | None:
    """The template of one slot in `language`; None where that lacks it."""
    text = entries(language, area).get(code, {}).get(slot)
    return text if isinstance(text, str) and text.strip() else None


def say(finding: Finding, slot: str, language: str) -> str:
    """The `slot` ("title", "message" or "remedy") of a finding in `language`, with its values filled in."""
    if slot == "remedy":
        return remedy_text(say_remedies(finding, language), language)
    english = {"title": finding.title, "message": finding.message}[slot]
    template = _codes(language).get(finding.code, {}).get(slot)
    if not isinstance(template, str):
        return english
    try:
        return fill(template, finding.values, nowhere=_NOWHERE[language], nobody=_NOBODY[language])
    except (KeyError, ValueError, IndexError):
        return english


def say_remedies(finding: Finding, language: str) -> tuple[Remedy, ...]:
    """The steps of a finding's remedy in `language`: its commands are the same, explanation and place are not."""
    steps = steps_of(_codes(language).get(finding.code, {}))
    english = finding.remedies or (Remedy(explanation=finding.remedy),)
    try:
        return tuple(
            _translated(remedy, steps[remedy.step], finding.values | remedy.values, language)
            if remedy.step < len(steps)
            else remedy
            for remedy in english
        )
    except (KeyError, ValueError, IndexError):
        return english


def _translated(remedy: Remedy, step: RemedyStep, values: Mapping[str, str], language: str) -> Remedy:
    explanation = fill(step.explanation, values, is_command=True, nowhere=_NOWHERE[language], nobody=_NOBODY[language])
    return replace(remedy, explanation=explanation, where=fill_place(step.where, values) if remedy.where else "")


def remedy_parts(remedy: Remedy | RemedyStep, language: str) -> tuple[str, str, str]:
    """Place, explanation and command of one step, with what stands between them: joined, they are a sentence."""
    colon = ui("report.colon", language)
    where = ui("report.remedy_place", language, where=remedy.where) + colon if remedy.where else ""
    return where, remedy.explanation + (colon if remedy.command else ""), remedy.command


def remedy_text(remedies: Iterable[Remedy | RemedyStep], language: str) -> str:
    """All steps in one line."""
    return ui("report.semicolon", language).join("".join(remedy_parts(remedy, language)) for remedy in remedies)
