"""The direction of imports, what may stand where, and that importing does nothing.

The layers are those of docs/architecture.md.  Modules are parsed, not only imported: an import inside a function
counts as well.
"""

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cases import cases
from tests.text.sources import nodes, trees

ROOT = Path(__file__).resolve().parents[1] / "src" / "allready"

MAY_IMPORT = {
    "errors": set(),
    "json_bounds": set(),
    "garbage": set(),
    "units": set(),
    "patterns": set(),
    "names": set(),
    "redaction": {"names", "model", "patterns"},
    "model": {"patterns"},
    "text": {"model", "patterns"},
    "signatures": {"model", "errors", "patterns"},
    "evidence": {
        "names", "model", "units", "patterns", "redaction", "errors", "garbage", "json_bounds", "signatures", "text",
    },
    "proc": {"model"},
    "judging": {"names", "model", "patterns", "units", "errors", "signatures", "evidence", "text"},
    "variables": {"names", "model", "patterns", "units", "errors", "text"},
    "rules": {"names", "model", "patterns", "units", "signatures", "judging", "text", "variables"},
    "facts": {"names", "model", "patterns", "units", "redaction", "errors", "proc", "variables"},
    "report": {"model", "patterns", "units", "errors", "json_bounds", "text", "judging"},
    "docs": {"model", "patterns", "judging", "rules", "signatures", "text"},
    "bundle": {"model", "patterns", "redaction", "errors", "json_bounds", "signatures", "evidence", "facts", "text"},
    "launch": {
        "model", "patterns", "redaction", "errors", "text", "signatures", "rules", "judging", "facts", "evidence",
        "report",
        "proc", "messaging",
    },
    "messaging": {"names", "model", "errors", "text", "json_bounds", "proc"},
    "preflight": {
        "names", "model", "patterns", "units", "errors", "text", "judging", "rules", "facts", "evidence", "report",
        "messaging", "launch",
        "live", "proc",
    },
    "live": {
        "names", "model", "patterns", "units", "redaction", "bundle", "errors", "text", "judging", "rules", "facts",
        "evidence", "report",
        "messaging", "proc", "exposition",
    },
    "bench": {"model", "errors", "json_bounds"},
    "agent": {
        "model", "patterns", "redaction", "errors", "garbage", "text", "judging", "rules", "facts", "evidence",
        "report",
        "messaging", "launch",
        "preflight", "live", "proc",
    },
    "exposition": set(),
    "runtime": {
        "model", "names", "patterns", "errors", "text", "redaction", "exposition", "evidence", "judging", "rules",
        "messaging", "live",
        "proc",
    },
    "metrics": {"model", "runtime"},
    "integrations": {"errors", "runtime"},
    "jax": {"model", "errors", "launch", "messaging", "runtime"},
    "lab": {"model", "patterns", "errors", "text", "rules", "facts", "evidence", "report", "proc"},
    "cli": {
        "model", "names", "patterns", "units", "redaction", "bundle", "errors", "garbage", "json_bounds", "text",
        "signatures", "judging",
        "rules", "facts", "evidence", "proc",
        "report", "launch", "messaging", "preflight", "live", "agent", "lab", "docs", "variables",
        "bench",
    },
    "run": {"cli"},
    "__main__": {"cli"},
}  # fmt: skip
"""Part of the package -> parts whose modules it may import, besides its own."""

LATE = {"launch.elastic_agent"}
"""Modules that import torch at their top, and are themselves imported inside functions only."""
FRAMEWORKS = {"torch", "jax", "jaxlib"}
FRAMEWORK_PARTS = {"preflight", "live", "launch", "messaging", "runtime", "jax"}
HEAVY = ("torch", "jax", "rich", "jinja2", "pyroute2", "pynvml", "psutil")
"""What must not be loaded by importing our modules; each takes a good part of the 0.2 s that `--help` has."""

NO_IO = {
    "os", "io", "pathlib", "subprocess", "socket", "time", "datetime", "threading", "multiprocessing", "asyncio",
    "shutil", "tempfile", "signal", "random", "glob", "urllib", "http", "ssl", "select", "fcntl", "mmap", "ctypes",
}  # fmt: skip
NO_IO_CALLS = {"open", "input", "exec", "eval", "compile", "__import__", "breakpoint"}


