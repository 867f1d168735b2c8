"""What the sources say about texts: which keys they ask for, and with which values."""

import ast
import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from allready.text import ui

ROOT = Path(ui.__file__).resolve().parents[1]
TEXT = ROOT / "text"
KEY = re.compile(r"[a-z_]+\.[a-z_0-9]+")
SAYING = {"ui", "say", "log", "tell"}
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Asked:
    """One call that names a key literally.  `values`: None when the call passes on a dictionary."""

    key: str
    values: frozenset[str] | None
    place: str


@cache
def trees() -> dict[str, ast.Module]:
    """Every source file, parsed, by path below the package."""
    gc.disable()  # half a million nodes that stay: to search them for garbage takes as long as to make them
    try:
        return {
            path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(ROOT.rglob("*.py"))
        }
    finally:
        gc.freeze()
        gc.enable()


def nodes(tree: ast.AST, *kinds: type[Node]) -> Iterator[Node]:
    """Those of these kinds in a tree, kind after kind; to walk through every file takes a second, and is done once."""
    for kind in kinds:
        yield from _by_kind(tree).get(kind, ())  # type: ignore[misc]


@cache
def walked(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes in the order of `ast.walk`, in half of its time; not those that say how a name is used."""
    found = [tree]
    for node in found:  # which grows
        for name in _fields(type(node)):  # type: ignore[arg-type]  # a class can be hashed
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                found.append(part)
            elif isinstance(part, list):
                found.extend(one for one in part if isinstance(one, ast.AST))
    return tuple(found)


@cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in kind._fields if name not in {"ctx", "kind"})


@cache
def _by_kind(tree: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for node in walked(tree):
        found.setdefault(type(node), []).append(node)
    return found


@cache
def asked() -> tuple[Asked, ...]:
    """All calls of `ui("...")`, `.say("...")`, `.log("...")` whose first text looks like a key."""
    found = []
    for place, tree in trees().items():
        for node in nodes(tree, ast.Call):
            if _name(node.func) not in SAYING:
                continue
            for key in _literals(node.args[0]) if node.args else ():
                names = [k.arg for k in node.keywords]
                values = None if None in names else frozenset(n for n in names if n is not None)
                found.append(Asked(key=key, values=values, place=f"{place}:{node.lineno}"))
    return tuple(found)


def _literals(node: ast.expr) -> list[str]:
    """Keys that an argument may be: a text, or one of two (`"a.b" if x else "a.c"`)."""
    if isinstance(node, ast.IfExp):
        return _literals(node.body) + _literals(node.orelse)
    is_key = isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value)
    return [str(node.value)] if is_key and isinstance(node, ast.Constant) else []


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@cache
def texts() -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """All texts that stand in the sources, and patterns of those that are put together (f-strings, "a." + b)."""
    literal: set[str] = set()
    patterns: set[str] = set()
    for tree in trees().values():
        literal.update(node.value for node in nodes(tree, ast.Constant) if isinstance(node.value, str))
        for joined in nodes(tree, ast.JoinedStr):
            pattern = "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in joined.values
            )
            if re.search(r"[a-z]", pattern):
                patterns.add(pattern)
        for node in nodes(tree, ast.BinOp):
            if isinstance(node.op, ast.Add) and isinstance(node.left, ast.Constant):
                patterns.add(re.escape(str(node.left.value)) + ".+")
    return frozenset(literal), tuple(re.compile(p) for p in sorted(patterns) if p.count("\\.") == 1 or "_" in p)
