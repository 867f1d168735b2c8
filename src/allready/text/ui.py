"""Short texts of the terminal and the HTML report that belong to no finding: labels, headings, live lines.

A key is "AREA.NAME"; its text is NAME in `en/ui_AREA.toml`, and in `zh_CN/ui_AREA.toml` for Chinese.
"""

import functools
import tomllib
from pathlib import Path
from typing import Any

FOLDERS = {"en": "en", "zh": "zh_CN"}


def areas() -> list[str]:
    """All areas that have texts."""
    names = (file.name for file in (Path(__file__).parent / "en").iterdir())
    return sorted(name.removeprefix("ui_").removesuffix(".toml") for name in names if name.startswith("ui_"))


@functools.cache
def entries(language: str, name: str) -> dict[str, Any]:
    """The file NAME.toml of `language`; empty when there is none."""
    file = Path(__file__).parent / FOLDERS[language] / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def table(language: str, area: str) -> dict[str, str]:
    """All texts of one area in `language`."""
    return entries(language, f"ui_{area}")


def ui(key: str, language: str = "en", **values: object) -> str:
    """The text of `key` in `language` (English where it lacks one) with `values` filled in.

    `{count:node|nodes}` in a text is "1 node", "2 nodes".

    Raises:
        KeyError: no such key in English, or a value is missing: our own mistake.
    """
    area, name = key.split(".", 1)
    template = table(language, area).get(name) or table("en", area)[name]
    return template.format_map({k: _Value(system_words(v, language)) for k, v in values.items()})


def system_words(value: object, language: str) -> object:
    """A value of a text; one that is what the system calls an error (`strerror`) in `language`."""
    if language == "en" or not isinstance(value, str):
        return value
    known: dict[str, str] = entries(language, "rules/words")["system"]
    return known.get(value, value)


class _Value(str):
    """A value in a text."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        one, bar, several = spec.partition("|")
        return f"{self} {one if self == '1' else several}" if bar else super().__format__(spec)
