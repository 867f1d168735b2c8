"""Which kind a file is, and everything that it assigns."""

import re
from collections.abc import Callable
from pathlib import PurePath

from msgspec.structs import replace

from allready.model.settings import Slip, SourceKind
from allready.patterns import compiled
from allready.variables.sources import markdown, plain
from allready.variables.sources.dockerfile import parse_dockerfile
from allready.variables.sources.loaders import plans_in
from allready.variables.sources.meeting import meetings
from allready.variables.sources.notebook import parse_notebook
from allready.variables.sources.parsed import MAX_LINES, Parsed, read_environment
from allready.variables.sources.python import MAX_WRITTEN, parse_python
from allready.variables.sources.shell import parse_shell
from allready.variables.sources.structured import parse_structured

MAX_BYTES = 8 << 20

_NAMES = {
    SourceKind.DOCKERFILE: r"(?:.*[./])?(?:Dockerfile|Containerfile)(?:\..*)?|.*\.(?:Dockerfile|dockerfile)",
    SourceKind.CONFIG: r".*\.(?:(?:ya?ml|json)(?:\.(?:tpl|tmpl|gotmpl|j2|jinja2?))?|toml|tf|hcl)|supervisord?.*\.conf",
    SourceKind.PYTHON: r".*\.(?:py|ipynb)",
    SourceKind.NCCL_CONF: r"\.?nccl\.conf",
    SourceKind.DOTENV: r"\.env(?:\..*)?|.*\.env|\.deepspeed_env|environment",
    SourceKind.UNIT: r".*\.(?:service|scope|slice)",
    SourceKind.LUA_MODULE: r".*\.lua",
    SourceKind.SHELL: r".*\.(?:sh|bash|zsh|sbatch|slurm|pbs|lsf|t?csh|fish|ps1|bat|cmd|mk)|[Mm]akefile|GNUmakefile",
    SourceKind.MARKDOWN: r".*\.(?:md|rst|markdown)",
}
_PARSERS = {
    SourceKind.DOCKERFILE: parse_dockerfile,
    SourceKind.PYTHON: parse_python,
    SourceKind.NCCL_CONF: plain.parse_nccl_conf,
    SourceKind.DOTENV: plain.parse_dotenv,
    SourceKind.DUMP: plain.parse_dump,
    SourceKind.UNIT: plain.parse_unit,
    SourceKind.LUA_MODULE: plain.parse_lua_module,
    SourceKind.MARKDOWN: markdown.parse_markdown,
    SourceKind.CONFIG: parse_structured,
    SourceKind.SHELL: parse_shell,
    SourceKind.BATCH: parse_shell,
}
_BY_NAME: tuple[tuple[str, Callable[[str, Parsed], None]], ...] = (
    (r".*\.ipynb", parse_notebook),
    (r".*\.(?:tf|hcl)", plain.parse_hcl),
    (r"supervisord?.*\.conf", plain.parse_supervisor),
    (r".*\.(?:ps1|bat|cmd)", plain.parse_windows),
    (r".*\.mk|[Mm]akefile|GNUmakefile", plain.parse_makefile),
)
"""Files of a kind that are written differently."""
_BLANKS = r"(?m)^[ \t]*[A-Z][A-Z0-9_]*[ \t]+=[ \t]"
_COMMAND = r"(?m)^\s*(?:export|#!|#SBATCH|setenv|srun|mpirun|torchrun|python|deepspeed|accelerate)\b|^#!"
_USED = r"\$\{?([A-Za-z_][A-Za-z0-9_]{0,80})"
_BATCH = r"(?m)^#(?:SBATCH|PBS|BSUB|COBALT|OAR|PJM)[ \t]+\S|^[ \t]*(?:exec[ \t]+)?srun[ \t]|\$\{?(?:SLURM|PBS|LSB)_"
"""What only a script for a scheduler has: its comments, its launcher, its variables."""
_ONE_GPU = (
    r"(?m)^(?:#SBATCH|[^#\n])[^\n]{0,300}?\s--(?:gpus-per-task[= ](?:\w{1,20}:)?1|gpu-bind[= ](?:single|per_task):1"
    r"|ntasks-per-gpu[= ]1)(?!\d)"
)
"""Options of Slurm by which each task sees one GPU."""
_OF_JOBS = {SourceKind.SHELL, SourceKind.BATCH, SourceKind.CONFIG, SourceKind.KUBERNETES}
"""Kinds of file that start a job, or say how."""
_SETS_VARIABLES = (
    r".*\.(?:sh|bash|zsh|sbatch|slurm|py|env)|\.?nccl\.conf|environment|\.env(?:\..*)?|\.deepspeed_env"
    r"|\.(?:bashrc|bash_profile|profile|zshrc|zshenv)|bash\.bashrc|profile"
)
"""Files that give variables to programs, of those that scripts write."""
_UNIT = r"(?m)^\[Service\]\s*$"
_PROCESS = r"/proc/(?:\d{1,10}|self)/environ"
_DUMP_LINE = r"[A-Za-z_][A-Za-z0-9_]*=.*"


