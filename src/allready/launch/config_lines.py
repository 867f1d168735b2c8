"""On which line of a TOML text a key stands: tomllib does not report it, and a message without a line helps little."""

import re
import tomllib

_HEADER = re.compile(r"\s*\[(?!\[)(.*)\]\s*(#.*)?")
_KEY = re.compile(r"""\s*((?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+|\s*\.\s*)+?)\s*=""")


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """Line (from 1) where `keys` is given, as a header or as a key; else that of the closest table above it.

    A guess for texts inside multi-line strings, which may resemble keys; only messages use it.
    """
    best: tuple[int, int] | None = None  # depth, line
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(line)
        if header:
            table = _path(header[1]) or ()
            here = table
        else:
            match = _KEY.match(line)
            inner = _path(match[1]) if match else None
            if inner is None:
                continue
            here = table + inner
        depth = min(len(here), len(keys))
        if depth and here[:depth] == keys[:depth] and (best is None or depth > best[0]):
            best = (depth, number)
    return best[1] if best else None


def _path(written: str) -> tuple[str, ...] | None:
    try:
        found: object = tomllib.loads(f"{written} = 0")
    except tomllib.TOMLDecodeError:
        return None
    keys = []
    while isinstance(found, dict):
        key, found = next(iter(found.items()))
        keys.append(key)
    return tuple(keys)
