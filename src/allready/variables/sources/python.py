"""What a Python file puts into os.environ, and how it calls torch.distributed."""

import ast

from allready.variables.sources.parsed import Assignment, Found

CALLS = {"init_process_group", "shrink_group", "new_group"}


def parse_python(text: str, *, first_line: int = 1) -> Found:
    """Assignments to os.environ with constant names; values that are not constants are not known."""
    found = Found()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = (error.lineno or 1) if isinstance(error, SyntaxError) else 1
        found.malformed.append((line + first_line - 1, str(error)[:100], "unreadable"))
        return found
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Subscript) and _is_environ(target.value):
                        _add(found, target.slice, value, node.lineno)
            case ast.Call(func=function, args=arguments):
                _call(found, node, function, arguments)
    found.assignments = [Assignment(a.name, a.value, a.line + first_line - 1) for a in found.assignments]
    found.calls = [(f, line + first_line - 1, keywords, backend) for f, line, keywords, backend in found.calls]
    found.assignments.sort(key=lambda a: a.line)
    return found


def _call(found: Found, node: ast.Call, function: ast.expr, arguments: list[ast.expr]) -> None:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = function.value if isinstance(function, ast.Attribute) else None
    of_environ = owner is not None and _is_environ(owner)
    if len(arguments) == 2 and (name == "putenv" or (name == "setdefault" and of_environ)):
        _add(found, arguments[0], arguments[1], node.lineno)
    elif name == "update" and of_environ:
        _update(found, node)
    elif name in CALLS:
        keywords = tuple(k.arg for k in node.keywords if k.arg)
        given = next((k.value for k in node.keywords if k.arg == "backend"), arguments[0] if arguments else None)
        found.calls.append((name, node.lineno, keywords, _text(given) if given is not None else None))


def _update(found: Found, node: ast.Call) -> None:
    for argument in node.args:
        if isinstance(argument, ast.Dict):
            for key, value in zip(argument.keys, argument.values, strict=True):
                if key is not None:
                    _add(found, key, value, key.lineno)
    for keyword in node.keywords:
        if keyword.arg:
            found.assignments.append(Assignment(keyword.arg, _text(keyword.value), node.lineno))


def _is_environ(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or getattr(node, "id", "") == "environ"


def _add(found: Found, key: ast.expr, value: ast.expr, line: int) -> None:
    if isinstance(key, ast.Constant) and isinstance(key.value, str) and len(key.value) < 200:
        found.assignments.append(Assignment(key.value, _text(value), line))


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
