"""Each concept once: no two classes with one name, no two constants with one name and one value.

Two things of one name are one concept that was written twice, or two concepts whose names do not tell which.  A value
that two parts need, of which neither may import the other, stands below both (`names`, `signatures.names`).
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

import pytest

from tests.text.sources import trees

Found = dict[object, list[str]]

OWN_OF_EACH_MODULE = {
    "TYPE_CHECKING": "modules that ranks load do not import typing",
    "log": "a logger has its module's name",
}
OF_USERS = {
    "Command": "of `allready.lab` (what a node runs) and of `allready.metrics` (where an alert goes), as documented"
}
"""Names of classes that users import from two modules, which say which it is."""
BY_CHANCE = {
    ("MAX_LINES", "evidence/log"): "lines of a traceback, and lines behind Horovod's last report",
    ("MAX_CHARS", "report"): "a cell of a table, and what a scheduler keeps of a reason",
    ("MAX_ROWS", "rules/bench"): "how much of a table is shown as evidence: of pairs, of sizes",
    ("MAX_SHOWN", "rules/live"): "how many ranks or groups a sentence lists: rules say it for themselves",
    ("MIN_MEMBERS", "judging"): "from how many on one stands out: by halves, by pairs",
    ("MIN_SAMPLES", "judging"): "of times between calls, and of the spread of an operation's times",
    ("GRACE_S", "cli"): "how long two commands wait for late facts",
    ("DEADLINE_S", "cli"): "of reading a machine, and of a promise to a scheduler",
    ("_MAX_BELOW", "evidence/log"): "how far a field may stand below its heading: Ray's, a launcher's",
    ("MAX_BYTES", "launch"): "of a file of settings, of a script, of a line of JAX's meeting",
    ("MAX_BYTES", "live/node"): "of what RAS answers, of a ring",
    ("_STUCK_S", "launch"): "the log relay starts without the package",
    ("_POLL_S", "runtime"): "of two loops",
}
"""Numbers of one folder that are equal and could each be another: what each is."""


def classes() -> Iterator[tuple[str, str]]:
    for path, tree in trees().items():
        names = (one.name for one in tree.body if isinstance(one, ast.ClassDef))
        yield from ((name, path) for name in names if name[0] != "_" and name not in OF_USERS)


def assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The names of a module, each with its value."""
    for one in tree.body:
        match one:
            case ast.Assign(targets=targets, value=value):
                yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def constants(path: str, tree: ast.Module) -> Iterator[tuple[object, str]]:
    """What may be double: (name, value), of a number its folder besides.  Not what is new with every evaluation."""
    folder = PurePath(path).parent.as_posix()
    for name, value in assigned(tree):
        if name in OWN_OF_EACH_MODULE or is_new(value):
            continue
        if (number := number_of(value)) is None:
            yield (name, ast.unparse(value)), path
        elif (name, folder) not in BY_CHANCE:
            yield (name, number, folder), path


def number_of(node: ast.expr) -> float | None:
    """Of `1 << 20` and `60 * 60` as well."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp() | ast.BinOp() if not any(
            isinstance(n, ast.Name | ast.Call | ast.Attribute) for n in ast.walk(node)
        ):
            value = eval(compile(ast.Expression(node), "", "eval"))
            return value if isinstance(value, int | float) else None
    return None


def is_new(node: ast.expr) -> bool:
    """A list or dictionary that changes, an object that stands for itself, a variable of types."""
    match node:
        case ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Set(elts=[]):
            return True
        case ast.Call(func=ast.Name(id="object" | "TypeVar" | "deque" | "set" | "dict") | ast.Attribute(attr="Lock")):
            return True
        case ast.Constant(value=None | True | False):
            return True
    return False


def doubles(pairs: Iterator[tuple[object, str]]) -> list[str]:
    found: dict[object, list[str]] = defaultdict(list)
    for what, path in pairs:
        found[what].append(path)
    return [f"{what}: {', '.join(paths)}" for what, paths in found.items() if len(paths) > 1]


def test_no_two_public_classes_have_one_name() -> None:
    wrong = doubles(iter(classes()))
    assert not wrong, "\n".join(wrong)


def test_no_two_constants_have_one_name_and_one_value() -> None:
    wrong = doubles(pair for path, tree in trees().items() for pair in constants(path, tree))
    assert not wrong, "\n".join(wrong)


def test_numbers_that_are_equal_by_chance_still_are() -> None:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for path, tree in trees().items():
        for name, value in assigned(tree):
            if (number := number_of(value)) is not None:
                found[name, PurePath(path).parent.as_posix()].append(number)
    unneeded = [one for one in BY_CHANCE if len(set(found[one])) == len(found[one])]
    assert not unneeded, "not needed any more"


def test_doubles_are_found() -> None:
    one = 'STALLED = "launcher.stalled"\nMAX_LINES = 1 << 4\n_seen = []\nFORM = r"\\d+"\nOFF = None\n'
    two = 'STALLED: str = "launcher.stalled"\nMAX_LINES = 16\n_seen = []\nFORM = rb"\\d+"\nOFF = None\n'
    files = {"agent/one.py": ast.parse(one), "agent/two.py": ast.parse(two)}
    found = doubles(pair for path, tree in files.items() for pair in constants(path, tree))
    assert [line.partition(":")[0] for line in found] == [
        "('STALLED', \"'launcher.stalled'\")",
        "('MAX_LINES', 16, 'agent')",
    ]


CUTS = {"partition", "rpartition", "split", "startswith", "removeprefix"}
READS_FAMILY = "model/events.py"


def cut_families(tree: ast.AST) -> Iterator[str]:
    """`event.signature.startswith("nccl.")`, `signature.partition(".")`: what `Event.family` says."""
    for call in ast.walk(tree):
        match call:
            case ast.Call(func=ast.Attribute(attr=attr, value=ast.Attribute(attr="signature"))) if attr in CUTS:
                words = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
                if any(word.endswith(".") for word in words):
                    yield ast.unparse(call)


def test_the_family_of_a_signature_is_read_by_one_function() -> None:
    found = {str(path): cut for path, tree in trees().items() if (cut := list(cut_families(tree)))}
    assert list(found) == [READS_FAMILY], found


@pytest.mark.parametrize("code", ['e.signature.startswith(("elastic.", "launcher."))', 'e.signature.partition(".")[0]'])
def test_a_family_that_is_cut_out_is_found(code: str) -> None:
    assert list(cut_families(ast.parse(code)))
