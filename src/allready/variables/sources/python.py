"""What a Python file puts into os.environ, and how it calls torch.distributed."""

import ast
from collections.abc import Iterator

from allready.model.settings import Slip, SourceCall
from allready.variables.sources.parsed import MAX_SETTINGS, Parsed

CALLS = {"init_process_group", "shrink_group", "new_group"}

FOR_OTHERS = {"env_vars", "environment_variables", "container_env"}
"""Under these keys libraries take the variables of the processes that they start (Ray's `runtime_env`)."""

MAX_WRITTEN = 200
Pair = tuple[ast.expr, ast.expr]


def parse_python(text: str, found: Parsed, *, first_line: int = 1) -> None:
    """Assignments to os.environ with constant names; values that are not constants are not known."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = (error.lineno or 1) if isinstance(error, SyntaxError) else 1
        found.slip(line + first_line - 1, str(error)[:100], Slip.UNREADABLE)
        return
    _name_copies(tree)
    assigned: list[tuple[int, str, ast.expr]] = []
    for node in ast.walk(tree):
        for name, value in _pairs(node):
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and len(name.value) < 200:
                assigned.append((name.lineno + first_line - 1, name.value, value))
        if isinstance(node, ast.Call) and _name(node) in CALLS and len(found.calls) < MAX_SETTINGS:
            found.calls.append(_call(node, found.source, first_line))
    for line, variable, value in sorted(assigned, key=lambda row: row[0]):
        known = _text(value)
        found.assign(variable, known, line, written="" if known is not None else ast.unparse(value)[:MAX_WRITTEN])


def _name_copies(tree: ast.Module) -> None:
    """Write os.environ for the names of its copies: what a program puts into one is for a process that it starts."""
    copies = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.Dict)) and _is_copy(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if copies:
        _Renamed(copies).visit(tree)


def _is_copy(node: ast.Call | ast.Dict) -> bool:
    if isinstance(node, ast.Dict):
        return _adds_to_environ(node)
    is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict" and bool(node.args)
    return _is_environ(_copied(node)) or (is_dict and _is_environ(_copied(node.args[0])))


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names or not isinstance(node.ctx, ast.Load):
            return node
        environ = ast.Attribute(value=ast.Name(id="os", ctx=ast.Load()), attr="environ", ctx=ast.Load())
        return ast.copy_location(environ, node)


def _pairs(node: ast.AST) -> Iterator[Pair]:
    """Names and values that a statement puts into the environment."""
    match node:
        case ast.AugAssign(target=changed, op=ast.BitOr(), value=ast.Dict() as added) if _is_environ(changed):
            yield from _items(added)
        case ast.Dict():
            yield from _of_dict(node)
        case ast.For(target=ast.Tuple(elts=[name, value]), iter=ast.Call(func=ast.Attribute(value=ast.Dict() as rows))):
            if any(_is_set_from(inner, name, value) for inner in node.body):
                yield from _items(rows)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Subscript) and _is_environ(target.value):
                    yield target.slice, value
        case ast.Call(func=ast.Attribute(value=owner, attr="setdefault"), args=[name, value]) if _is_environ(owner):
            yield name, value
        case ast.Call(args=[name, value]) if _name(node) == "putenv":
            yield name, value
        case ast.Call(func=ast.Attribute(value=owner, attr="update")) if _is_environ(owner):
            yield from _updates(node)
        case ast.Call(func=ast.Name(id="dict"), args=[given, *_]) if _is_environ(_copied(given)):
            yield from _updates(node)


def _updates(node: ast.Call) -> Iterator[Pair]:
    for argument in node.args:
        if isinstance(argument, ast.Dict):
            yield from _items(argument)
        elif isinstance(argument, ast.Call) and _name(argument) == "dict":
            yield from _updates(argument)
    for keyword in node.keywords:
        if keyword.arg:
            yield ast.copy_location(ast.Constant(keyword.arg), keyword.value), keyword.value


def _of_dict(node: ast.Dict) -> Iterator[Pair]:
    """Variables in a dict that extends the environment, or that a library takes for other processes."""
    if _adds_to_environ(node):
        yield from _items(node)
    for key, value in _items(node):
        if isinstance(key, ast.Constant) and key.value in FOR_OTHERS and isinstance(value, ast.Dict):
            yield from _items(value)


def _adds_to_environ(node: ast.Dict) -> bool:
    """`{**os.environ, "A": "b"}`, as it is given to a subprocess."""
    return any(k is None and _is_environ(_copied(v)) for k, v in zip(node.keys, node.values, strict=True))


def _is_set_from(node: ast.stmt, name: ast.expr, value: ast.expr) -> bool:
    """`os.environ[name] = value`, the body of a loop over the items of a dict."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=owner, slice=ast.Name(id=key))], value=ast.Name(id=given)):
            return _is_environ(owner) and key == getattr(name, "id", "") and given == getattr(value, "id", "")
    return False


def _items(node: ast.Dict) -> Iterator[Pair]:
    yield from ((k, v) for k, v in zip(node.keys, node.values, strict=True) if k is not None)


def _copied(node: ast.expr) -> ast.expr:
    """os.environ of `os.environ.copy()` and `dict(os.environ)`."""
    match node:
        case ast.Call(func=ast.Attribute(value=copied, attr="copy")):
            return copied
        case ast.Call(func=ast.Name(id="dict"), args=[given]):
            return given
    return node


def _call(node: ast.Call, source: str, first_line: int) -> SourceCall:
    backend = next((k.value for k in node.keywords if k.arg == "backend"), node.args[0] if node.args else None)
    return SourceCall(
        function=_name(node),
        source=source,
        line=node.lineno + first_line - 1,
        keywords=tuple(k.arg for k in node.keywords if k.arg),
        backend=_text(backend) if backend is not None else None,
    )


def _name(node: ast.Call) -> str:
    """`f` of `f()` and of `a.b.f()`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_environ(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or getattr(node, "id", "") == "environ"


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
