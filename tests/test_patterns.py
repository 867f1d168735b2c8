"""No module compiles a regular expression when it is imported, and a short command compiles few."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from allready.patterns import compiled, compiled_bytes
from tests.text.sources import trees

COMPILE = {"compiled", "compiled_bytes"}
MAX_OF_A_LINE = 150
"""Expressions of this package that `diagnose -q` of one line compiles: 129 (2026-11-30); 325 where modules did."""

COUNTED = """
import re._compiler, sys
compile, counts = re._compiler.compile, {"while running": 0, "in an import": 0}
def counted(*args):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in {"re", "allready.patterns"}:
        frame = frame.f_back
    is_ours = frame.f_globals["__name__"].startswith("allready.")
    while frame is not None and not (frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__"):
        frame = frame.f_back
    if is_ours:
        counts["while running" if frame is None else "in an import"] += 1
    return compile(*args)
re._compiler.compile = counted
from allready.cli.main import main
main(["diagnose", "-q", sys.argv[1]])
print(counts)
"""


def compiles(function: ast.expr) -> bool:
    """Whether it is a function of `re` or `patterns` that compiles."""
    if isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id in {"re", "patterns"}
    return isinstance(function, ast.Name) and function.id in COMPILE


def at_import(node: ast.AST) -> Iterator[ast.Call]:
    """Calls that compile an expression while the module is imported: also decorators, defaults, bodies of classes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        defaults = [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
        parts: list[ast.AST] = [*getattr(node, "decorator_list", ()), *defaults]
    else:
        parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call) and compiles(node.func):
        yield node
    for part in parts:
        yield from at_import(part)


def test_no_import_compiles_an_expression() -> None:
    found = [f"{path}:{call.lineno}" for path, tree in trees().items() for call in at_import(tree)]
    assert not found, "keep the text, and compile it where it is used (`patterns.compiled`):\n" + "\n".join(found)


def test_what_an_import_compiles_is_found() -> None:
    source = """
X = re.compile("x")
class C:
    y = [compiled(X)]
def f(z=re.compile("z")):
    return compiled(X)
g = lambda: compiled(X)
"""
    assert [call.lineno for call in at_import(ast.parse(source))] == [2, 4, 5]


def test_a_short_command_compiles_few_expressions(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", COUNTED, log], capture_output=True, text=True, timeout=60, check=True)
    verdict, _, last = done.stdout.strip().rpartition("\n")
    counts = ast.literal_eval(last)
    assert "CUDA" in verdict, done
    assert 0 < counts["while running"] <= MAX_OF_A_LINE
    assert counts["in an import"] <= 1  # also by a function that a module calls; the one is of a field's `Meta`


def test_an_expression_is_compiled_once() -> None:
    assert compiled(r"(?i)once \d") is compiled(r"(?i)once \d")
    assert compiled_bytes(rb"once \d") is compiled_bytes(rb"once \d")
