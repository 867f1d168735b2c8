"""`# fmt: skip` keeps the columns of tables; a plain statement is formatted as all others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"# fmt: skip")
MIN_ENTRIES = 3
"""A shorter literal is no table."""


def files() -> Iterator[Path]:
    """All Python of the checkout."""
    for folder in ("src", "tests", "benchmarks", "docs", "tools", "examples"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def marked(tree: ast.Module, line: int) -> ast.AST | None:
    """The innermost statement, or the decorator, in which the mark stands."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        parts = [node] if isinstance(node, ast.stmt) else []
        parts += getattr(node, "decorator_list", [])
        found += [part for part in parts if part.lineno <= line <= (part.end_lineno or part.lineno)]
    return min(found, key=lambda part: part.end_lineno - part.lineno, default=None)  # type: ignore[attr-defined]


def entries(node: ast.AST) -> int:
    """Those of the longest literal in it."""
    literals = (part for part in ast.walk(node) if isinstance(part, ast.Dict | ast.Set | ast.List | ast.Tuple))
    return max((len(part.keys if isinstance(part, ast.Dict) else part.elts) for part in literals), default=0)


def plain(text: str) -> Iterator[int]:
    """Lines of marks on anything but a table."""
    if not MARK.search(text):
        return
    tree = ast.parse(text)
    for number, line in enumerate(text.splitlines(), 1):
        if MARK.search(line) and not line.lstrip().startswith(('"', "MARK")):
            node = marked(tree, number)
            if node is None or entries(node) < MIN_ENTRIES:
                yield number


@pytest.mark.thorough
def test_only_tables_are_left_unformatted() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files()
        if path != Path(__file__)
        for number in plain(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "remove the mark and run `ruff format`:\n" + "\n".join(wrong)


def test_a_mark_on_a_plain_statement_is_found() -> None:
    assert list(plain("ROWS = [\n    1, 2, 3,\n]  # fmt: skip\nx = f(a,\n      b)  # fmt: skip\n")) == [5]