@dataclass(frozen=True)
class Module:
    """One parsed file of the package."""

    path: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        """`rules.net.mtu_differs`, `model`, ..."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def part(self) -> str:
        """The first folder or the file below `allready`; "" for the package itself."""
        return self.name.partition(".")[0]

    def import_nodes(self) -> list[ast.Import | ast.ImportFrom]:
        """Wherever in the file."""
        return [*nodes(self.tree, ast.Import), *nodes(self.tree, ast.ImportFrom)]

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and full name of everything that is imported."""
        for node in self.import_nodes():
            if isinstance(node, ast.ImportFrom) and self._base(node) != "allready":
                yield node.lineno, self._base(node)
            else:
                above = "allready." if isinstance(node, ast.ImportFrom) else ""
                yield from ((node.lineno, above + alias.name) for alias in node.names)

    def targets(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        """What one import may load: modules, and names in modules as if they were modules."""
        above = f"{self._base(node)}." if isinstance(node, ast.ImportFrom) else ""
        yield from (above + alias.name for alias in node.names)

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        above = package[: len(package) - node.level + 1]
        return ".".join(["allready", *above, *([node.module] if node.module else [])])


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every file of the package."""
    return tuple(Module(ROOT / place, tree) for place, tree in trees().items())


def where(module: Module, line: int) -> str:
    return f"{module.path.relative_to(ROOT.parents[1])}:{line}"


def test_the_package_is_found() -> None:
    assert {"model", "judging.engine", "rules.limit.shm", "text.ui"} <= {m.name for m in modules()}


def test_every_part_has_its_place_in_the_table() -> None:
    assert {m.part for m in modules() if m.part} <= set(MAY_IMPORT)


def test_imports_point_down() -> None:
    wrong = []
    for module in modules():
        for line, name in module.imports():
            if not name.startswith("allready."):
                continue
            target = name.split(".")[1]
            if target in {"__version__", module.part}:
                continue
            if target not in MAY_IMPORT.get(module.part, set()):
                wrong.append(f"{where(module, line)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_table_of_layers_has_no_cycle() -> None:
    seen: list[str] = []
    left = dict(MAY_IMPORT)
    while left:
        free = [part for part, below in left.items() if not below & set(left)]
        assert free, f"these import each other: {sorted(left)}"
        seen += free
        left = {part: below for part, below in left.items() if part not in free}
    assert seen[-1] == "__main__"


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            members = frozenset(stack[at:])
            del stack[at:]
            if len(members) > 1:
                found.add(members)

    for node in graph:
        if node not in index:
            visit(node)
    return found


def imported_modules() -> dict[str, set[str]]:
    """Module -> modules of ours that it imports, wherever in the file and also for types only."""
    names = {module.name for module in modules()}
    found: dict[str, set[str]] = {}
    for module in modules():
        targets = found.setdefault(module.name, set())
        for node in module.import_nodes():
            for name in module.targets(node):
                if name.startswith("allready."):  # the part `jax` is not JAX
                    target = name.removeprefix("allready.")
                    targets.add(target if target in names else target.rpartition(".")[0])
        targets &= names - {module.name}
    return found


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d", "e"}}
    assert circles(graph) == {frozenset("abc")}


def test_no_modules_import_each_other() -> None:
    """Neither at module level nor inside functions, nor for types only."""
    assert circles(imported_modules()) == set()


def test_no_rooms_import_each_other() -> None:
    """The folders of a part have an order too; a module beside them counts by itself."""

    def room(name: str) -> str:
        parts = name.split(".")
        return ".".join(parts[:2]) if (ROOT / Path(*parts[:2])).is_dir() else name

    graph: dict[str, set[str]] = {}
    for name, targets in imported_modules().items():
        graph.setdefault(room(name), set()).update(room(target) for target in targets if room(target) != room(name))
    assert circles(graph) == set()


def test_the_model_needs_the_standard_library_and_msgspec_only() -> None:
    wrong = [
        f"{where(module, line)} imports {name}"
        for module in modules()
        if module.part in {"model", "errors"}
        for line, name in module.imports()
        if name.split(".")[0] not in sys.stdlib_module_names | {"allready", "msgspec"}
    ]
    assert not wrong, "\n".join(wrong)


def test_frameworks_are_imported_by_rank_processes_only() -> None:
    """Only inside functions, and only in the parts that start rank processes."""
    wrong = []
    for module in modules():
        top_level = {id(node) for node in module.tree.body}
        for node in module.import_nodes():
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            is_framework = bool({n.split(".")[0] for n in names} & FRAMEWORKS)
            is_early = id(node) in top_level and module.name not in LATE
            if (is_framework and (module.part not in FRAMEWORK_PARTS or is_early)) or (
                id(node) in top_level and {name.removeprefix("allready.") for name in names} & LATE
            ):
                wrong.append(f"{where(module, node.lineno)} imports {', '.join(names)}")
    assert not wrong, "\n".join(wrong)


def test_rules_do_no_input_or_output() -> None:
    """A rule judges what it is given: no file, no command, no clock, no chance."""
    wrong = []
    for module in modules():
        if module.part != "rules":
            continue
        wrong += [
            f"{where(module, line)} imports {name}" for line, name in module.imports() if name.split(".")[0] in NO_IO
        ]
        wrong += [
            f"{where(module, node.lineno)} calls {node.func.id}"
            for node in nodes(module.tree, ast.Call)
            if isinstance(node.func, ast.Name) and node.func.id in NO_IO_CALLS
        ]
    assert not wrong, "\n".join(wrong)


PROC_FILE = re.compile(
    r"(?!/proc/self/fd/)/proc(?:(?:/(?:self|thread-self|\d+|\{\}))?/(?:stat|status|cgroup|mountinfo|cmdline|comm"
    r"|environ|exe|maps|wchan|syscall|schedstat|children|task|fd|ns)(?:/|$)|/(?:self|thread-self|\d+|\{\})/?$|$)"
)
NOT_BY_PROC = {
    "launch.log_relay": "a program that imports nothing of ours, to be there within milliseconds",
    "lab.inject.hook.allready_lab_inject.actions": "runs in ranks where this package may not be installed",
    "lab.netlink": "a namespace to enter",
    "live.beacon.thread": "its own threads' folders, whether they are there",
    "live.node.kernel": "one link of its own",
    "evidence.inputs.workers": "its own threads, counted",
}


def _text(node: ast.expr) -> str:
    """A string with {} where values stand; "" for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return ""


@cases("path", ["/proc/{}", "/proc/{}/stat", "/proc/self/status", "/proc/7/task/7/comm", "/proc", "/proc/self/"])
def test_paths_of_processes_are_recognised(path: str) -> None:
    """Also the folder alone: whether it is there says nothing of a process whose pid may be used again."""
    assert PROC_FILE.match(path)
    assert not PROC_FILE.match("/proc/sys/kernel/osrelease")
    assert not PROC_FILE.match("/proc/net/tcp")


def _goes_through_a_host(call: ast.Call) -> bool:
    """`host.read(path)`, or a function that takes the host first."""
    first = [call.func.value] if isinstance(call.func, ast.Attribute) else call.args[:1]
    return any(isinstance(node, ast.Name) and node.id == "host" for node in [*first, *call.args[:1]])


def test_files_of_processes_are_read_by_one_part() -> None:
    """proc/ reads and parses /proc/PID; collectors of facts give it the text that their host has read."""
    wrong = []
    excused = set()
    for module in modules():
        if module.part in {"proc", "rules"}:
            continue
        by_host = {
            id(part) for node in nodes(module.tree, ast.Call) if _goes_through_a_host(node) for part in ast.walk(node)
        }
        found = [
            f"{where(module, node.lineno)}: {_text(node)}"
            for node in nodes(module.tree, ast.Constant, ast.JoinedStr)
            if id(node) not in by_host and PROC_FILE.match(_text(node))
        ]
        if found and module.name in NOT_BY_PROC:
            excused.add(module.name)
        else:
            wrong += found
    assert not wrong, "\n".join(wrong)
    assert excused == set(NOT_BY_PROC)


def test_the_agent_is_typed_throughout() -> None:
    loose = [path.name for path in sorted((ROOT / "agent").glob("*.py")) if re.search(r"\bAny\b", path.read_text())]
    assert not loose


def test_only_reports_and_the_command_line_print() -> None:
    wrong = [
        where(module, node.lineno)
        for module in modules()
        if module.part not in {"report", "cli"}
        for node in nodes(module.tree, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not wrong, "\n".join(wrong)


def test_no_except_without_a_name() -> None:
    wrong = [
        where(module, node.lineno)
        for module in modules()
        for node in nodes(module.tree, ast.ExceptHandler)
        if node.type is None
    ]
    assert not wrong, "\n".join(wrong)


def test_no_failure_is_swallowed_without_a_trace() -> None:
    """`except Exception: pass` hides our own mistakes; a narrower class says what is expected."""
    wrong = []
    for module in modules():
        for node in nodes(module.tree, ast.ExceptHandler):
            if not isinstance(node.type, ast.Name):
                continue
            is_broad = node.type.id in {"Exception", "BaseException"}
            if is_broad and all(isinstance(s, ast.Pass | ast.Continue) for s in node.body):
                wrong.append(where(module, node.lineno))
    assert not wrong, "\n".join(wrong)


IMPORT_EVERYTHING = """
import importlib, json, os, pkgutil, sys, threading
before = set(os.listdir("/proc/self/fd"))
environ = dict(os.environ)
import allready
failed, names, unknown = {}, [], []
for found in pkgutil.walk_packages(allready.__path__, "allready."):
    if found.name.endswith("__main__") or found.name in %(late)r:
        continue
    names.append(found.name)
    try:
        module = importlib.import_module(found.name)
        listed = getattr(module, "__all__", ())
        unknown += [f"{found.name}.{name}" for name in listed if not hasattr(module, name)]
        unknown += [f"{found.name}: a name twice"] * (len(set(listed)) < len(listed))
    except BaseException as error:
        failed[found.name] = repr(error)
links = []
for fd in set(os.listdir("/proc/self/fd")) - before:
    try:
        links.append(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        pass
children = []
for task in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{task}/children") as file:
        children += file.read().split()
print(json.dumps({
    "failed": failed, "unknown": unknown, "number": len(names),
    "threads": threading.active_count(), "opened": links, "children": children,
    "heavy": sorted(set(sys.argv[1:]) & set(sys.modules)), "environ_changed": dict(os.environ) != environ,
}))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, object]:
    """What a fresh interpreter has after importing every module of the package."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            IMPORT_EVERYTHING.replace("%(late)r", repr({f"allready.{m}" for m in LATE})),
            *HEAVY,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)  # and nothing else was printed
    return answer


@pytest.mark.thorough
def test_every_module_can_be_imported(imported: dict[str, object]) -> None:
    assert imported["failed"] == {}
    assert int(str(imported["number"])) > 40


@pytest.mark.thorough
def test_the_names_that_a_module_lists_exist(imported: dict[str, object]) -> None:
    assert imported["unknown"] == []


def test_importing_starts_nothing(imported: dict[str, object]) -> None:
    assert imported["threads"] == 1
    assert imported["children"] == []
    assert imported["opened"] == []
    assert imported["environ_changed"] is False


def test_importing_loads_nothing_heavy(imported: dict[str, object]) -> None:
    assert imported["heavy"] == []


PAGES = tuple(p for folder in (".", "docs", "docs/zh") for p in sorted((ROOT.parents[1] / folder).glob("*.md")))
FILE = re.compile(r"(?<![\w/.:{*-])(?=[a-z])(\w+(?:/\w+)*/(?:\w+\.(?:py|c|toml|md)\b)?)")
"""`judging/arbiter.py`, `lab/`; no names in capitals, and no files of a run, which end in .json."""
BARE = re.compile(r"`(\w+\.py)`")
NOT_OURS = {"analyze_perf_json.py"}  # nccl-tests'


def missing_paths(text: str, folder: Path) -> Iterator[str]:
    """Files and folders of this repository that a page of `folder` names and that do not exist."""
    repository = ROOT.parents[1]
    known = {p.name for p in (*ROOT.iterdir(), *repository.iterdir()) if p.is_dir()}
    for path in FILE.findall(text):
        is_ours = path.split("/")[0] in known and not re.search(r"[A-Z]{3}", path)
        if is_ours and not any((root / path).exists() for root in (repository, ROOT, folder)):
            yield path
    for name in set(BARE.findall(text)) - NOT_OURS:
        if not any(next((repository / part).rglob(name), None) for part in ("src", "tests", "benchmarks", "examples")):
            yield name


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`judging/arbiter.py` and lab/, not `judging/chooser.py`, rules/rest/ or `why.py`; 2/1/1, report.json"
    assert list(missing_paths(text, ROOT)) == ["judging/chooser.py", "rules/rest/", "why.py"]


def test_pages_name_files_that_exist() -> None:
    """But the changelog, which tells of what was."""
    texts = [(p, p.read_text(encoding="utf-8")) for p in PAGES if p.name != "CHANGELOG.md"]
    failures = [f"{page.name}: {path}" for page, text in texts for path in missing_paths(text, page.parent)]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/zh/architecture.md"])
def test_the_way_to_the_verdict_has_eight_stations_at_most(page: str) -> None:
    text = (ROOT.parents[1] / page).read_text(encoding="utf-8")
    drawing = next(block for block in text.split("```") if "facts/probes.py" in block)
    stations = re.findall(r"^ *(\d+) {2,}\S", drawing, re.MULTILINE)
    assert stations == [str(number + 1) for number in range(len(stations))]
    assert 1 < len(stations) <= 8
