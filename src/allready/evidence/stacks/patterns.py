"""Frames with a meaning, from `meanings.toml`."""

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from allready.evidence.stacks.libraries import is_native, package_path
from allready.model import Frame

_ENDS_OF_NAMES = (".part.0", ".isra.0", ".cold", ".constprop.0")


class Meaning(NamedTuple):
    """One row: what a frame says its thread is doing.  Its expressions are compiled when a frame needs them."""

    kind: str
    files: str
    functions: str


@functools.cache
def load() -> Mapping[str, Sequence[Meaning]]:
    """The rows of both tables, "python" and "native"."""
    text = resources.files("allready.evidence.stacks").joinpath("meanings.toml").read_text(encoding="utf-8")
    return {table: [_row(entry) for entry in entries] for table, entries in tomllib.loads(text).items()}


def _row(entry: Mapping[str, Any]) -> Meaning:
    functions = "|".join(entry.get("functions", (".*",)))
    return Meaning(entry["kind"], "|".join(entry.get("files", ("",))), rf"(?:{functions})")


@functools.lru_cache(maxsize=4096)
def meaning_of(frame: Frame) -> str | None:
    """What one frame says by itself."""
    if is_native(frame):
        rows, file = load()["native"], frame.file.rpartition("/")[2]
        name = frame.function.partition("(")[0]
        for end in _ENDS_OF_NAMES:
            name = name.removesuffix(end)
        names = {name}
    else:
        rows, file = load()["python"], package_path(frame.file)
        names = {frame.function, frame.function.rpartition(".")[2]}
    for row in rows:
        if re.search(row.files, file) and any(re.fullmatch(row.functions, name) for name in names):
            return row.kind
    return None
