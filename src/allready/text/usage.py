"""Help and usage errors in the reader's language, looked up by their English text.

English stands where it is used, as with gettext; `zh_CN/cli/*.toml` has the Chinese.  What lacks it stays English.
"""

import functools
from collections.abc import Iterable, Sequence

from allready.text.language import choose_language as choose_language


def language_of(arguments: Sequence[str]) -> str:
    """The language that a command line asks for, before its options are known; else that of the environment."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for word, following in zip(own, [*own[1:], ""], strict=False):
        name, _, value = word.partition("=")
        if name == "--lang":
            asked = value or following
            return choose_language(asked if asked in {"en", "zh"} else None)
    return choose_language(None)


@functools.cache
def translations(language: str) -> dict[str, str]:
    """Every English text that has one in `language`; empty for English."""
    if language == "en":
        return {}
    import tomllib  # English, which needs neither, starts in half the time
    from pathlib import Path

    found: dict[str, str] = {}
    for file in (Path(__file__).parent / "zh_CN" / "cli").iterdir():
        found |= tomllib.loads(file.read_text(encoding="utf-8"))
    return found


_language = "en"


def speak(language: str) -> None:
    """Set the language of this process's help and usage errors; `cli.main` does, once the command line shows which."""
    global _language
    _language = language


def is_translated() -> bool:
    """Whether this process speaks another language than English."""
    return _language != "en"


def usage_text(template: str, **values: object) -> str:
    """`template` in the process's language, with `values` filled in."""
    translated = translations(_language).get(template) or _reason(template)
    known = {name: _with_message(value) for name, value in values.items()}
    return translated.format(**known) if known else translated


def error_text(error: BaseException) -> str:
    """What an error says, in the process's language where its message is one of ours."""
    template = getattr(error, "template", None)
    if template is None:
        return str(_with_message(getattr(error, "strerror", None) or str(error)))
    return usage_text(template, **getattr(error, "values", {}))


def _with_message(value: object) -> object:
    """A value that is an error with a message of its own says that; a phrase, or several, are said."""
    if isinstance(value, BaseException):
        return error_text(value)
    if isinstance(value, str | int | float):
        if _language == "en":
            return value
        from allready.text.ui import system_words

        return system_words(value, _language)
    from allready.text.catalog import say_value  # seldom needed

    return say_value(value, _language)


def _reason(template: str) -> str:
    """One that reports have as well: why a file cannot be read."""
    if _language == "en":
        return template
    from allready.text.forms import evidence_forms

    return evidence_forms(_language).get(template, template)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, "" where none is near."""
    import difflib  # seldom needed, and as slow as the rest of this module

    near = difflib.get_close_matches(word, list(known), n=1)
    return usage_text("; did you mean {option}?", option=near[0]) if near else ""