def read_text(source: str, text: str) -> Parsed:
    """Everything that a file of this name and content assigns.

    Raises:
        YamlMissingError: it is YAML or JSON, and PyYAML is not installed.
    """
    if compiled(_PROCESS).fullmatch(source):
        pairs = (row.partition("=") for row in text.split("\0"))
        return read_environment({name: value for name, equals, value in pairs if equals}, source)
    found = Parsed(source=source, kind=kind_of(source, text))
    name = file_name(source)
    parse = next((parser for pattern, parser in _BY_NAME if re.fullmatch(pattern, name)), _PARSERS[found.kind])
    parse(text, found)
    _read_written(found)
    if found.kind not in {SourceKind.CONFIG, SourceKind.KUBERNETES, SourceKind.PYTHON} and text.count("\n") > MAX_LINES:
        found.slip(MAX_LINES, f"only the first {MAX_LINES} lines are read", Slip.UNREADABLE)
    if found.kind in {SourceKind.SHELL, SourceKind.BATCH}:
        found.used = frozenset(compiled(_USED).findall(text))
    if found.kind in _OF_JOBS:
        found.meetings = list(meetings(source, text, found.settings))
    if found.kind is SourceKind.BATCH:
        found.loaders = list(plans_in(source, text))
        found.one_gpu_per_task = compiled(_ONE_GPU).search(text) is not None
    return found


def _read_written(found: Parsed) -> None:
    """What a script writes into files that hold variables, at its own lines."""
    for file in found.written[:MAX_WRITTEN]:
        name = file_name(file.name)
        if not re.fullmatch(_SETS_VARIABLES, name):
            continue
        inner = found.within()
        parse = parse_python if name.endswith(".py") else plain.parse_nccl_conf if name.endswith("nccl.conf") else None
        parse = parse or (plain.parse_dotenv if re.fullmatch(_NAMES[SourceKind.DOTENV], name) else parse_shell)
        parse(file.text, inner)
        found.settings += [replace(s, line=(s.line or 1) + file.line - 1) for s in inner.settings]


def file_name(source: str) -> str:
    """The last part of a path, also of `archive!member`."""
    return PurePath(source.rpartition("!")[2]).name


def kind_of(source: str, text: str) -> SourceKind:
    """By the file's name, and where that does not show it by its content."""
    name = file_name(source)
    kind = next((kind for kind, pattern in _NAMES.items() if re.fullmatch(pattern, name)), None)
    if kind is None and compiled(_UNIT).search(text):
        return SourceKind.UNIT
    if kind is None and "\0" in text[:4096]:
        return SourceKind.DUMP
    if kind is None and markdown.is_markdown(text):
        return SourceKind.MARKDOWN
    if kind is None and not compiled(_COMMAND).search(text):
        lines = [line for line in text.split("\n")[:200] if line.strip()]
        if lines and all(compiled(_DUMP_LINE).fullmatch(line) for line in lines):
            return SourceKind.DUMP
        if compiled(_BLANKS).search(
            text
        ):  # as settings of programs are written; a shell would take the first word for a command
            return SourceKind.DOTENV
    if kind in {None, SourceKind.SHELL}:
        return SourceKind.BATCH if compiled(_BATCH).search(text) else SourceKind.SHELL
    return kind
