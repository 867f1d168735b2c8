"""Text in the reader's language.

English lives in the rules and in `allready.text.ui`; other languages in one TOML file per area beside this module,
keyed by code.  What a language lacks falls back to English slot by slot.
"""

import functools
import os
import tomllib
from importlib import resources
from typing import Any

from allready.model import Finding
from allready.model.fill import fill

LANGUAGES = ("en", "zh")
_FOLDERS = {"zh": "zh_CN"}
_NOBODY = {"zh": "某个进程"}
_NOWHERE = {"zh": "未知地址"}


def choose_language(asked: str | None, environ: dict[str, str] | None = None) -> str:
    """The language of people-facing text: `asked`, else ALLREADY_LANG, LC_ALL, LC_MESSAGES, LANG, else English."""
    if asked:
        return asked
    environ = dict(os.environ) if environ is None else environ
    for name in ("ALLREADY_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


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


def translated(language: str, area: str, code: str, slot: str) -> str | None:
    """The template of one slot in `language`; None where that lacks it."""
    text = entries(language, area).get(code, {}).get(slot)
    return text if isinstance(text, str) and text.strip() else None


def say(finding: Finding, slot: str, language: str) -> str:
    """The `slot` ("title", "message" or "remedy") of a finding in `language`, with its values filled in."""
    english = {"title": finding.title, "message": finding.message, "remedy": finding.remedy}[slot]
    template = _codes(language).get(finding.code, {}).get(slot)
    if not isinstance(template, str):
        return english
    try:
        return fill(
            template, finding.values, is_command=slot == "remedy", nowhere=_NOWHERE[language], nobody=_NOBODY[language]
        )
    except (KeyError, ValueError, IndexError):
        return english
