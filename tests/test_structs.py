"""Values are msgspec Structs; where a dataclass stands is a rule (docs/decisions.md, "Struct or dataclass")."""

import ast
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
