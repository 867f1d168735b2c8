"""The Python in the documents: it parses, and every name of the library in it exists, with the arguments given."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import allready
from tests.cases import cases

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = tuple(str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("docs/**/*.md")) if "```python" in p.read_text())


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def found(node: ast.AST) -> Any:
    """What `allready.a.b` or `metrics.a` stands for; None: another thing.  Raises AttributeError."""
    if isinstance(node, ast.Name):
        return {"allready": allready, "metrics": allready.metrics}.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = found(node.value)
        return None if owner is None else getattr(owner, node.attr)
    return None


def wrong(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("allready"):
            module = importlib.import_module(str(node.module))
            yield from (f"{node.module}.{one.name}" for one in node.names if not hasattr(module, one.name))
        if isinstance(node, ast.Attribute | ast.Call):
            try:
                called = found(node.func) if isinstance(node, ast.Call) else found(node)
            except AttributeError as error:
                yield str(error)
                continue
            if called is not None and isinstance(node, ast.Call):
                yield from unknown_arguments(called, node)


def unknown_arguments(called: Any, node: ast.Call) -> Iterator[str]:
    known = inspect.signature(called).parameters
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values()):
        yield from (f"{ast.unparse(node.func)}({k.arg}=)" for k in node.keywords if k.arg and k.arg not in known)


@cases("name", DOCUMENTS)
def test_the_python_in_the_documents_is_of_this_library(name: str) -> None:
    assert [text for code in blocks(name) for text in wrong(code)] == []


def test_a_name_that_does_not_exist_is_found() -> None:
    assert set(wrong("import allready\nallready.nothing()\nallready.finish(tmeout=3)")) == {
        "module 'allready' has no attribute 'nothing'",
        "allready.finish(tmeout=)",
    }
