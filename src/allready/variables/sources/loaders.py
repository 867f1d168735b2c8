"""Workers of DataLoader that a job's file asks for, beside the CPUs that it asks for."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from allready.model.settings import LoaderPlan
from allready.patterns import compiled
from allready.variables.sources.parsed import MAX_NODES

_WORKERS = r"--(?:\w{1,40}[._-])?num[_-]workers(?:[= ]|\\\n)[ \t]{0,20}(\d{1,4})\b"
_RANKS = r"--(?:nproc[_-]per[_-]node|num[_-]processes)[= ][ \t]{0,20}(\d{1,3})\b"
_CPUS = r"(?m)^#SBATCH[ \t]{1,20}(?:[^#\n]{0,200}[ \t])?((?:--cpus-per-task[= ]|-c[ \t]{0,9})(\d{1,4}))\b"
MAX_PLANS = 64
_WORKERS_KEY = r"(?:\w{1,40}_)?num_workers"
_CPUS_KEYS = {"cpus_per_task", "cpus", "num_cpus", "ncpus", "cpu"}
_RANKS_KEYS = {"nproc_per_node", "num_processes", "processes_per_node", "num_gpus_per_node", "devices"}
_TASKS_KEYS = {"tasks_per_node", "ntasks_per_node"}
_MACHINES_KEYS = {"num_machines", "num_nodes", "nnodes", "nodes"}
MAX_DEPTH = 60


class _Setting(Struct, frozen=True):
    """A key of a configuration with a number, or a command in it."""

    key: str
    number: int
    line: int
    text: str
    ranks: int = 0


def plans_in_tree(source: str, document: Any) -> Iterator[LoaderPlan]:
    """Those of one document of YAML or JSON: a manifest, a launcher's or a trainer's configuration.

    It must give one number of CPUs.  Ranks that share them: what it says of processes on a node, but one where each
    task is a rank.
    """
    said = list(_settings_in(document, "", 0, set()))
    cpus = [s for s in said if s.key in _CPUS_KEYS]
    if len({s.number for s in cpus}) != 1:
        return
    ranks = _shared_by(said, cpus[0])
    for asked in [s for s in said if compiled(_WORKERS_KEY).fullmatch(s.key)][:MAX_PLANS]:
        yield LoaderPlan(
            source=source,
            line=asked.line,
            text=asked.text,
            workers=asked.number,
            ranks=asked.ranks or ranks,
            cpus=cpus[0].number,
            cpus_line=cpus[0].line,
            cpus_text=cpus[0].text,
        )


def _shared_by(said: Sequence[_Setting], cpus: _Setting) -> int:
    """How many ranks share the CPUs, as far as the document says."""
    ranks = {s.number for s in said if s.key in _RANKS_KEYS}
    machines = {s.number for s in said if s.key in _MACHINES_KEYS}
    if len(ranks) != 1 or (cpus.key == "cpus_per_task" and any(s.key in _TASKS_KEYS for s in said)):
        return 1
    number = ranks.pop()
    is_total = any(s.key == "num_processes" for s in said)
    return max(1, number // max(machines)) if machines and is_total and max(machines) > 0 else max(1, number)


def _settings_in(node: Any, key: str, depth: int, seen: set[tuple[int, str]]) -> Iterator[_Setting]:
    """What a part of a document says; an alias is read once under each key."""
    if depth > MAX_DEPTH or len(seen) > MAX_NODES or (id(node), key) in seen:
        return
    seen.add((id(node), key))
    if node.id == "scalar":
        yield from _settings_of(node, key.lower().replace("-", "_"))
    elif node.id == "sequence":
        words = [str(child.value) for child in node.value if child.id == "scalar"]
        if len(words) == len(node.value) and node.value:
            yield from _in_command(" ".join(words), node.start_mark.line + 1)
            return
        for child in node.value:
            yield from _settings_in(child, key, depth + 1, seen)
    elif node.id == "mapping":
        for name, child in node.value:
            if name.id == "scalar" and name.value != "requests":  # of Kubernetes: a container may use its limit
                yield from _settings_in(child, str(name.value), depth + 1, seen)


def _settings_of(node: Any, key: str) -> Iterator[_Setting]:
    line = node.start_mark.line + 1
    if re.fullmatch(r"\d{1,5}", str(node.value)):
        yield _Setting(key, int(node.value), line, f"{key}: {node.value}")
    elif "workers" in str(node.value):
        yield from _in_command(str(node.value), line + (1 if node.style in {"|", ">"} else 0))


def _in_command(text: str, line: int) -> Iterator[_Setting]:
    """`--num-workers 8` and, for its command, `--nproc-per-node 4`."""
    for option in compiled(_WORKERS).finditer(text):
        ranks = compiled(_RANKS).search(_command_around(text, option.start()))
        at = line + text.count("\n", 0, option.start())
        yield _Setting("num_workers", int(option[1]), at, " ".join(option[0].split()), int(ranks[1]) if ranks else 0)


def plans_in(source: str, text: str) -> Iterator[LoaderPlan]:
    """Those of a batch script: #SBATCH --cpus-per-task, and --num-workers of the commands behind it.

    The CPUs are those of a task.  A launcher with --nproc-per-node starts that many ranks in one task.
    """
    asked = list(compiled(_CPUS).finditer(text))
    if not asked:
        return
    body = "\n".join("" if line.lstrip().startswith("#") else line for line in text.split("\n"))
    for option in list(compiled(_WORKERS).finditer(body))[:MAX_PLANS]:
        ranks = compiled(_RANKS).search(_command_around(body, option.start()))
        yield LoaderPlan(
            source=source,
            line=body.count("\n", 0, option.start()) + 1,
            text=" ".join(option[0].split()),
            workers=int(option[1]),
            ranks=max(1, int(ranks[1])) if ranks else 1,
            cpus=int(asked[-1][2]),
            cpus_line=text.count("\n", 0, asked[-1].start(1)) + 1,
            cpus_text=asked[-1][1],
        )


def _command_around(text: str, place: int) -> str:
    """The command that stands there, with the lines that its backslashes join."""
    begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
    while begin > 1 and text[begin - 2] == "\\":
        begin = text.rfind("\n", 0, begin - 1) + 1
    while end > 0 and text[end - 1] == "\\":
        end = text.find("\n", end + 1)
    return text[begin : end if end >= 0 else len(text)]
