"""Values are msgspec Structs; where a dataclass stands is a rule (docs/decisions.md, "Struct or dataclass")."""

import ast
import re
from collections.abc import Iterator

import allready
from tests.text.sources import nodes, trees

LABORATORY = "lab/"


def dataclasses_of(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, bool]]:
    """Each dataclass, and whether it is frozen."""
    for node in nodes(tree, ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(call).rpartition(".")[2] == "dataclass":
                yield node, "frozen=True" in ast.unparse(decorator)


def wrong_in(path: str, tree: ast.Module) -> Iterator[str]:
    """Dataclasses that should be Structs."""
    for node, is_frozen in dataclasses_of(tree):
        is_public = getattr(getattr(allready, node.name, None), "__name__", "") == node.name
        has_methods = any(isinstance(part, ast.FunctionDef) for part in node.body)
        if not path.startswith(LABORATORY) and not (is_public if is_frozen else has_methods):
            yield f"{path}:{node.lineno}: {node.name}"


def test_a_dataclass_is_public_or_a_fault_or_does_something() -> None:
    found = [text for path, tree in trees().items() for text in wrong_in(path, tree)]
    assert not found, "make these msgspec.Structs:\n" + "\n".join(found)


def test_a_value_that_is_a_dataclass_is_found() -> None:
    value = "@dataclass(frozen=True)\nclass Recovered:\n    rank: int\n"
    assert list(wrong_in("facts/x.py", ast.parse(value))) == ["facts/x.py:2: Recovered"]
    assert list(wrong_in("facts/x.py", ast.parse(value.replace("frozen=True", "slots=True")))) != []
    assert list(wrong_in("runtime/x.py", ast.parse(value.replace("Recovered", "Recovery")))) == []
    assert list(wrong_in("lab/x.py", ast.parse(value))) == []


NAMED = re.compile(r"((?:`\w+`(?:, | and )?)+):")
"""What a docstring explains: `name`: its meaning."""
ARGUMENT = re.compile(r"^    \*{0,2}(\w+(?:, \w+)*):", re.MULTILINE)


def unknown_fields(tree: ast.Module) -> Iterator[str]:
    """Fields that the docstring of a class explains, and arguments that one of a function does, that there are not."""
    for node in nodes(tree, ast.ClassDef):
        fields = {s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}
        known = fields | {s.name for s in node.body if isinstance(s, ast.FunctionDef)}
        names = (name for match in NAMED.findall(ast.get_docstring(node) or "") for name in re.findall(r"\w+", match))
        bases = {ast.unparse(base) for base in node.bases}
        if fields and bases == {"Struct"}:
            yield from (f"{node.name}.{name}" for name in names if name not in known and name not in VALUES)
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    functions = [*nodes(tree, ast.FunctionDef), *nodes(tree, ast.AsyncFunctionDef)]
    for function in functions:
        arguments = function.args
        if arguments.kwarg is None:
            _, _, listed = (ast.get_docstring(function) or "").partition("Args:\n")
            described = {n for found in ARGUMENT.findall(listed.partition("\n\n")[0]) for n in found.split(", ")}
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg)
            yield from (f"{function.name}({n})" for n in sorted(described - {a.arg for a in every if a is not None}))


VALUES = {"TokenGap", "Freeze", "peer", "ranks"}
"""Other classes, and groups of expressions, that docstrings explain as well."""


def test_docstrings_explain_fields_and_arguments_that_exist() -> None:
    failures = [f"{place}: {name}" for place, tree in trees().items() for name in unknown_fields(tree)]
    assert not failures, "\n".join(failures)


def test_a_field_that_was_renamed_is_found() -> None:
    text = (
        'class A(Struct):\n    """`site`: where."""\n    place: str\n\n'
        'def f(x):\n    """F.\n\n    Args:\n        y: 1.\n    """\n'
    )
    assert list(unknown_fields(ast.parse(text))) == ["A.site", "f(y)"]
