"""The texts of the scoreboard, in English and Chinese."""

import functools
import tomllib
from pathlib import Path


@functools.cache
def table(language: str) -> dict[str, str]:
    """All texts in one language."""
    file = Path(__file__).with_name(f"labels.{language}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def label(name: str, language: str, **values: object) -> str:
    """The text `name`, in English where `language` lacks it, with `values` filled in."""
    return (table(language).get(name) or table("en")[name]).format_map(values)
